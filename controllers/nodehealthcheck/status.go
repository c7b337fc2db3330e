package nodehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// statusAfter is what the check says after a reconcile. It is made anew from what was observed and done: from the requests, not from what
// it said before. Only moments that nothing else remembers are taken over.
func statusAfter(state *observed, plan *Plan, outcomes []outcome) *nhcv1.NodeHealthCheck {
	next := state.check.DeepCopy()
	st := &next.Status
	st.ObservedNodes, st.HealthyNodes, st.InFlightRemediations = ptr.To(plan.Population.Total()), ptr.To(plan.Population.Healthy), nil
	st.UnhealthyNodes = nil
	remediating := false
	for i := range outcomes {
		o := &outcomes[i]
		remediating = remediating || o.made != nil || o.n.Remediated()
		if entry := entryOf(state, o); entry != nil {
			st.UnhealthyNodes = append(st.UnhealthyNodes, *entry)
		}
	}
	st.UnhealthyNodes = bounded(st.UnhealthyNodes)
	st.Conditions = Conditions(&state.facts, plan)
	n := -1
	if remediating { // there are requests; what the status only remembers are none
		n = len(st.UnhealthyNodes)
	}
	st.Phase, st.Reason = Phase(st.Conditions, state.check.Spec.PauseRequests, n)
	return next
}

// mostListed is how many nodes a status lists. One that does not fit into the API server's store could never be written again.
const mostListed = 1000

// bounded leaves out what is too much: first nodes that nothing is done about, then others. Their requests speak for themselves.
func bounded(list []nhcv1.UnhealthyNode) []nhcv1.UnhealthyNode {
	if len(list) <= mostListed {
		return list
	}
	slices.SortStableFunc(list, func(a, b nhcv1.UnhealthyNode) int {
		return cmp.Compare(min(len(b.Remediations), 1), min(len(a.Remediations), 1))
	})
	list = list[:mostListed]
	slices.SortFunc(list, func(a, b nhcv1.UnhealthyNode) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// entryOf is what the status says of a node; nil if it says nothing.
func entryOf(state *observed, o *outcome) *nhcv1.UnhealthyNode {
	entry := &nhcv1.UnhealthyNode{Name: o.n.Name, Remediations: remediationsOf(state, o)}
	newlyPending := o.Verdict.State == health.Pending && (o.n.Listed == nil || o.n.Listed.ConditionsHealthyTimestamp != nil)
	switch {
	case len(entry.Remediations) > 0, o.Missing:
	case o.healthyOrGone(), o.Left, newlyPending, !o.n.Selected:
		return nil
	}
	entry.ConditionsHealthyTimestamp = o.healthySince(state) // also of one that is gone: one that comes back begins at the first step, too
	kept := o.repeats(&state.facts, o.n)                     // also what could not be deleted while the node was healthy
	if o.n.Exists() {
		kept = append(kept, o.End...)
	}
	if o.Delayed || slices.ContainsFunc(kept, func(j int) bool { return !slices.Contains(o.ended, j) }) {
		entry.HealthyDelayed = ptr.To(true)
	}
	return entry
}

func (o *outcome) healthyOrGone() bool { return !o.n.Exists() || o.Verdict.State == health.Healthy }

// healthySince is since when the node is healthy, or gone, as the status remembers it; nil if it is neither. A node that is unhealthy
// again keeps it as long as nothing was begun about it, while requests of the last time are there.
func (o *outcome) healthySince(state *observed) *metav1.Time {
	over := slices.IndexFunc(o.Requests, func(r RequestState) bool { return r.Over })
	if !o.healthyOrGone() && (over < 0 || !o.first() || len(o.Adopt) > 0) {
		return nil
	}
	switch {
	case o.Missing:
		return ptr.To(metav1.NewTime(o.MissedSince.Truncate(time.Second)))
	case o.n.Listed != nil && o.n.Listed.ConditionsHealthyTimestamp != nil:
		return o.n.Listed.ConditionsHealthyTimestamp
	case !o.healthyOrGone():
		return o.n.Requests[over].Object.GetDeletionTimestamp()
	}
	return ptr.To(metav1.NewTime(state.facts.Now.Truncate(time.Second)))
}

// remediationsOf are the requests that matter after o: those that are there, the one that was made, and some that are gone.
func remediationsOf(state *observed, o *outcome) []nhcv1.Remediation {
	var remediations []nhcv1.Remediation
	for j := range o.n.Requests {
		if slices.Contains(o.ended, j) && !o.n.Requests[j].Kept() {
			continue // nothing keeps it
		}
		remediations = append(remediations, remediationOf(state, o, j))
	}
	if o.made != nil {
		remediations = append(remediations, (&Request{Object: o.made}).Entry())
	}
	for j := range o.n.Unseen {
		remediations = append(remediations, o.n.Unseen[j].Remediation)
	}
	for _, j := range o.Remember {
		remediations = append(remediations, o.n.Gone[j].Remediation)
	}
	slices.SortStableFunc(remediations, func(a, b nhcv1.Remediation) int {
		return cmp.Or(a.Started.Compare(b.Started.Time), cmp.Compare(a.Resource.Kind, b.Resource.Kind), cmp.Compare(a.Resource.Name, b.Resource.Name))
	})
	return remediations
}

func remediationOf(state *observed, o *outcome, j int) nhcv1.Remediation {
	r, decided := &o.n.Requests[j], o.Requests[j]
	remediation := r.Entry()
	if remediation.TemplateName == "" && r.Step >= 0 {
		remediation.TemplateName = state.facts.Templates[r.Step].Name
	}
	if decided.Former(r) && (!decided.Over || slices.Contains(o.Adopt, j)) {
		remediation.Started = metav1.NewTime(decided.Counted.Truncate(time.Second))
	}
	if remediation.TimedOut == nil && o.gaveUp && slices.Contains(o.GiveUp, j) {
		remediation.TimedOut = ptr.To(metav1.NewTime(state.facts.Now.Truncate(time.Second)))
	}
	return remediation
}

// record writes the status if it differs. What others wrote to it since it was read is not overwritten.
func (r *Reconciler) record(ctx context.Context, state *observed, next *nhcv1.NodeHealthCheck) error {
	if equality.Semantic.DeepEqual(state.check.Status, next.Status) {
		return nil
	}
	next.Status.LastUpdateTime = ptr.To(metav1.NewTime(state.facts.Now.Truncate(time.Second)))
	patch := client.MergeFromWithOptions(state.check, client.MergeFromWithOptimisticLock{})
	err := r.Client.Status().Patch(ctx, next.DeepCopy(), patch)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of NodeHealthCheck %s: %w", state.check.Name, err)
	}
	r.Records.Changed(next)
	return nil
}
