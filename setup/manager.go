// Package setup sets up the manager: flags, caches, connections and controllers.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/clockerror"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/leftovers"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/migration"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/controllers/process"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/workload"
)

// userAgent is the user agent in requests to API servers.
const userAgent = "kubemend-controller-manager"

// program is a manager with what its features share.
type program struct {
	ctrl.Manager
	o       *Options
	version string
	self    process.Replica
	live    client.Client // reads from the API server
	end     context.CancelCauseFunc
	// discovery lists the kinds that the API server serves.
	discovery *discovery.DiscoveryClient

	server      *clockerror.Server // the API server of the management cluster
	connections workload.Connections
	clusters    *workload.Clusters
	nodes       fence.Nodes // of workload clusters
	services    *crdgate.Reconciler
	records     *records.Records
	ledger      *policy.Ledger
	caches      []records.RequestCache
	nodeCache   client.Reader // of the manager's own cluster; nil without NodeHealthChecks
	checks      *machinehealthcheck.Reconciler
	stepLeft    func(check, node string) bool // nil without NodeHealthChecks
	hosts       *host.Hosts                   // for checks and records
	// starting has the runnables of the service that the CRD gate is starting; nil if it is starting none.
	starting *[]manager.Runnable
	// hostsWatched is true once the controllers of power cycles watch hosts.
	hostsWatched atomic.Bool
}

// writer returns the client that writes as kubemend.
func (p *program) writer() client.Client {
	return client.WithFieldOwner(p.GetClient(), mendv1.FieldOwner)
}

// cached adds a cache of requests for the records. namespace is the only namespace that the cache has; empty for all.
func (p *program) cached(namespace string, cached records.RequestCache) {
	p.caches = append(p.caches, func(ctx context.Context, kind schema.GroupVersionKind, in string) ([]client.Object, bool, error) {
		if namespace != "" && namespace != in {
			return nil, false, nil
		}
		return cached(ctx, kind, in)
	})
}

