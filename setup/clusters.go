package setup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/clockerror"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/replica"
	"github.com/kubemend/kubemend/controllers/workload"
)

// RBAC for ClusterCache. It needs kubeconfigs alone, but rules know neither labels nor parts of names (docs/reference/rights.md).
// +kubebuilder:rbac:groups=core,resources=secrets,verbs=list;watch
// Which workload cluster a Cluster is, is kept on it.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch;patch

// connect sets up the connections to workload clusters.
func connect(ctx context.Context, mgr ctrl.Manager, server *clockerror.Server, self replica.Replica, o *Options) (*workload.Gates, *workload.Clusters, error) {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, nil, fmt.Errorf("set up the cache of kubeconfigs: %w", err)
	}
	transports := &workload.Transports{
		Limit: o.clusters.ResponseLimit.Value(), Clock: clock.RealClock{}, Local: ctrl.GetConfig,
		SelfUID: self.UID, Self: types.NamespacedName{Namespace: self.Namespace, Name: self.Name},
	}
	if err := transports.Register(); err != nil {
		return nil, nil, err
	}
	kubeconfigs := &workload.Kubeconfigs{
		Reader: secrets, Transports: transports, Tell: workload.TellCluster(mgr.GetClient(), mgr.GetEventRecorder("ClusterCache")),
	}
	// ClusterCache would look for this pod itself, and go past the transports where it finds it.
	defer self.HideUID()()
	cc, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     kubeconfigs,
		WatchFilterValue: o.watchFilter,
		Cache: clustercache.CacheOptions{
			DefaultTransform: machinehealthcheck.SlimMetadata,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: workload.SlimNode}, &storagev1.VolumeAttachment{}: {Transform: fence.SlimAttachment},
			},
		},
		Client: clustercache.ClientOptions{QPS: o.clusters.QPS, Burst: o.clusters.Burst, UserAgent: userAgent},
	}, controller.Options{MaxConcurrentReconciles: o.clusters.Concurrency})
	if err != nil {
		return nil, nil, fmt.Errorf("set up the connections to workload clusters: %w", err)
	}
	gates := &workload.Gates{
		ClusterCache: cc, Kubeconfigs: kubeconfigs, Clock: clock.RealClock{},
		MostWaiting: max(1, min(o.machineHealthChecks.Concurrency, o.hostRemediations.Concurrency)/2),
	}
	clusters := workload.NewClusters(gates)
	clusters.Kubeconfigs, clusters.Gates, clusters.MostNodes = kubeconfigs, gates, transports.MostNodes()
	clusters.Server, clusters.Management = server, client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner)
	err = clusters.ForgetDeleted(ctx, mgr.GetCache())
	return gates, clusters, err
}
