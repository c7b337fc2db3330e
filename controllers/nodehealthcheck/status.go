package nodehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// statusAfter returns the check with its status after a reconcile. The status is made from what was observed and done. Only times that are
// stored nowhere else are taken over from the status before.
func statusAfter(state *observed, plan *Plan, outcomes []outcome) *nhcv1.NodeHealthCheck {
	next := state.check.DeepCopy()
	st := &next.Status
	st.ObservedNodes, st.HealthyNodes, st.InFlightRemediations = ptr.To(plan.Population.Total()), ptr.To(plan.Population.Healthy), nil
	st.UnhealthyNodes = nil
	remediating := false
	for i := range outcomes {
		o := &outcomes[i]
		remediating = remediating || o.made != nil || o.remediated()
		if entry := entryOf(state, o); entry != nil {
			st.UnhealthyNodes = append(st.UnhealthyNodes, *entry)
		}
	}
	st.UnhealthyNodes = bounded(st.UnhealthyNodes)
	st.Conditions = Conditions(&state.facts, plan)
	n := -1
	if remediating { // a request exists; entries of the status alone do not count
		n = len(st.UnhealthyNodes)
	}
	st.Phase, st.Reason = Phase(st.Conditions, state.check.Spec.PauseRequests, n)
	return next
}

// mostListed is the most nodes in a status. A larger object might not fit into etcd, and then the status could not be written at all.
const mostListed = 1000

// bounded cuts list to mostListed nodes, and leaves out nodes without requests first. Requests are also found without the status.
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

// entryOf returns the entry of a node in the status; nil if it needs none.
func entryOf(state *observed, o *outcome) *nhcv1.UnhealthyNode {
	entry := &nhcv1.UnhealthyNode{Name: o.Name, Remediations: remediationsOf(state, o)}
	newlyPending := o.Verdict.State == health.Pending && (o.Listed == nil || o.Listed.ConditionsHealthyTimestamp != nil)
	switch {
	case len(entry.Remediations) > 0, o.Missing:
	case o.healthyOrGone(), o.Left, newlyPending, !o.Selected:
		return nil
	}
	entry.ConditionsHealthyTimestamp = o.healthySince(state) // also if the node is gone: if it comes back, the first step is next
	delayed := o.Delayed
	for j := range o.Requests { // also requests that should be deleted and could not be
		r := &o.Requests[j]
		ends := o.repeats(&state.facts, r) || o.exists() && r.End
		delayed = delayed || ends && !r.ended
	}
	if delayed {
		entry.HealthyDelayed = ptr.To(true)
	}
	return entry
}

func (o *outcome) healthyOrGone() bool { return !o.exists() || o.Verdict.State == health.Healthy }

// healthySince returns since when the node is healthy or gone, for the status; nil if it is neither. If the node becomes unhealthy again,
// the time stays until the requests of the earlier failure are gone or a new remediation begins.
func (o *outcome) healthySince(state *observed) *metav1.Time {
	over := slices.IndexFunc(o.Requests, func(r RequestState) bool { return r.Over })
	if !o.healthyOrGone() && (over < 0 || o.begun() || o.Requests[over].Adopt) {
		return nil
	}
	switch {
	case o.Missing:
		return ptr.To(metav1.NewTime(o.MissedSince.Truncate(time.Second)))
	case o.Listed != nil && o.Listed.ConditionsHealthyTimestamp != nil:
		return o.Listed.ConditionsHealthyTimestamp
	case !o.healthyOrGone():
		return o.Requests[over].Object.GetDeletionTimestamp()
	}
	return ptr.To(metav1.NewTime(state.facts.Now.Truncate(time.Second)))
}

// remediationsOf returns the requests for the status: those that exist, the one that was created, and those that are gone but still needed.
func remediationsOf(state *observed, o *outcome) []nhcv1.Remediation {
	var remediations []nhcv1.Remediation
	for j := range o.Requests {
		if r := &o.Requests[j]; !r.ended || r.kept() { // otherwise it is gone
			remediations = append(remediations, remediationOf(state, o, r))
		}
	}
	if o.made != nil {
		remediations = append(remediations, (&Request{Object: o.made}).entry())
	}
	for j := range o.Unseen {
		remediations = append(remediations, o.Unseen[j].Remediation)
	}
	for _, j := range o.Remember {
		remediations = append(remediations, o.Gone[j].Remediation)
	}
	slices.SortStableFunc(remediations, func(a, b nhcv1.Remediation) int {
		return cmp.Or(a.Started.Compare(b.Started.Time),
			cmp.Compare(a.Resource.Kind, b.Resource.Kind), cmp.Compare(a.Resource.Name, b.Resource.Name))
	})
	return remediations
}

func remediationOf(state *observed, o *outcome, r *RequestState) nhcv1.Remediation {
	remediation := r.entry()
	if remediation.TemplateName == "" && r.Step >= 0 {
		remediation.TemplateName = state.facts.Templates[r.Step].Name
	}
	if r.Former() && (!r.Over || r.Adopt) {
		remediation.Started = metav1.NewTime(r.Counted.Truncate(time.Second))
	}
	if remediation.TimedOut == nil && o.gaveUp && r.GiveUp {
		remediation.TimedOut = ptr.To(metav1.NewTime(state.facts.Now.Truncate(time.Second)))
	}
	return remediation
}

// record writes the status if it has changed. It never overwrites what other clients have written since the check was read.
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