// Run runs the manager until ctx ends. The options must be valid. version is the release for the manager lease.
func Run(ctx context.Context, version string, o *Options) error {
	self := process.FromEnvironment()
	if !self.InCluster() && !o.teardown { // a teardown of a manager in the cluster must not keep that manager's lease
		o.election.namespace = cmp.Or(o.election.namespace, managerlease.UsualNamespace)
	}
	lock, err := lockOf(self, o)
	if err != nil {
		return err
	}
	server := &clockerror.Server{}
	mgr, err := newManager(server, o, lock, self)
	if err != nil {
		return err
	}
	options := client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}
	live, err := client.New(mgr.GetConfig(), options)
	if err != nil {
		return fmt.Errorf("set up the client that reads past the caches: %w", err)
	}
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("set up discovery: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	p := &program{Manager: mgr, o: o, version: version, self: self, server: server, live: live, end: end, discovery: api}
	if err := p.addChecks(); err != nil {
		return err
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	defer p.connections.Shutdown() // after the controllers have ended
	if err := p.addServices(); err != nil {
		return err
	}
	if o.teardown {
		err = p.addTeardown(lock)
	} else {
		err = p.addControllers(ctx)
	}
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	if cause := context.Cause(ctx); errors.Is(cause, errStoodDown) {
		return fmt.Errorf("run the manager: %w", cause)
	}
	return nil
}

// addControllers adds the controllers of a manager without --teardown.
func (p *program) addControllers(ctx context.Context) error {
	if err := p.addMachineHealthChecks(ctx); err != nil {
		return err
	}
	// The controllers of MachineHealthChecks start with the manager; their service only reports whether the kind is served.
	checks := &crdgate.Service{CRD: crdgate.MachineCheckCRD, Choice: crdgate.Auto, Start: func(context.Context) error { return nil }}
	p.services.Services = append(p.services.Services, checks, p.recordService(), p.policyService())
	return errors.Join(p.announce(), p.addGate(), migration.SetUp(ctx, p, p.o.skipMigration))
}

// addServices sets up the records, which all controllers write, and the controllers of hosts and of NodeHealthChecks for the CRD gate.
func (p *program) addServices() error {
	p.services = &crdgate.Reconciler{Client: p.GetClient(), Live: p.GetAPIReader()}
	p.records = &records.Records{Client: p.writer(), Live: p.GetAPIReader(), Installed: p.services.Installed, Clock: clock.RealClock{}}
	p.hosts = p.newHosts()
	p.records.Hosts = p.hosts
	p.ledger = &policy.Ledger{Clock: clock.RealClock{}, Installed: func(ctx context.Context) bool {
		installed, err := p.services.Installed(ctx, crdgate.PolicyCRD)
		return installed || err != nil
	}}
	hosts, err := p.hostRemediationServices() // also if the feature gate is off, to end what was begun before
	if err != nil {
		return err
	}
	nodes := nodeService(p.o)
	p.services.Services = hosts
	if p.o.gates.Enabled(nodeHealthCheck) {
		if err := p.setUpNodeHealthChecks(nodes); err != nil {
			return err
		}
	}
	p.services.Services = append(p.services.Services, nodes)
	if p.o.webhooks.CertDir != "" {
		// A rollout must wait for the webhooks, because without them the API server cannot convert old versions of kubemend's kinds.
		if err := p.AddReadyzCheck("webhooks", p.GetWebhookServer().StartedChecker()); err != nil {
			return fmt.Errorf("set up health checks: %w", err)
		}
	}
	return nil
}

func (p *program) addChecks() error {
	kinds := []client.Object{&clusterv1.MachineHealthCheck{}, &clusterv1.Machine{}}
	if p.o.teardown {
		kinds = nil // a teardown reads them from the API server
	}
	filled := process.Filled(p.GetCache(), kinds...)
	if err := errors.Join(p.AddHealthzCheck("ping", healthz.Ping), p.AddReadyzCheck("caches", filled)); err != nil {
		return fmt.Errorf("set up health checks: %w", err)
	}
	return nil
}

// RBAC for leader election and the manager lease in the manager's namespace, and for authentication at the metrics endpoint.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kubemend-system,roleName=kubemend-leader-election,verbs=get;create;update;patch
// +kubebuilder:rbac:groups=core,resources=events,namespace=kubemend-system,roleName=kubemend-leader-election,verbs=create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

func newManager(server *clockerror.Server, o *Options, lock *leftovers.Lock, self process.Replica) (ctrl.Manager, error) {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w", err)
	}
	var custom resourcelock.Interface
	if lock != nil {
		custom = lock // a nil *Lock would not be a nil interface
	}
	cfg.QPS, cfg.Burst, cfg.UserAgent = o.qps, o.burst, userAgent
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return server.Around(next, clock.RealClock{}) })
	cfg.WarningHandler = apiwarnings.DefaultHandler(klog.Background().WithName("API Server Warning"))

	diagnostics, err := o.diagnosticsServer()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), clusterv1.AddToScheme(scheme),
		controlplanev1.AddToScheme(scheme), bmov1alpha1.AddToScheme(scheme), infrav1beta1.AddToScheme(scheme), infrav1.AddToScheme(scheme),
		mendv1.AddToScheme(scheme), nhcv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{
			UsePriorityQueue:   ptr.To(true),
			SkipNameValidation: &o.SkipNameValidation,
			CacheSyncTimeout:   5 * time.Minute, // for thousands of Machines over a slow link
			EnableWarmup:       ptr.To(o.gates.Enabled(warmStandby)),
		},
		Cache:    cacheOptions(o.namespace, o.policies(self)),
		NewCache: newCache,
		// Secrets are cached only for ClusterCache. Unstructured requests and templates are read from the API server by default.
		Client:                 client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                *diagnostics,
		WebhookServer:          process.Webhooks(webhook.NewServer(o.webhooks)),
		HealthProbeBindAddress: o.healthAddr,
		PprofBindAddress:       o.profilerAddr,
		LeaderElection:         o.election.enabled,
		LeaderElectionID:       managerlease.LeaderLeaseName,

		LeaderElectionResourceLockInterface: custom,
		LeaderElectionNamespace:             o.election.namespace,
		LeaderElectionResourceLock:          resourcelock.LeasesResourceLock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &o.election.leaseDuration,
		RenewDeadline:                       &o.election.renewDeadline,
		RetryPeriod:                         &o.election.retryPeriod,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	return mgr, nil
}

