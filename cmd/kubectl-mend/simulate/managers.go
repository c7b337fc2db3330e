package simulate

import (
	"cmp"
	"context"
	"errors"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/state"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// manager is the controllers of one manager.
type manager struct {
	managerlease.Manager

	machines *machinehealthcheck.Reconciler
	// hosts are those of the kinds that it serves.
	hosts []*hostremediation.Reconciler
}

// build sets the controllers up, as the managers do: those whose kinds are installed and not left to others.
func (s *engine) build() error {
	kinds, err := s.hostKinds()
	if err != nil {
		return err
	}
	w, c, by := s.snapshot, s.client, s.managers.all[0]
	for _, m := range s.managers.all {
		s.managed = append(s.managed, manager{m, s.machineController(*m.Announcement), s.hostControllers(m, kinds)})
		if m.Unserved(crdgate.NodeCheckCRD) == nil && by.Unserved(crdgate.NodeCheckCRD) != nil {
			by = m
		}
	}
	s.nodes = &nodehealthcheck.Reconciler{
		Client: c, Management: c, Live: c, Mapper: w.RESTMapper(), Requests: &remediationrequest.Requests{Client: c, Live: c}, Installed: w.Installed,
		Recorder: s.eventLog, Clock: s.clock,
		Kinds:          snapshot.NewKinds[*unstructured.Unstructured](w, remediationrequest.NodeChecksMarks()...),
		LeaseNamespace: cmp.Or(by.Announcement.NodeLeaseNamespace, nhcv1.DefaultLeaseNamespace),
	}
	return nil
}

// machineController is that for the MachineHealthChecks of a manager with these settings.
func (s *engine) machineController(says managerlease.Announcement) *machinehealthcheck.Reconciler {
	w, c := s.snapshot, s.client
	return &machinehealthcheck.Reconciler{
		Client: c, Clusters: w.Clusters(), Requests: &remediationrequest.Requests{Client: c, Live: c}, Recorder: s.eventLog, Clock: s.clock,
		Kinds:     snapshot.NewKinds[*remediationrequest.Metadata](w, client.HasLabels{mendv1.MadeByUIDLabel}),
		Hosts:     snapshot.NewKinds[*bmov1alpha1.BareMetalHost](w),
		Unclaimed: cmp.Or(machinehealthcheck.Unclaimed(says.Unclaimed), machinehealthcheck.Observe), WatchFilterValue: says.WatchFilter,
	}
}

// hostKinds are the kinds of remediations of hosts that can be simulated; none where there are no hosts.
func (s *engine) hostKinds() ([]remediation.Kind, error) {
	if len(snapshot.All[bmov1alpha1.BareMetalHost](s.snapshot, "")) == 0 {
		return nil, nil // no host can be power-cycled
	}
	kinds, err := remediation.InstalledKinds(s.snapshot.RESTMapper())
	return slices.DeleteFunc(kinds, func(k remediation.Kind) bool { return k.New == nil }), err
}

// hostControllers are those of a manager for the kinds that it serves.
func (s *engine) hostControllers(m managerlease.Manager, kinds []remediation.Kind) []*hostremediation.Reconciler {
	w, c := s.snapshot, s.client
	nodes := nodes{fence.NewNodes(inMemory{s.snapshot.Clusters(), s.state}, func(fence.Place) {})}
	claims := &hostremediation.Claims{}
	var all []*hostremediation.Reconciler
	for _, kind := range kinds {
		if m.Unserved(crdOf(kind.GroupVersionKind)) != nil {
			continue
		}
		all = append(all, &hostremediation.Reconciler{
			Installed: func() ([]remediation.Kind, error) { return remediation.InstalledKinds(w.RESTMapper()) },
			Kind:      kind, Client: c, Live: c, Hosts: &host.Hosts{Client: c, Live: c}, Clusters: w.Clusters(), Nodes: nodes, Fencer: nodes,
			Claims: claims, Recorder: s.eventLog, Clock: s.clock,
			WatchFilterValue: m.Announcement.WatchFilter, Unwatched: true,
		})
	}
	return all
}

// kindsOnMetal are the kinds of remediations of hosts that kubemend carries out, each once.
func (s *engine) kindsOnMetal() []remediation.Kind {
	var kinds []remediation.Kind
	for i := range s.managed {
		for _, r := range s.managed[i].hosts {
			if !slices.ContainsFunc(kinds, func(k remediation.Kind) bool { return k.Kind == r.Kind.Kind }) {
				kinds = append(kinds, r.Kind)
			}
		}
	}
	return kinds
}

// clusterOf is the Cluster of a check; nil if there is none.
func (s *engine) clusterOf(check *clusterv1.MachineHealthCheck) *clusterv1.Cluster {
	return snapshot.One[clusterv1.Cluster](s.snapshot, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName})
}

// managerOf is the manager that reconciles a check; nil if none does.
func (s *engine) managerOf(check *clusterv1.MachineHealthCheck) *manager {
	for i := range s.managed {
		if c := &s.managed[i]; c.Covers(check, s.clusterOf(check)) && c.Manager.Unserved(crdgate.MachineCheckCRD) == nil {
			return c
		}
	}
	return nil
}

// reconcilersOf are those of an object.
func (s *engine) reconcilersOf(a object) []reconcile.Reconciler {
	var all []reconcile.Reconciler
	switch a.kind {
	case "MachineHealthCheck":
		check := snapshot.One[clusterv1.MachineHealthCheck](s.snapshot, client.ObjectKey{Namespace: a.namespace, Name: a.name})
		if check == nil || !s.question.simulates(check) {
			return nil
		}
		if of := s.managerOf(check); of != nil {
			all = append(all, of.machines)
		}
	case "NodeHealthCheck":
		if s.managers.unserved(crdgate.NodeCheckCRD) == "" && s.question.simulatesOf("", a.ref()) {
			all = append(all, s.nodes)
		}
	default:
		for i := range s.managed {
			c := &s.managed[i]
			for _, r := range c.hosts {
				if r.Kind.Kind == a.kind && (c.Announcement.Namespace == "" || c.Announcement.Namespace == a.namespace) {
					all = append(all, r) // the controller itself compares the label of --watch-filter
				}
			}
		}
	}
	return all
}

// nodes are the hostremediation.Nodes of workload clusters in memory. They are not watched: the next reconcile sees what has changed.
type nodes struct{ *fence.Nodes }

func (nodes) Watch(context.Context, client.ObjectKey, string, fence.Seen) error { return nil }

func (nodes) Unwatch(client.ObjectKey, string) {}

func (nodes) Forget(client.ObjectKey) {}

// inMemory are the fence.Clusters of a state: workload clusters without a connection.
type inMemory struct {
	*snapshot.Clusters

	state *state.State
}

func (c inMemory) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	if _, err := c.Clusters.GetUncachedClient(ctx, cluster); err != nil {
		return nil, err
	}
	return c.state.Of(cluster).Client(), nil
}

var errInMemory = errors.New("a cluster in memory has no connection")

func (inMemory) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, errInMemory
}

func (inMemory) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error {
	return errInMemory
}
