package page

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Status is how all checks stand. It is the JSON of `kubectl mend status`.
type Status struct {
	At       time.Time              `json:"at"`
	Managers []managerlease.Manager `json:"managers"`
	// Unknown is why there may be other managers; empty if there are none.
	Unknown string `json:"unknown,omitempty"`
	// Checks are without their targets.
	Checks []Row `json:"checks"`
	// Unread are the kinds of checks that could not be read: there may be more than those.
	Unread []string `json:"unread,omitempty"`
	// Unseen are the workload clusters that the manager cannot see.
	Unseen []Cluster `json:"unseen,omitempty"`
	Notes  []string  `json:"notes,omitempty"`
}

// Row is a check, and how many of its targets are being remediated.
type Row struct {
	explain.Check
	Remediating int `json:"remediating"`
}

// Cluster is a workload cluster that cannot be seen.
type Cluster struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Since     time.Time `json:"since"`
	Why       string    `json:"why"`
}

// Of is how the checks of one cluster stand, or all of them if it is empty. NodeHealthChecks belong to none.
func Of(ctx context.Context, a *inspect.Asker, namespace, cluster string) (*Status, error) {
	s := &Status{At: a.Now, Managers: a.Managers.All, Unknown: a.Managers.Unknown, Notes: notes(a)}
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool {
		return (namespace == "" || c.Namespace == namespace) && (cluster == "" || c.Spec.ClusterName == cluster)
	})
	if err := s.without("MachineHealthChecks", err); err != nil {
		return nil, err
	}
	if cluster == "" {
		nodes, err := a.NodeChecks(ctx, func(*nhcv1.NodeHealthCheck) bool { return true })
		if err := s.without("NodeHealthChecks", err); err != nil {
			return nil, err
		}
		checks = append(checks, nodes...)
	}
	for i := range checks {
		c := &checks[i]
		follow(ctx, a, c)
		s.Unseen = unseenBy(s.Unseen, c)
		s.Checks = append(s.Checks, rowOf(c))
	}
	if n := countedByStatus(checks); n > 0 {
		s.Notes = append(s.Notes, explain.CalmByStatus(n))
	}
	slices.SortFunc(s.Unseen, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, key := range a.World.Workloads() {
		if why, _, blind := a.World.Unseen(key); blind && s.checks(key) {
			s.Notes = append(s.Notes, "You cannot see the nodes of cluster "+key.String()+": "+why)
		}
	}
	return s, nil
}

// countedByStatus is how many checks were not judged, as their status says that all targets are healthy.
func countedByStatus(checks []explain.Check) int {
	n := 0
	for i := range checks {
		if checks[i].CountedByStatus {
			n++
		}
	}
	return n
}

// without goes on without the checks of a kind, if it is for the user's rights that they could not be read.
func (s *Status) without(kind string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	s.Unread = append(s.Unread, kind)
	return nil
}

// checks reports whether there is a check of a cluster.
func (s *Status) checks(cluster client.ObjectKey) bool {
	return slices.ContainsFunc(s.Checks, func(r Row) bool { return r.Cluster == cluster.Name && r.Namespace == cluster.Namespace })
}

func rowOf(c *explain.Check) Row {
	r := Row{Check: *c}
	for i := range c.Targets {
		if c.Targets[i].InFlight {
			r.Remediating++
		}
	}
	r.Targets = nil
	return r
}

// unseenBy adds the cluster of c, if the manager says that it cannot see it.
func unseenBy(all []Cluster, c *explain.Check) []Cluster {
	i := slices.IndexFunc(c.Conditions, func(is metav1.Condition) bool { return is.Type == mendv1.WorkloadClusterReachable })
	if i < 0 || c.Conditions[i].Status != metav1.ConditionFalse || c.UnseenSince.IsZero() {
		return all
	}
	is := Cluster{c.Namespace, c.Cluster, c.UnseenSince, c.Unseen}
	if at := slices.IndexFunc(all, func(was Cluster) bool { return was.Namespace == is.Namespace && was.Name == is.Name }); at >= 0 {
		if is.Since.Before(all[at].Since) {
			all[at] = is
		}
		return all
	}
	return append(all, is)
}