// cacheOptions keeps the caches small: of Secrets only those of Clusters, of Machines only the fields that are read. If namespace is set,
// RemediationPolicies and RemediationOverrides are cached in the namespace policies too.
func cacheOptions(namespace, policies string) cache.Options {
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
		both := cache.ByObject{Namespaces: map[string]cache.Config{namespace: {}, policies: {}}}
		o.ByObject[&mendv1.RemediationPolicy{}], o.ByObject[&mendv1.RemediationOverride{}] = both, both
	}
	return o
}

// lockOf returns the lock of a manager that tears down; nil without --teardown or without leader election.
func lockOf(self process.Replica, o *Options) (*leftovers.Lock, error) {
	if !o.teardown || !o.election.enabled {
		return nil, nil
	}
	lease := o.leaderLease(self.Namespace)
	if lease.Namespace == "" {
		return nil, errors.New("set up leader election: --leader-elect-namespace has to be given outside of a cluster")
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w", err)
	}
	identity, err := process.Unique()
	if err != nil {
		return nil, fmt.Errorf("set up leader election: %w", err)
	}
	return leftovers.NewLock(cfg, lease, identity, o.election.leaseDuration, o.election.renewDeadline/2)
}

// addTeardown makes the manager remove what kubemend wrote. Of its controllers, only those of hosts and of NodeHealthChecks run.
func (p *program) addTeardown(lock *leftovers.Lock) error {
	if err := p.announce(); err != nil {
		return err
	}
	uninstaller := &leftovers.Teardown{
		Remover: leftovers.Remover{
			Client: p.writer(), Live: p.GetAPIReader(), Recorder: p.GetEventRecorder("kubemend"),
			Nodes: fence.Nodes{Clusters: p.connections},
		},
		Clusters: p.connections, Discovery: p.discovery, Serves: p.services.Serves, Clock: clock.RealClock{},
		Namespace: p.o.namespace, WatchFilterValue: p.o.watchFilter, LeaseNamespace: p.o.nodeHealthChecks.LeaseNamespace,
		Lock: lock, Elected: p.Elected(), Begin: p.addGate,
	}
	if lock != nil {
		uninstaller.Pod = p.self.Owner(lock.Lease.Namespace)
	}
	if err := errors.Join(p.Add(uninstaller), p.AddReadyzCheck("teardown", uninstaller.Ready)); err != nil {
		return fmt.Errorf("set up the teardown: %w", err)
	}
	return nil
}

// announce makes the manager keep the manager lease while it acts. Without a namespace for the lease, it only logs that there is none.
func (p *program) announce() error {
	namespace := p.o.leaderLease(p.self.Namespace).Namespace
	if namespace == "" {
		klog.Background().Info("Not keeping a manager lease: set --leader-elect-namespace to keep one", "lease", managerlease.LeaseName)
		return nil
	}
	identity, err := p.self.Identity()
	if err != nil {
		return fmt.Errorf("set up the manager lease: %w", err)
	}
	changed := make(chan struct{}, 1)
	p.services.Changed = func() {
		select {
		case changed <- struct{}{}:
		default: // a value is waiting already
		}
	}
	started := metav1.NewTime(clock.RealClock{}.Now())
	keeper := &managerlease.Keeper{
		Client: client.WithFieldOwner(p.live, mendv1.FieldOwner), Clock: clock.RealClock{},
		Namespace: namespace, Identity: identity, Elected: p.o.election.enabled,
		Changed: changed,
		State: func() managerlease.Announcement {
			state := announcement(p.services.Kinds(), started, p.self, p.version, p.o)
			state.ClockAheadSeconds = int64(p.server.Ahead().Seconds())
			return state
		},
	}
	if p.o.teardown {
		keeper.Owner = p.self.Owner(namespace)
	}
	if err := p.Add(keeper); err != nil {
		return fmt.Errorf("set up the manager lease: %w", err)
	}
	return nil
}

// announcement returns the content of the manager lease.
func announcement(
	kinds []managerlease.Kind, started metav1.Time, self process.Replica, version string, o *Options,
) managerlease.Announcement {
	return managerlease.Announcement{
		Version: version, Started: started, Unclaimed: string(o.machineHealthChecks.Unclaimed), Namespace: o.namespace,
		WatchFilter: o.watchFilter, NodeLeaseNamespace: o.nodeHealthChecks.LeaseNamespace, Teardown: o.teardown, Kinds: kinds,
		Outside: !self.InCluster(), PolicyNamespace: o.policies(self),
	}
}
