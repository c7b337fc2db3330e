package machinehealthcheck

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Observe returns the facts about the check called key on which a reconcile at now would decide; nil if there is no such check. The machines of a
// check that is paused, or that others act on, are read too. What reconciles remember of each other it does not know.
func (r *Reconciler) Observe(ctx context.Context, key client.ObjectKey, now time.Time) (*machines.Facts, error) {
	w, p, err := r.look(ctx, key, now)
	if err != nil || w == nil {
		return nil, err
	}
	return &p.facts, nil
}

// Explain returns what a reconcile of the check called key would find at now and what it would do, and does none of it; nil if there is no such
// check.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.Check, error) {
	w, p, err := r.look(ctx, key, now)
	if err != nil || w == nil {
		return nil, err
	}
	is := explained(w, p)
	if is.Conditions == nil {
		is.Conditions = r.aside(w).Status.Conditions
	}
	return is, nil
}

// look reads a check for a reader that writes nothing, and decides.
func (r *Reconciler) look(ctx context.Context, key client.ObjectKey, now time.Time) (*observed, plan, error) {
	w, err := r.find(ctx, key, now)
	if err != nil || w == nil {
		return nil, plan{}, err
	}
	if w.cluster.UID == "" { // gone, or not looked for: there is nothing to judge
		return w, plan{facts: w.facts()}, nil
	}
	if err := r.survey(ctx, w); err != nil {
		return nil, plan{}, err
	}
	return w, r.decide(ctx, w, func(d *machines.Decision) bool { return !d.InFlight && !d.Blocked(machines.NotUnhealthy) }), nil
}

// explained explains p, with the conditions that the check would have.
func explained(w *observed, p plan) *explain.Check {
	is := explain.MachineHealthCheck(&p.facts, &p.Plan)
	switch {
	case is.CountedByStatus:
		is.StatusChanged = StatusChanged(w.check)
	case w.mode == acting && w.cluster.UID != "":
		is.Conditions = statusAfter(w, p, result{}).Status.Conditions
	}
	return is
}

// Unselected says why check does not select m, as a clause that follows "because": of another cluster, or which label; empty if it selects it.
// An empty selector selects nothing. (Cluster API.)
func Unselected(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) string {
	switch selector := check.Spec.Selector; {
	case check.Spec.ClusterName != m.Spec.ClusterName:
		return fmt.Sprintf("it is about cluster %s, and the machine is of cluster %s", check.Spec.ClusterName, m.Spec.ClusterName)
	case len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		return "its spec.selector is empty, which selects nothing"
	default:
		return explain.Unmatched(selector, m.Labels)
	}
}
