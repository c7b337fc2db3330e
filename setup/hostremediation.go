package setup

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/hostremediation/admission"
	"github.com/kubemend/kubemend/controllers/leftovers"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// hostRemediationServices returns the services that power-cycle hosts and release orphaned hosts, for the CRD gate.
func (p *program) hostRemediationServices() ([]*crdgate.Service, error) {
	verified := p.connections
	verified.Verify = p.clusters.Verify
	p.nodes = fence.Nodes{Clusters: verified}
	if p.o.webhooks.CertDir != "" {
		if err := admission.SetUp(p); err != nil {
			return nil, err
		}
	}
	writer := p.writer()
	hosts, recorder := &host.Hosts{Client: writer, Live: p.GetAPIReader()}, p.GetEventRecorder("kubemend")
	gate := &begin.Gate{Clock: clock.RealClock{}}
	// If its service is Off, a reconciler starts no remediation, and only ends those that were begun.
	reconciler := func(kind remediation.Kind, s *crdgate.Service) *hostremediation.Reconciler {
		return &hostremediation.Reconciler{
			Kind: kind, Installed: p.installed, Client: writer, Live: p.GetAPIReader(),
			Hosts: hosts, Clusters: p.clusters, Nodes: p.nodes, Gate: gate, Ledger: p.ledger, Records: p.records,
			Recorder: recorder, Clock: clock.RealClock{}, WatchFilterValue: p.o.watchFilter, Verify: p.clusters.Verify,
			Finds: func(check types.NamespacedName, machine types.UID) (healthy, known bool) {
				if p.checks == nil { // in a teardown
					return false, false
				}
				return p.checks.Finds(check, machine)
			},
			Reader: func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
				return verified.GetUncachedClient(ctx, cluster)
			},
			Self: p.here(), Teardown: p.o.teardown || s.Choice == crdgate.Off, Off: s.Choice == crdgate.Off,
		}
	}
	metal3, own, cleanup := hostServices(p.o)
	theirs, ours := reconciler(remediation.Metal3, metal3), reconciler(remediation.Own, own)
	underWay := &hostremediation.UnderWay{Clock: clock.RealClock{}, Reconcilers: []*hostremediation.Reconciler{theirs, ours}}
	if err := metrics.Registry.Register(underWay); err != nil {
		return nil, fmt.Errorf("export the remediations that are under way: %w", err)
	}
	p.cached(p.o.namespace, theirs.Cached)
	p.cached(p.o.namespace, ours.Cached)
	metal3.Start, metal3.Serve = p.start(theirs), theirs.Serve
	own.Start = p.start(ours)
	cleanup.Start = func(context.Context) error { return p.sweep(hosts, recorder) }
	return []*crdgate.Service{metal3, own, cleanup}, nil
}

// hostServices returns these services as the flags configure them. If the feature gate is off, they only end what was begun before.
func hostServices(o *Options) (metal3, own, cleanup *crdgate.Service) {
	metal3, own, cleanup = crdgate.Metal3Remediations(o.metal3Remediations), crdgate.HostRemediations(),
		&crdgate.Service{CRD: crdgate.HostCRD, Choice: crdgate.Auto} // releases the hosts that no remediation keeps powered off any more
	for _, s := range []*crdgate.Service{metal3, own, cleanup} {
		s.Role, s.Rights = "kubemend-hosts", []authorizationv1.ResourceAttributes{
			{Verb: "patch", Group: "metal3.io", Resource: "baremetalhosts", Namespace: o.namespace}}
		if !o.gates.Enabled(hostRemediation) && !o.teardown {
			s.Releases, s.Choice, s.Gate = s.Choice, crdgate.Off, hostRemediation
		}
	}
	if o.metal3Remediations == crdgate.Off {
		metal3.Releases = crdgate.Auto
	}
	return metal3, own, cleanup
}

func (p *program) installed() ([]remediation.Kind, error) {
	return remediation.InstalledKinds(p.GetRESTMapper())
}

func (p *program) start(r *hostremediation.Reconciler) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := p.GetRESTMapper().RESTMapping(r.Kind.GroupKind(), r.Kind.Version); err != nil {
			return fmt.Errorf("find version %s of %s: %w", r.Kind.Version, r.Kind.Kind, err)
		}
		options := controller.Options{MaxConcurrentReconciles: p.o.hostRemediations.Concurrency}
		if err := r.SetupWithManager(ctx, p, p.connections, options); err != nil {
			return err
		}
		p.hostsWatched.Store(true)
		return nil
	}
}

// sweep adds the runnable that releases orphaned hosts and nodes.
func (p *program) sweep(hosts *host.Hosts, recorder events.EventRecorder) error {
	orphans := &leftovers.Sweep{
		Remover:   leftovers.Remover{Client: p.writer(), Live: p.GetAPIReader(), Nodes: p.nodes, Hosts: hosts, Recorder: recorder},
		Installed: p.installed, Clock: clock.RealClock{}, Grace: p.o.hostRemediations.OrphanGrace, Teardown: p.o.teardown,
	}
	if !p.o.teardown { // a teardown reads the nodes of all clusters itself
		orphans.Fenced = p.clusters.Fenced
	}
	return p.Add(orphans)
}

var errStoodDown = errors.New("this replica ends, so that another replica can power-cycle its host")

// here returns the node of the manager. With leader election, it also lets the controller end this process before it power-cycles the
// manager's own host: the process releases the leader lease, and a replica on another node continues.
func (p *program) here() hostremediation.Self {
	here := hostremediation.Self{Node: p.self.Node, BootID: p.self.BootID}
	if p.self.BootID != "" && p.o.election.enabled && p.self.Namespace != "" && p.self.Name != "" {
		here.StandDown = func() { p.end(errStoodDown) }
		here.Elsewhere = func(ctx context.Context) (bool, error) { return p.self.ReadyElsewhere(ctx, p.GetAPIReader()) }
	}
	return here
}

// slim is the default transform of the caches, also for hosts: with a transform of its own, a kind must exist when the cache is set up.
func slim(obj any) (any, error) {
	if _, isHost := obj.(*bmov1alpha1.BareMetalHost); isHost {
		return host.SlimHost(obj)
	}
	obj, err := machinehealthcheck.SlimMetadata(obj)
	if err != nil {
		return nil, fmt.Errorf("slim a %T: %w", obj, err)
	}
	return obj, nil
}
