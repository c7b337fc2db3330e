// The manager of kubemend: flags, caches, controllers. It decides nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	capiflags "sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	_ "github.com/kubemend/kubemend/controllers/console" // --logging-format=console
	"github.com/kubemend/kubemend/controllers/leaving"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/migration"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/serving"
	"github.com/kubemend/kubemend/controllers/workload"
)

// version is set by the linker.
var version = "dev"

// userAgent is the name under which API servers see the manager.
const userAgent = "kubemend-controller-manager"

// warmStandby lets a replica that is not the leader fill its caches, so that it takes over without reading everything first.
const warmStandby featuregate.Feature = "WarmStandby"

// hostRemediation power-cycles bare-metal hosts, for Metal3Remediations and HostRemediations.
const hostRemediation featuregate.Feature = "HostRemediation"

// nodeHealthCheck watches the nodes of the manager's own cluster, for NodeHealthChecks.
const nodeHealthCheck featuregate.Feature = "NodeHealthCheck"

// options are what the flags set.
type options struct {
	leaderElection   bool
	leaseNamespace   string
	leaseDuration    time.Duration
	renewDeadline    time.Duration
	retryPeriod      time.Duration
	namespace        string
	watchFilter      string
	healthAddr       string
	profilerAddr     string
	syncPeriod       time.Duration
	qps              float32
	burst            int
	clusterQPS       float32
	clusterBurst     int
	checkConcurrency int
	cacheConcurrency int
	unclaimed        machinehealthcheck.Unclaimed

	metal3Remediations     serving.Choice
	fencing                fence.Mode
	orphanGrace            time.Duration
	remediationConcurrency int

	nodeHealthChecks     serving.Choice
	nodeCheckConcurrency int
	nodeLeaseNamespace   string
	nodeGrace            time.Duration
	defaultNodeCheck     nodehealthcheck.Template

	skipMigration []string
	leave         bool

	webhookHost    string
	webhookPort    int
	webhookCertDir string

	gates       featuregate.MutableFeatureGate
	diagnostics capiflags.ManagerOptions
	logs        *logs.Options
}

