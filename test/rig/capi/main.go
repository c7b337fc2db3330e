// Command capi-core runs Cluster API's own core controllers and webhooks for the rig.
//
// The controllers and webhooks are upstream's. Only their setup is ours, because upstream's program cannot bind its webhook server to
// loopback and does not end with the process that started it. See package program.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	addonsv1beta1 "sigs.k8s.io/cluster-api/api/addons/v1beta1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1alpha1 "sigs.k8s.io/cluster-api/api/ipam/v1alpha1"
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	runtimev1alpha1 "sigs.k8s.io/cluster-api/api/runtime/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterclass"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	topologycluster "sigs.k8s.io/cluster-api/core/reconcilers/topology/cluster"
	topologydeployment "sigs.k8s.io/cluster-api/core/reconcilers/topology/machinedeployment"
	topologyset "sigs.k8s.io/cluster-api/core/reconcilers/topology/machineset"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/cluster-api/version"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig/capi/program"
)

const name = "cluster-api-controller-manager"

func main() {
	s := program.Settings{}
	var leaveOut []string
	flags := pflag.NewFlagSet("capi-core", pflag.ExitOnError)
	s.AddFlags(flags)
	flags.StringSliceVar(&leaveOut, "leave-out", nil, "Controllers that shall not run, for example MachineHealthCheck.")
	_ = flags.Parse(os.Args[1:]) // ExitOnError: it never returns an error

	scheme := newScheme()
	program.Main(program.Manager{
		Name: name, Scheme: scheme,
		Cache: setup.ManagerCacheOptions(scheme, name, "", program.Resync), Client: setup.ManagerClientOptions(),
		SetUp: func(ctx context.Context, mgr ctrl.Manager) error { return setUp(ctx, mgr, leaveOut) },
	}, s)
}

func setUp(ctx context.Context, mgr ctrl.Manager, leaveOut []string) error {
	oldest := version.MinimumKubernetesVersion
	if feature.Gates.Enabled(feature.ClusterTopology) {
		oldest = version.MinimumKubernetesVersionClusterTopology
	}
	if err := version.CheckKubernetesVersion(mgr.GetConfig(), oldest); err != nil {
		return fmt.Errorf("check the version of the management cluster: %w", err)
	}
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return fmt.Errorf("set up indexes: %w", err)
	}
	clusters, err := setUpControllers(ctx, mgr, leaveOut)
	if err != nil {
		return err
	}
	return setUpWebhooks(mgr, clusters)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, storagev1.AddToScheme,
		clusterv1beta1.AddToScheme, clusterv1.AddToScheme,
		addonsv1beta1.AddToScheme, addonsv1.AddToScheme,
		runtimev1alpha1.AddToScheme, runtimev1.AddToScheme,
		ipamv1alpha1.AddToScheme, ipamv1beta1.AddToScheme, ipamv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Grace periods, rates and concurrency are upstream's defaults, so that measurements here apply to upstream.
const connectionGrace = 50 * time.Second

// setUpControllers sets up the connections to the workload clusters, and all controllers except those in leaveOut.
func setUpControllers(ctx context.Context, mgr ctrl.Manager, leaveOut []string) (clustercache.ClusterCache, error) {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, fmt.Errorf("create the client for kubeconfig Secrets: %w", err)
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: ownKubeconfigs{secrets},
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(name, program.RemoteQPS, program.RemoteBurst),
	}, program.Workers(100))
	if err != nil {
		return nil, fmt.Errorf("set up the connections to the workload clusters: %w", err)
	}

	known := controllers(mgr, clusters)
	if feature.Gates.Enabled(feature.ClusterTopology) {
		maps.Copy(known, topologyControllers(mgr, clusters))
	}
	for _, kind := range leaveOut {
		if _, ok := known[kind]; !ok {
			return nil, fmt.Errorf("leave out controller %q: there is no such controller", kind)
		}
	}
	for kind, setUp := range known {
		if slices.Contains(leaveOut, kind) {
			continue
		}
		if err := setUp(ctx); err != nil {
			return nil, fmt.Errorf("set up controller %s: %w", kind, err)
		}
	}
	return clusters, nil
}