// Conditions returns the conditions of the check after a reconcile. While kinds are awaited there is no decision, and p may be empty.
func Conditions(f *Facts, p *Plan) []metav1.Condition {
	conditions, now := slices.Clone(f.Check.Status.Conditions), metav1.NewTime(f.Now.Truncate(time.Second))
	set := func(kind string, is bool, reason, message string) {
		cond := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: now}
		if is {
			cond.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&conditions, cond)
	}
	allowed, message := nhcv1.AllowedReason, ""
	switch {
	case len(f.Awaited) > 0:
		allowed, message = nhcv1.KindUnreadReason, KindsAwaited(f)
	case len(p.Blockers) > 0:
		allowed, message = string(p.Blockers[0].Reason), p.Blockers[0].Text
	}
	if len(f.Awaited) == 0 {
		if p.Disabled.Is() {
			set(nhcv1.DisabledCondition, true, p.Disabled.Reason, p.Disabled.Message)
		} else if !slices.ContainsFunc(f.Templates, func(t Template) bool { return t.Object == nil }) { // all templates were read
			set(nhcv1.DisabledCondition, false, nhcv1.EnabledReason, EnabledMessage)
		}
		setStorm(f, p, set)
		if reason, message := ineffective(f, p); reason != "" && !p.Disabled.Is() {
			set(mendv1.Effective, false, reason, message)
		} else {
			meta.RemoveStatusCondition(&conditions, mendv1.Effective)
		}
	}
	before := conditionOf(f.Check, nhcv1.RemediationAllowedCondition)
	set(nhcv1.RemediationAllowedCondition, allowed == nhcv1.AllowedReason, allowed, message)
	if before != nil && before.Reason != allowed && allowed == nhcv1.KubeletsAwaitedReason {
		// settledAt needs the time at which this reason began, even if the condition was False before.
		meta.FindStatusCondition(conditions, nhcv1.RemediationAllowedCondition).LastTransitionTime = now
	}
	return conditions
}

// selectsWithin is how long after its creation a check may select no nodes before this is reported.
const selectsWithin = 10 * time.Minute

// ineffective returns why the check, or one of its rules, can never have an effect as it is written. Nothing else shows such a mistake.
func ineffective(f *Facts, p *Plan) (reason, message string) {
	specs := map[string]any{nhcv1.GroupVersion.String(): &nhcv1.NodeHealthCheckSpec{}}
	if dropped := rule.DroppedField(f.Check.Annotations, specs); dropped != "" {
		return mendv1.FieldDroppedReason, dropped
	}
	for i, cond := range f.Check.Spec.UnhealthyConditions {
		switch cond.Status {
		case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		default:
			return mendv1.NoSuchStatusReason, fmt.Sprintf("spec.unhealthyConditions[%d] is never met: no condition has the status %q, "+
				"but True, False or Unknown", i, cond.Status)
		}
	}
	if p.Population.Total() == 0 && f.Now.Sub(f.Check.CreationTimestamp.Time) >= selectsWithin {
		return mendv1.SelectsNothingReason, "spec.selector matches no Node of this cluster: labels of Machines are not those of Nodes"
	}
	return "", ""
}

// EnabledMessage is the message of a check that is not disabled.
const EnabledMessage = "No issues found, NodeHealthCheck is enabled."

// setStorm sets the two conditions of a storm if they change. FactsOf reads the state of the storm from them.
func setStorm(f *Facts, p *Plan, set func(kind string, is bool, reason, message string)) {
	storm, cooldown := "", "Cooldown cleared - storm threshold triggered"
	switch p.Storm.Turn {
	case budget.StormBegan:
		storm = "Storm mode is activated - preventing any new remediation until the storm is over and cooldown duration expired"
	case budget.StormCooling:
		cooldown = "Storm cooldown delay started - waiting before resuming normal remediation"
	case budget.StormEnded:
		storm, cooldown = "Storm mode is deactivated, remediation can occur normally", "Storm cooldown completed"
	}
	began, cools := p.Storm.Turn == budget.StormBegan, !p.Storm.CoolingSince.IsZero()
	if began || f.Storm.Active != p.Storm.Active {
		set(nhcv1.StormActiveCondition, p.Storm.Active, nhcv1.ThresholdReason, storm)
	}
	if began || f.Storm.CoolingSince.IsZero() == cools {
		set(nhcv1.StormCooldownActiveCondition, cools, nhcv1.ThresholdReason, cooldown)
	}
}

// KindsAwaited is the message of a check that waits until its kinds can be read.
func KindsAwaited(f *Facts) string {
	kinds := make([]string, 0, len(f.Awaited))
	for _, kind := range f.Awaited {
		kinds = append(kinds, kind.GroupKind().String())
	}
	return "Nothing is decided until all objects of these kinds were read, which the API server has not allowed so far: " +
		strings.Join(slices.Sorted(slices.Values(kinds)), ", ")
}

// Phase returns the phase and the reason for the status, in the words of medik8s. Remediating is the number of nodes in the status if there
// are requests, else negative.
func Phase(conditions []metav1.Condition, pauseRequests []string, remediating int) (nhcv1.Phase, string) {
	disabled := meta.FindStatusCondition(conditions, nhcv1.DisabledCondition)
	switch {
	case disabled != nil && disabled.Status == metav1.ConditionTrue:
		return nhcv1.PhaseDisabled, fmt.Sprintf("NHC is disabled: %s: %s", disabled.Reason, disabled.Message)
	case len(pauseRequests) > 0:
		return nhcv1.PhasePaused, "NHC is paused: " + strings.Join(pauseRequests, ",")
	case remediating >= 0:
		return nhcv1.PhaseRemediating, fmt.Sprintf("NHC is remediating %d nodes", remediating)
	default:
		return nhcv1.PhaseEnabled, "NHC is enabled, no ongoing remediation"
	}
}