func defaults() *options {
	gates := featuregate.NewFeatureGate()
	// Adding to a gate that is new and not yet frozen cannot fail.
	_ = gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		warmStandby:     {Default: false, PreRelease: featuregate.Alpha},
		hostRemediation: {Default: true, PreRelease: featuregate.Beta},
		nodeHealthCheck: {Default: true, PreRelease: featuregate.Beta},
	})
	return &options{unclaimed: machinehealthcheck.Observe, metal3Remediations: serving.Auto, nodeHealthChecks: serving.Auto, fencing: fence.Auto,
		gates: gates, logs: logs.NewOptions()}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.Var(&o.unclaimed, "unclaimed-machine-health-checks",
		"What to do with a MachineHealthCheck that is not claimed with the annotation cluster.x-k8s.io/paused: kubemend. "+
			"observe: judge, export metrics, write nothing. act: remediate; only where Cluster API core leaves MachineHealthChecks alone. ignore: do not look.")
	fs.Var(&o.metal3Remediations, "metal3-remediations",
		"Whether to act on Metal3Remediations. auto: unless their CRD belongs to CAPM3, or CAPM3's controller runs, which acts on them. "+
			"on, off: whatever the CRD says. "+
			"HostRemediations are acted on wherever their CRD is installed.")
	fs.Var(&o.fencing, "fencing",
		"How the workload of a node whose host is off is made to move. taint: by the out-of-service taint. delete: by deleting the node. "+
			"auto: by the taint where the workload cluster is of v1.28 or later, else by deleting.")
	fs.DurationVar(&o.orphanGrace, "orphan-grace-period", 5*time.Minute,
		"After how long an annotation that holds a BareMetalHost off is removed if its remediation does not exist.")
	fs.IntVar(&o.remediationConcurrency, "hostremediation-concurrency", 20, "Number of remediations of hosts, of each kind, to process at the same time.")
	fs.Var(&o.nodeHealthChecks, "node-health-checks",
		"Whether to act on NodeHealthChecks. auto: unless their CRD was installed by the Operator Lifecycle Manager, with whose operator they belong, "+
			"or medik8s' operator runs. on, off: whatever the CRD says. They belong to no namespace: of several managers in one cluster, all but one need off.")
	fs.IntVar(&o.nodeCheckConcurrency, "nodehealthcheck-concurrency", 10, "Number of NodeHealthChecks to process at the same time.")
	fs.StringVar(&o.nodeLeaseNamespace, "node-lease-namespace", nhcv1.DefaultLeaseNamespace,
		"Namespace of the leases by which NodeHealthChecks and node maintenance keep out of each other's way. It is created if it is missing.")
	fs.DurationVar(&o.nodeGrace, "node-monitor-grace-period", 50*time.Second,
		"How long kubelets have to report after the manager was started, or became the leader, or the API server was out of reach, before a "+
			"NodeHealthCheck begins a remediation. What the flag of the kube-controller-manager of this name says, whose default it has.")
	fs.Var(&o.defaultNodeCheck, "default-node-health-check-template",
		"Remediation template, as Kind.version.group/namespace/name, of the NodeHealthCheck "+nodehealthcheck.DefaultName+
			", which is made at start if there is none at all. If empty, none is made.")
	fs.StringSliceVar(&o.skipMigration, "skip-crd-migration-phases", nil,
		"What not to do when a release stores a kind that kubemend has installed in another version. StorageVersionMigration: store all objects anew. "+
			"CleanupManagedFields: forget who wrote fields in versions that are gone.")
	fs.BoolVar(&o.leave, "leave", false,
		"Do nothing but to take back everything of kubemend's, so that it can be removed: docs/uninstall.md. A replica is ready when nothing is left.")
	fs.StringVar(&o.webhookHost, "webhook-host", "", "Address on which the webhooks listen. If empty, all of the machine or pod.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443,
		"Port of the webhooks: conversion of Metal3Remediations, defaults of templates, validation of NodeHealthChecks.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "", "Folder of the webhooks' certificate, tls.crt and tls.key. If empty, no webhooks are served.")
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch for cluster-api objects. If empty, all namespaces are watched.")
	fs.StringVar(&o.watchFilter, "watch-filter", "",
		"Value of the label "+clusterv1.WatchLabel+" that cluster-api objects must have to be looked at. If empty, all are.")
	fs.IntVar(&o.checkConcurrency, "machinehealthcheck-concurrency", 50, "Number of MachineHealthChecks to process at the same time.")
	fs.IntVar(&o.cacheConcurrency, "clustercache-concurrency", 100, "Number of workload clusters to connect to, or probe, at the same time.")
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute,
		"After how long a MachineHealthCheck or a NodeHealthCheck is looked at although nothing happened.")

	fs.Float32Var(&o.qps, "kube-api-qps", 1000, "Maximum requests per second to the management cluster.")
	fs.IntVar(&o.burst, "kube-api-burst", 2000, "Maximum requests to the management cluster in one burst.")
	fs.Float32Var(&o.clusterQPS, "clustercache-client-qps", 100, "Maximum requests per second to each workload cluster.")
	fs.IntVar(&o.clusterBurst, "clustercache-client-burst", 200, "Maximum requests to each workload cluster in one burst.")

	fs.BoolVar(&o.leaderElection, "leader-elect", false, "Let only one of several replicas act at a time.")
	fs.StringVar(&o.leaseNamespace, "leader-elect-namespace", "",
		"Namespace of the lease by which the replicas agree, and of the one that says that a manager runs. "+
			"If empty, that of the pod; outside of a cluster it has to be given.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long others wait before they take over from a silent leader.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long a leader that cannot renew its lease goes on trying.")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "How long to wait between tries to take or renew the lease.")

	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of the endpoints /healthz and /readyz.")
	fs.StringVar(&o.profilerAddr, "profiler-address", "", "Address of the pprof profiler, such as localhost:6060. If empty, there is none.")
	o.gates.AddFlag(fs)
	capiflags.AddManagerOptions(fs, &o.diagnostics)
	logsv1.AddFlags(o.logs, fs)
}

func main() {
	o := defaults()
	fs := pflag.CommandLine
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	o.addFlags(fs)
	fs.AddGoFlagSet(flag.CommandLine) // --kubeconfig
	pflag.Parse()
	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		fmt.Fprintln(os.Stderr, "kubemend:", err)
		os.Exit(1)
	}
}

// run runs the manager until ctx ends.
func run(ctx context.Context, o *options) error {
	if args := pflag.Args(); len(args) > 0 {
		return fmt.Errorf("unexpected arguments %q: all settings are flags", strings.Join(args, " "))
	}
	if err := logsv1.ValidateAndApply(o.logs, nil); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	ctrl.SetLogger(klog.Background())
	klog.Background().Info("Starting kubemend", "version", version)

	lock, err := lockOf(o)
	if err != nil {
		return err
	}
	mgr, err := newManager(o, lock)
	if err != nil {
		return err
	}
	if err := addChecks(mgr); err != nil {
		return err
	}
	cc, clusters, err := connect(ctx, mgr, o)
	if err != nil {
		return err
	}
	if o.leave {
		return leave(ctx, mgr, lock, cc, clusters, o)
	}
	services, err := servicesOf(mgr, cc, clusters, o)
	if err != nil {
		return err
	}
	if err := addMachineHealthChecks(ctx, mgr, cc, clusters, services, o); err != nil {
		return err
	}
	if err := errors.Join(announce(mgr, services, o), services.SetupWithManager(mgr)); err != nil {
		return err
	}
	if err := migration.SetUp(ctx, mgr, o.skipMigration); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

// servicesOf are the controllers that start when their kinds are there and free.
func servicesOf(mgr ctrl.Manager, cc clustercache.ClusterCache, clusters *workload.Clusters, o *options) (*serving.Reconciler, error) {
	services := &serving.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	added, err := hostRemediationServices(mgr, cc, clusters, o) // also if the gate is closed: what was begun before is ended
	if err != nil {
		return nil, err
	}
	services.Services = append(services.Services, added...)
	if o.gates.Enabled(nodeHealthCheck) {
		added, err := nodeHealthService(mgr, services, o)
		if err != nil {
			return nil, err
		}
		services.Services = append(services.Services, added)
	}
	if o.webhookCertDir != "" {
		// Who rolls the manager out goes by this: the API server refuses old versions of our kinds while nobody converts them.
		if err := mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()); err != nil {
			return nil, fmt.Errorf("set up health checks: %w", err)
		}
	}
	return services, nil
}

