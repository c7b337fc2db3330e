package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/test/infrastructure/container"
	infrav1beta1 "sigs.k8s.io/cluster-api/test/infrastructure/docker/api/v1beta1"
	infrav1 "sigs.k8s.io/cluster-api/test/infrastructure/docker/api/v1beta2"
	"sigs.k8s.io/cluster-api/test/infrastructure/docker/controllers"
	"sigs.k8s.io/cluster-api/test/infrastructure/docker/webhooks"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"

	"github.com/kubemend/kubemend/test/rig/capi/program"
)

const (
	inMemoryName = "cluster-api-docker-controller-manager"
	// machineReconciling is upstream's timeout, which is chosen for containers.
	machineReconciling = 5 * time.Minute
)

// ports are the ports of the simulated API servers, one for each cluster. The port before them is that of upstream's debugging page.
type ports struct{ first, number int32 }

func inMemory(flags *pflag.FlagSet) func() program.Manager {
	p := ports{}
	flags.Int32Var(&p.first, "first-port", 20000,
		"The port of the first simulated API server on 127.0.0.1; the one before it has a page for debugging.")
	flags.Int32Var(&p.number, "ports", 100, "How many simulated API servers there may be.")
	return func() program.Manager {
		return program.Manager{
			Name: inMemoryName, Scheme: newScheme(infrav1beta1.AddToScheme, infrav1.AddToScheme),
			Cache: inMemoryCache(), Client: client.Options{Cache: &client.CacheOptions{
				DisableFor: []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}, Unstructured: true,
			}},
			SetUp: func(ctx context.Context, mgr ctrl.Manager) error { return setUpInMemory(ctx, mgr, p) },
		}
	}
}

// inMemoryCache has upstream's options: it caches only the Secrets of clusters.
func inMemoryCache() cache.Options {
	ofClusters, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	utilruntime.Must(err)
	return cache.Options{
		SyncPeriod: ptr.To(program.Resync),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Label: labels.NewSelector().Add(*ofClusters)},
		},
	}
}

// setUpInMemory sets up the controllers of the kinds Dev.... The kinds Docker... get only webhooks, because without them the API server
// would refuse all writes.
func setUpInMemory(ctx context.Context, mgr ctrl.Manager, p ports) error {
	secrets, err := client.New(mgr.GetConfig(),
		client.Options{HTTPClient: mgr.GetHTTPClient(), Cache: &client.CacheOptions{Reader: mgr.GetCache()}})
	if err != nil {
		return fmt.Errorf("create the client for kubeconfig Secrets: %w", err)
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Client: clustercache.ClientOptions{
			QPS: program.RemoteQPS, Burst: program.RemoteBurst, UserAgent: remote.DefaultClusterAPIUserAgent(inMemoryName),
			Cache: clustercache.ClientCacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}},
		},
	}, program.Workers(100))
	if err != nil {
		return fmt.Errorf("set up the connections to the workload clusters: %w", err)
	}
	docker, err := container.NewDockerClient() // it would connect on first use, and is never used
	if err != nil {
		return fmt.Errorf("make a client for containers: %w", err)
	}
	simulation := inmemoryruntime.NewManager(simulatedKinds())
	if err := simulation.Start(ctx); err != nil {
		return fmt.Errorf("start the simulation: %w", err)
	}
	servers, err := inmemoryserver.NewWorkloadClustersMux(simulation, program.Loopback,
		inmemoryserver.CustomPorts{DebugPort: p.first - 1, MinPort: p.first, MaxPort: p.first + p.number - 1})
	if err != nil {
		return fmt.Errorf("make the simulated API servers: %w", err)
	}
	machineWorkers := program.Workers(100)
	machineWorkers.ReconciliationTimeout = machineReconciling
	if err := setUpControllers(ctx, map[string]func(context.Context) error{
		"DevMachine": func(ctx context.Context) error {
			return (&controllers.DevMachineReconciler{
				Client: mgr.GetClient(), ContainerRuntime: docker, ClusterCache: clusters, InMemoryManager: simulation,
				APIServerMux: servers,
			}).SetupWithManager(ctx, mgr, machineWorkers)
		},
		"DevCluster": func(ctx context.Context) error {
			return (&controllers.DevClusterReconciler{
				Client: mgr.GetClient(), ContainerRuntime: docker, InMemoryManager: simulation, APIServerMux: servers,
			}).SetupWithManager(ctx, mgr, program.Workers(100))
		},
		"DevMachineTemplate": func(ctx context.Context) error {
			return (&controllers.DevMachineTemplateReconciler{
				Client: mgr.GetClient(), ContainerRuntime: docker,
			}).SetupWithManager(ctx, mgr, program.Workers(10))
		},
	}); err != nil {
		return err
	}
	return setUpWebhooks(mgr,
		&webhooks.DockerMachine{}, &webhooks.DockerMachineTemplate{}, &webhooks.DockerCluster{}, &webhooks.DockerClusterTemplate{},
		&webhooks.DevMachine{}, &webhooks.DevMachineTemplate{}, &webhooks.DevCluster{}, &webhooks.DevClusterTemplate{})
}

// simulatedKinds returns the scheme of the simulated clusters, and of the machines below them.
func simulatedKinds() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		cloudv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme,
		apiextensionsv1.AddToScheme, policyv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
