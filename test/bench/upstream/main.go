// Command upstream runs Cluster API's own MachineHealthCheck reconciler, and what it cannot do without, for the benchmark.
//
// The reconciler and its options are those of Cluster API's core, unchanged; what core runs beside it is left out, so
// that what is measured of this process is owed to MachineHealthChecks alone. It takes the flags of core's that a
// manager is started with, and --feature-gates.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/flags"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// The defaults of core's flags.
const (
	name               = "cluster-api-controller-manager"
	qps                = 100
	burst              = 200
	clusterQPS         = 20
	clusterBurst       = 30
	checkConcurrency   = 50
	clusterConcurrency = 100
	syncPeriod         = 10 * time.Minute
	cacheSyncTimeout   = 5 * time.Minute
)

func main() {
	var diagnostics flags.ManagerOptions
	fs := pflag.CommandLine
	healthAddr := fs.String("health-addr", ":9440", "Address of the endpoints /healthz and /readyz.")
	flags.AddManagerOptions(fs, &diagnostics)
	feature.MutableGates.AddFlag(fs)
	fs.AddGoFlagSet(flag.CommandLine) // --kubeconfig
	pflag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *healthAddr, diagnostics); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

// run runs the manager until ctx ends.
func run(ctx context.Context, healthAddr string, diagnostics flags.ManagerOptions) error {
	mgr, err := newManager(healthAddr, diagnostics)
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.AddReadyzCheck("ping", healthz.Ping), index.ByMachineNode(ctx, mgr)); err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return fmt.Errorf("set up the cache of kubeconfigs: %w", err)
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(name, clusterQPS, clusterBurst),
	}, controller.Options{MaxConcurrentReconciles: clusterConcurrency})
	if err != nil {
		return fmt.Errorf("set up the connections to workload clusters: %w", err)
	}
	checks := &machinehealthcheck.Reconciler{Client: mgr.GetClient(), ClusterCache: clusters}
	if err := checks.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: checkConcurrency}); err != nil {
		return fmt.Errorf("set up the MachineHealthCheck controller: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

func newManager(healthAddr string, diagnostics flags.ManagerOptions) (ctrl.Manager, error) {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w", err)
	}
	cfg.QPS, cfg.Burst, cfg.UserAgent = qps, burst, remote.DefaultClusterAPIUserAgent(name)
	_, metrics, err := flags.GetManagerOptions(diagnostics)
	if err != nil {
		return nil, fmt.Errorf("read the flags of the diagnostics endpoint: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), clusterv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{
			UsePriorityQueue: ptr.To(feature.Gates.Enabled(feature.PriorityQueue)),
			CacheSyncTimeout: cacheSyncTimeout,
		},
		Cache:                  setup.ManagerCacheOptions(scheme, name, "", syncPeriod),
		Client:                 setup.ManagerClientOptions(),
		Metrics:                *metrics,
		HealthProbeBindAddress: healthAddr,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	return mgr, nil
}
