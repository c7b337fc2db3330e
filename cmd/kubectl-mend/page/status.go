package page

import (
	"context"
	"slices"
	"time"

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

// Status is how all checks stand.
type Status struct {
	cliv1.Status

	At       time.Time
	Managers []managerlease.Manager
	// Checks are without their targets.
	Checks []Row
	// Uncovered are the machines that no check sees to, OutOfService the hosts that no machine is put on.
	Uncovered, OutOfService []string
	// Missing is the capacity that is not back, also of remediations that none of the checks asked for.
	Missing Missing

	notReady int // machines that no check sees to
}

// Row is a check, and how many of its targets are being remediated.
type Row struct {
	explain.Check
	Remediating int
	// Missing is the capacity that is not back.
	Missing Missing
	// ClaimedBy is the label that claimed the check, and what has it; empty if none did.
	ClaimedBy string

	document cliv1.Check
}

// Of is how the checks of one cluster stand, or all of them if it is empty. NodeHealthChecks belong to none.
func Of(ctx context.Context, a *inspect.Asker, namespace, cluster string) (*Status, error) {
	s := &Status{At: a.Now, Managers: a.Managers.All, Status: cliv1.Status{
		TypeMeta: cliv1.TypeOf("Status"), Time: metav1.NewTime(a.Now.UTC()), ManagersUnknown: a.Managers.Unknown, Notes: notes(a),
	}}
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool {
		return (namespace == "" || c.Namespace == namespace) && (cluster == "" || c.Spec.ClusterName == cluster)
	})
	if err := tolerate(&s.Unread, "MachineHealthChecks", err); err != nil {
		return nil, err
	}
	claims, notClaimed := claimsOf(a, checks)
	s.Notes = append(s.Notes, notClaimed...)
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
		r := rowOf(c)
		r.ClaimedBy = claims[r.Reference]
		s.Checks = append(s.Checks, r)
		if c.CountedByStatus {
			counted++
		}
	}
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
		if slices.ContainsFunc(s.Checks, func(r Row) bool {
			return r.Cluster == key.Name && r.Namespace == key.Namespace && r.NodesNotReadable()
		}) {
			s.Notes = nodesNoted(a, key, s.Notes)
		}
	}
}

func rowOf(c *explain.Check) Row {
	r := Row{Check: *c}
	for i := range c.Targets {
		if c.Targets[i].GoesOn() {
			r.Remediating++
		}
	}
	r.Targets = nil
	r.document = r.Document(c.Answer())
	return r
}

// unreachable are the clusters of checks that the manager reports not to reach.
func unreachable(rows []Row) []cliv1.UnreachableCluster {
	var clusters []cliv1.UnreachableCluster
	for i := range rows {
		r := &rows[i]
		known := slices.ContainsFunc(clusters, func(c cliv1.UnreachableCluster) bool {
			return c.Namespace == r.Namespace && c.Name == r.Cluster
		})
		told := meta.IsStatusConditionFalse(r.Conditions, mendv1.WorkloadClusterReachable) // by the manager, not by the user's own reads
		if !known && told && r.NodesUnknown != nil && r.NodesUnknown.Since != nil {
			clusters = append(clusters, cliv1.UnreachableCluster{
				Namespace: r.Namespace, Name: r.Cluster, Since: *r.NodesUnknown.Since, Message: r.NodesUnknown.Message,
			})
		}
	}
	return clusters
}
