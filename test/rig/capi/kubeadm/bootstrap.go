package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/reconcilers/kubeadmconfig"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks/admission"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/kubemend/kubemend/test/rig/capi/program"
)

const bootstrapName = "cluster-api-kubeadm-bootstrap-manager"

func bootstrap(*pflag.FlagSet) func() program.Manager {
	return func() program.Manager {
		scheme := newScheme(bootstrapv1beta1.AddToScheme, bootstrapv1.AddToScheme)
		return program.Manager{
			Name: bootstrapName, Scheme: scheme,
			Cache: setup.ManagerCacheOptions(scheme, bootstrapName, "", program.Resync), Client: setup.ManagerClientOptions(),
			SetUp: setUpBootstrap,
		}
	}
}

func setUpBootstrap(ctx context.Context, mgr ctrl.Manager) error {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return fmt.Errorf("create the client for kubeconfig Secrets: %w", err)
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(bootstrapName, program.RemoteQPS, program.RemoteBurst),
	}, program.Workers(100))
	if err != nil {
		return fmt.Errorf("set up the connections to the workload clusters: %w", err)
	}
	if err := (&kubeadmconfig.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), SecretCachingClient: secrets, ClusterCache: clusters,
		TokenTTL: kubeadmconfig.DefaultTokenTTL,
	}).SetupWithManager(ctx, mgr, program.Workers(100)); err != nil {
		return fmt.Errorf("set up controller KubeadmConfig: %w", err)
	}
	return setUpWebhooks(mgr, &admission.KubeadmConfig{}, &admission.KubeadmConfigTemplate{})
}