// ownKubeconfigs reads kubeconfig Secrets, and prefers a kubeconfig that is for core only. In a real management cluster all clients share
// one kubeconfig, whose user has the rights of core. Here kubemend has only its own rights, so that tests notice a missing right.
type ownKubeconfigs struct{ client.Reader }

// ofCore is the key of that kubeconfig in the Secret; see SharedKubeconfigSecret in package rig.
const ofCore = "core"

func (o ownKubeconfigs) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := o.Reader.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	if s, is := obj.(*corev1.Secret); is && s.Data[ofCore] != nil {
		s.Data[secret.KubeconfigDataName] = s.Data[ofCore]
	}
	return nil
}

// controllers returns the controllers of the kinds that a remediation concerns, by kind.
func controllers(mgr ctrl.Manager, clusters clustercache.ClusterCache) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Cluster": func(ctx context.Context) error {
			return (&cluster.Reconciler{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters,
				RemoteConnectionGracePeriod: connectionGrace,
			}).SetupWithManager(ctx, mgr, program.Workers(50))
		},
		"Machine": func(ctx context.Context) error {
			return (&machine.Reconciler{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters,
				RemoteConditionsGracePeriod: program.ConditionsGrace,
			}).SetupWithManager(ctx, mgr, program.Workers(100))
		},
		"MachineSet": func(ctx context.Context) error {
			return (&machineset.Reconciler{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters,
				PreflightChecks: sets.New(clusterv1.MachineSetPreflightCheckAll),
			}).SetupWithManager(ctx, mgr, program.Workers(50))
		},
		"MachineDeployment": func(ctx context.Context) error {
			return (&machinedeployment.Reconciler{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
			}).SetupWithManager(ctx, mgr, program.Workers(50))
		},
		"MachineHealthCheck": func(ctx context.Context) error {
			return (&machinehealthcheck.Reconciler{
				Client: mgr.GetClient(), ClusterCache: clusters,
			}).SetupWithManager(ctx, mgr, program.Workers(50))
		},
	}
}

// topologyControllers returns the controllers that create clusters from ClusterClasses, by kind.
func topologyControllers(mgr ctrl.Manager, clusters clustercache.ClusterCache) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"ClusterClass": func(ctx context.Context) error {
			return (&clusterclass.Reconciler{Client: mgr.GetClient()}).SetupWithManager(ctx, mgr, program.Workers(10))
		},
		"ClusterTopology": func(ctx context.Context) error {
			return (&topologycluster.Reconciler{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters,
			}).SetupWithManager(ctx, mgr, program.Workers(50))
		},
		"MachineDeploymentTopology": func(ctx context.Context) error {
			return (&topologydeployment.Reconciler{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
			}).SetupWithManager(ctx, mgr, program.Workers(25))
		},
		"MachineSetTopology": func(ctx context.Context) error {
			return (&topologyset.Reconciler{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
			}).SetupWithManager(ctx, mgr, program.Workers(25))
		},
	}
}

// setUpWebhooks serves every webhook in core's manifests: without its webhook a kind would refuse all writes.
func setUpWebhooks(mgr ctrl.Manager, clusters admission.ClusterCacheReader) error {
	conversion.SetAPIVersionGetter(func(ctx context.Context, gk schema.GroupKind) (string, error) {
		return program.ServedVersion(ctx, mgr.GetClient(), gk)
	})
	c := mgr.GetClient()
	for _, hook := range []interface{ SetupWebhookWithManager(ctrl.Manager) error }{
		&admission.Cluster{Client: c, ClusterCacheReader: clusters},
		&admission.ClusterClass{Client: c},
		&admission.ClusterResourceSet{},
		&admission.ClusterResourceSetBinding{},
		&admission.ExtensionConfig{},
		&admission.IPAddress{Client: mgr.GetAPIReader()},
		&admission.IPAddressClaim{},
		&admission.Machine{},
		&admission.MachineDeployment{},
		&admission.MachineDrainRule{},
		&admission.MachineHealthCheck{},
		&admission.MachinePool{},
		&admission.MachineSet{},
	} {
		if err := hook.SetupWebhookWithManager(mgr); err != nil {
			return fmt.Errorf("set up webhook %T: %w", hook, err)
		}
	}
	return nil
}