// RBAC for replicas that elect a leader in their own namespace, tell who it is, and announce it; and for those who ask for metrics to be known.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kubemend-system,roleName=kubemend-leader-election,verbs=get;create;update;patch
// +kubebuilder:rbac:groups=core,resources=events,namespace=kubemend-system,roleName=kubemend-leader-election,verbs=create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

func newManager(o *options, lock *leaving.Lock) (ctrl.Manager, error) {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w", err)
	}
	var custom resourcelock.Interface
	if lock != nil {
		custom = lock // else it stays nil, and not a nil lock
	}
	cfg.QPS, cfg.Burst, cfg.UserAgent = o.qps, o.burst, userAgent
	cfg.WarningHandler = apiwarnings.DefaultHandler(klog.Background().WithName("API Server Warning"))

	_, diagnostics, err := capiflags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return nil, fmt.Errorf("read the flags of the diagnostics endpoint: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), clusterv1.AddToScheme(scheme),
		remediationKinds(scheme), nhcv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{
			UsePriorityQueue: ptr.To(true),
			CacheSyncTimeout: 5 * time.Minute, // thousands of machines over a slow link
			EnableWarmup:     ptr.To(o.gates.Enabled(warmStandby)),
		},
		Cache: cacheOptions(o.namespace),
		// Requests and templates are read live when they are read whole; Secrets are nobody's business but ClusterCache's.
		Client:                 client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                *diagnostics,
		WebhookServer:          webhook.NewServer(webhook.Options{Host: o.webhookHost, Port: o.webhookPort, CertDir: o.webhookCertDir}),
		HealthProbeBindAddress: o.healthAddr,
		PprofBindAddress:       o.profilerAddr,
		LeaderElection:         o.leaderElection,
		LeaderElectionID:       leaderLease,

		LeaderElectionResourceLockInterface: custom,
		LeaderElectionNamespace:             o.leaseNamespace,
		LeaderElectionResourceLock:          resourcelock.LeasesResourceLock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &o.leaseDuration,
		RenewDeadline:                       &o.renewDeadline,
		RetryPeriod:                         &o.retryPeriod,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	return mgr, nil
}

// cacheOptions keeps the caches small: of Secrets only kubeconfigs, of machines only what is judged.
func cacheOptions(namespace string) cache.Options {
	named, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	o := cache.Options{
		DefaultTransform: slim,
		ByObject: map[client.Object]cache.ByObject{
			&clusterv1.Machine{}: {Transform: machinehealthcheck.SlimMachine},
			&corev1.Secret{}:     {Label: labels.NewSelector().Add(*named), Transform: workload.SlimSecret},
		},
	}
	if namespace != "" {
		o.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	return o
}

func addChecks(mgr ctrl.Manager) error {
	var once atomic.Bool // kinds of requests that are watched later may take their time
	synced := func(req *http.Request) error {
		if once.Load() {
			return nil
		}
		ctx, cancel := context.WithTimeout(req.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not filled yet")
		}
		once.Store(true)
		return nil
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced)); err != nil {
		return fmt.Errorf("set up health checks: %w", err)
	}
	return nil
}

// RBAC for ClusterCache. Of Secrets it needs kubeconfigs alone, but rules know neither a label nor a part of a name. See docs/rights.md.
// +kubebuilder:rbac:groups=core,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch

// connect sets up the connections to workload clusters.
func connect(ctx context.Context, mgr ctrl.Manager, o *options) (clustercache.ClusterCache, *workload.Clusters, error) {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, nil, fmt.Errorf("set up the cache of kubeconfigs: %w", err)
	}
	kubeconfigs := &workload.Kubeconfigs{Reader: secrets, Tell: workload.TellCluster(mgr.GetClient(), mgr.GetEventRecorder("ClusterCache"))}
	cc, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     kubeconfigs,
		WatchFilterValue: o.watchFilter,
		Cache: clustercache.CacheOptions{
			DefaultTransform: machinehealthcheck.SlimMetadata,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: workload.SlimNode}, &storagev1.VolumeAttachment{}: {Transform: fence.SlimAttachment},
			},
		},
		Client: clustercache.ClientOptions{QPS: o.clusterQPS, Burst: o.clusterBurst, UserAgent: userAgent},
	}, controller.Options{MaxConcurrentReconciles: o.cacheConcurrency})
	if err != nil {
		return nil, nil, fmt.Errorf("set up the connections to workload clusters: %w", err)
	}
	clusters := workload.NewClusters(cc)
	clusters.Kubeconfigs = kubeconfigs
	err = clusters.ForgetDeleted(ctx, mgr.GetCache())
	return cc, clusters, err
}
