package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1beta1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/etcd"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/reconcilers/kubeadmcontrolplane"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/setup"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks/admission"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks/conversion"

	"github.com/kubemend/kubemend/test/rig/capi/program"
)

const (
	controlPlaneName = "cluster-api-kubeadm-control-plane-manager"
	// Defaults of upstream's manager.
	etcdDialTimeout         = 10 * time.Second
	controlPlaneReconciling = 3 * time.Minute
)

func controlPlane(*pflag.FlagSet) func() program.Manager {
	return func() program.Manager {
		scheme := newScheme(controlplanev1beta1.AddToScheme, controlplanev1.AddToScheme, bootstrapv1.AddToScheme)
		return program.Manager{
			Name: controlPlaneName, Scheme: scheme,
			Cache: setup.ManagerCacheOptions(scheme, controlPlaneName, "", program.Resync), Client: setup.ManagerClientOptions(),
			SetUp: setUpControlPlane,
		}
	}
}

func setUpControlPlane(ctx context.Context, mgr ctrl.Manager) error {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return fmt.Errorf("create the client for kubeconfig Secrets: %w", err)
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(controlPlaneName, program.RemoteQPS, program.RemoteBurst),
	}, program.Workers(100))
	if err != nil {
		return fmt.Errorf("set up the connections to the workload clusters: %w", err)
	}
	log, err := logutil.CreateDefaultZapLogger(zapcore.InfoLevel)
	if err != nil {
		return fmt.Errorf("make a logger for etcd's client: %w", err)
	}
	workers := program.Workers(100)
	workers.ReconciliationTimeout = controlPlaneReconciling
	if err := (&kubeadmcontrolplane.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), SecretCachingClient: secrets, ClusterCache: clusters,
		EtcdDialTimeout: etcdDialTimeout, EtcdCallTimeout: etcd.DefaultCallTimeout, EtcdLogger: log,
		RemoteConditionsGracePeriod: program.ConditionsGrace,
	}).SetupWithManager(ctx, mgr, workers); err != nil {
		return fmt.Errorf("set up controller KubeadmControlPlane: %w", err)
	}
	conversion.SetAPIVersionGetter(func(ctx context.Context, gk schema.GroupKind) (string, error) {
		return program.ServedVersion(ctx, mgr.GetClient(), gk)
	})
	return setUpWebhooks(mgr,
		&admission.KubeadmControlPlane{}, &admission.ScaleValidator{Client: mgr.GetClient()}, &admission.KubeadmControlPlaneTemplate{})
}
