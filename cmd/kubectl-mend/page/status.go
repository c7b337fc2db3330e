package page

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Status is how all checks stand: the document, with what its page needs besides.
type Status struct {
	cliv1.Status

	// Checks are those of Items.
	Checks []explain.Check
	// Uncovered are the machines that no check sees to, OutOfService the hosts that no machine is put on.
	Uncovered, OutOfService []string

	notReady int                    // machines that no check sees to
	besides  *cliv1.MissingCapacity // of CapacityMissing that of which none of the checks asked for the remediation
}

// Document is s for programs: the checks are without their targets.
func (s *Status) Document() *cliv1.Status {
	d := s.Status
	d.Items, d.Notes = make([]cliv1.Check, 0, len(s.Checks)), slices.Clone(s.Notes)
	for i := range s.Checks {
		check := s.Checks[i]
		check.Phase, check.Targets = check.Answer().Phase(), nil
		d.Items = append(d.Items, check.Document())
	}
	for _, cluster := range s.Uncovered {
		d.Notes = append(d.Notes, "Not covered by checks: "+cluster)
	}
	for _, name := range s.OutOfService {
		d.Notes = append(d.Notes, "Host out of service: "+name)
	}
	return &d
}

// Of is how the checks of one cluster stand, or all of them if it is empty. NodeHealthChecks belong to none.
func Of(ctx context.Context, a *inspect.Asker, namespace, cluster string) (*Status, error) {
	s := &Status{Status: cliv1.Status{
		TypeMeta: cliv1.TypeOf("Status"), Time: metav1.NewTime(a.Now), ManagersUnknown: a.Managers.Unknown, Notes: notes(a),
		Managers: make([]cliv1.Manager, 0, len(a.Managers.All)),
	}}
	for i := range a.Managers.All {
		s.Managers = append(s.Managers, managerOf(&a.Managers.All[i]))
	}
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool {
		return (namespace == "" || c.Namespace == namespace) && (cluster == "" || c.Spec.ClusterName == cluster)
	})
	if err := tolerate(&s.Unread, "MachineHealthChecks", err); err != nil {
		return nil, err
	}
	if cluster == "" {
		nodes, err := a.NodeChecks(ctx, func(*nhcv1.NodeHealthCheck) bool { return true })
		if err := tolerate(&s.Unread, "NodeHealthChecks", err); err != nil {
			return nil, err
		}
		checks = append(checks, nodes...)
	}
	if len(s.Unread) == 0 {
		s.uncover(a, namespace, cluster, checks)
	}
	s.OutOfService = outOfService(ctx, a, namespace)
	counted := 0
	for i := range checks {
		c := &checks[i]
		follow(ctx, a, c)
		if c.CountedByStatus {
			counted++
		}
	}
	s.Checks = checks
	s.addMissing(ctx, a, namespace, cluster)
	s.Unreachable = unreachable(s.Checks)
	s.noteUnread(a, counted)
	return s, nil
}

// noteUnread notes how many checks were counted by their status alone, and which clusters the user cannot see.
func (s *Status) noteUnread(a *inspect.Asker, counted int) {
	if counted > 0 {
		s.Notes = append(s.Notes, explain.Number(counted, "check")+" counted by status alone, which says that all targets are healthy; "+
			"--full reads the machines and nodes")
	}
	for _, key := range a.Snapshot.Workloads() {
		if slices.ContainsFunc(s.Checks, func(c explain.Check) bool {
			return c.Cluster == key.Name && c.Namespace == key.Namespace && c.NodesNotReadable()
		}) {
			s.Notes = nodesNoted(a, key, s.Notes)
		}
	}
}

// unreachable are the clusters of checks that the manager reports not to reach.
func unreachable(checks []explain.Check) []cliv1.UnreachableCluster {
	var clusters []cliv1.UnreachableCluster
	for i := range checks {
		check := &checks[i]
		known := slices.ContainsFunc(clusters, func(c cliv1.UnreachableCluster) bool {
			return c.Namespace == check.Namespace && c.Name == check.Cluster
		})
		told := meta.IsStatusConditionFalse(check.Conditions, mendv1.WorkloadClusterReachable) // by the manager, not by the user's own reads
		if !known && told && check.NodesUnknown != nil && check.NodesUnknown.Since != nil {
			clusters = append(clusters, cliv1.UnreachableCluster{
				Namespace: check.Namespace, Name: check.Cluster, Since: *check.NodesUnknown.Since, Message: check.NodesUnknown.Message,
			})
		}
	}
	return clusters
}

// managerOf is what the lease of a manager says of it.
func managerOf(m *managerlease.Manager) cliv1.Manager {
	manager := cliv1.Manager{
		Namespace: m.Namespace, Holder: m.Holder, Alive: m.Alive, Renewed: cliv1.Moment(m.Renewed), Ended: cliv1.Moment(m.Gone),
		Trusted: m.Unverified == "", Namespaces: m.Within, Message: m.Unverified,
	}
	a := m.Announcement
	if a == nil {
		return manager
	}
	manager.Version, manager.Started, manager.ClockAheadSeconds = a.Version, cliv1.Moment(a.Started.Time), a.ClockAheadSeconds
	manager.Unclaimed, manager.WatchNamespace, manager.WatchFilter = a.Unclaimed, a.Namespace, a.WatchFilter
	manager.Outside, manager.Teardown = a.Outside, a.Teardown
	for _, k := range a.Kinds {
		manager.Kinds = append(manager.Kinds, cliv1.ServedKind{CRD: k.CRD, Served: k.Reason == "", Reason: k.Reason, Message: k.Because})
	}
	return manager
}
