package setup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/workload"
)

// RBAC for ClusterCache. It needs only kubeconfigs, but RBAC cannot select Secrets by label or by part of a name
// (docs/reference/rights.md).
// +kubebuilder:rbac:groups=core,resources=secrets,verbs=list;watch
// RBAC for the annotation of a Cluster that identifies its workload cluster.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch;patch

// connect sets up the connections to workload clusters.
func (p *program) connect(ctx context.Context) error {
	secrets, err := setup.CreateSecretCachingClient(p)
	if err != nil {
		return fmt.Errorf("set up the cache of kubeconfigs: %w", err)
	}
	transports := workload.NewTransports(p.o.clusters.responseLimit.Value(), clock.RealClock{})
	transports.Self, transports.SelfUID = types.NamespacedName{Namespace: p.self.Namespace, Name: p.self.Name}, p.self.UID
	transports.Local, transports.Reader = ctrl.GetConfig, secrets
	if err := transports.Register(); err != nil {
		return err
	}
	// With POD_UID set, ClusterCache would connect to the manager's own cluster without the transports.
	defer p.self.HideUID()()
	cc, err := clustercache.SetupWithManager(ctx, p, clustercache.Options{
		SecretClient:     transports,
		WatchFilterValue: p.o.watchFilter,
		Cache: clustercache.CacheOptions{
			DefaultTransform: machinehealthcheck.SlimMetadata,
			ByObject:         map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: workload.SlimNode}},
		},
		Client: clustercache.ClientOptions{QPS: p.o.clusters.qps, Burst: p.o.clusters.burst, UserAgent: userAgent},
	}, controller.Options{MaxConcurrentReconciles: p.o.clusters.concurrency})
	if err != nil {
		return fmt.Errorf("set up the connections to workload clusters: %w", err)
	}
	p.connections = workload.Connections{ClusterCache: cc, Transports: transports}
	p.clusters = workload.NewClusters(p.connections)
	p.clusters.Transports = transports
	p.clusters.Server, p.clusters.Management = p.server, p.writer()
	return p.clusters.ForgetDeleted(ctx, p.GetCache())
}
