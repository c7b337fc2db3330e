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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// statusAfter is what the check says after a reconcile. It is made anew from what was observed and done: from the requests, not from what it
// said before. Only moments that nothing else remembers are taken over.
func statusAfter(w *observed, s plan, outcomes []outcome) *nhcv1.NodeHealthCheck {
	next := w.check.DeepCopy()
	st := &next.Status
	st.ObservedNodes, st.HealthyNodes, st.InFlightRemediations = ptr.To(s.population.Total()), ptr.To(s.population.Healthy), nil
	done := make(map[string]*outcome, len(outcomes))
	for i := range outcomes {
		done[outcomes[i].target.name] = &outcomes[i]
	}
	st.UnhealthyNodes = nil
	for i := range w.targets {
		o := done[w.targets[i].name]
		if o == nil {
			o = &outcome{}
		}
		if entry := entryOf(w, &w.targets[i], o); entry != nil {
			st.UnhealthyNodes = append(st.UnhealthyNodes, *entry)
		}
	}
	st.UnhealthyNodes = bounded(st.UnhealthyNodes)
	sayEnabled(w, st)
	sayStorm(w, s, st)
	sayAllowed(w, s, st)
	st.Phase, st.Reason = phaseOf(next, remediating(w, outcomes))
	return next
}

// mostListed is how many nodes a status lists. One that does not fit into the API server's store could never be written again.
const mostListed = 1000

// bounded leaves out what is too much: first nodes that nothing is done about, then others. Their requests speak for themselves.
func bounded(nodes []nhcv1.UnhealthyNode) []nhcv1.UnhealthyNode {
	if len(nodes) <= mostListed {
		return nodes
	}
	room := mostListed
	for i := range nodes {
		if len(nodes[i].Remediations) > 0 {
			room--
		}
	}
	nodes = slices.DeleteFunc(nodes, func(n nhcv1.UnhealthyNode) bool {
		if len(n.Remediations) > 0 {
			return false
		}
		room--
		return room < 0
	})
	return nodes[:min(len(nodes), mostListed)]
}

// remediating reports whether there are requests; what the status only remembers are none.
func remediating(w *observed, outcomes []outcome) bool {
	for i := range w.targets {
		if w.targets[i].remediated() {
			return true
		}
	}
	return slices.ContainsFunc(outcomes, func(o outcome) bool { return o.made != nil })
}

// entryOf is what the status says of a node; nil if it says nothing.
func entryOf(w *observed, t *target, o *outcome) *nhcv1.UnhealthyNode {
	entry := &nhcv1.UnhealthyNode{Name: t.name, Remediations: remediationsOf(w, t, o)}
	switch {
	case len(entry.Remediations) > 0:
	case t.missing:
	case t.wellOrGone(), t.terminating, t.verdict.State == health.Pending && (t.listed == nil || t.listed.ConditionsHealthyTimestamp != nil), !t.selected:
		return nil
	}
	entry.ConditionsHealthyTimestamp = t.wellSince(w, o) // also of one that is gone: what comes back under its name begins at the first step, too
	if o.delayed || t.awaitsRepeat(w, o) {
		entry.HealthyDelayed = ptr.To(true)
	}
	return entry
}

func (t *target) wellOrGone() bool { return t.node == nil || t.verdict.State == health.Healthy }

// remediationsOf are the requests for t after o: those that are there, the one that was made, and of those that are gone the ones that
// matter still.
func remediationsOf(w *observed, t *target, o *outcome) []nhcv1.Remediation {
	var all []nhcv1.Remediation
	for _, f := range t.requests {
		if slices.Contains(o.ended, f) && len(f.obj.GetFinalizers()) == 0 {
			continue // nothing keeps it
		}
		all = append(all, remediationOf(w, f, o))
	}
	if o.made != nil {
		all = append(all, nhcv1.Remediation{
			Resource: referenceTo(o.made), Started: o.made.GetCreationTimestamp(), TemplateName: o.made.GetAnnotations()[nhcv1.TemplateNameAnnotation],
		})
	}
	all = append(all, t.unseen...)
	if !t.wellOrGone() {
		all = append(all, worthRemembering(w, t.gone)...)
	}
	slices.SortStableFunc(all, func(a, b nhcv1.Remediation) int {
		return cmp.Or(a.Started.Compare(b.Started.Time), cmp.Compare(a.Resource.Kind, b.Resource.Kind), cmp.Compare(a.Resource.Name, b.Resource.Name))
	})
	return all
}

// worthRemembering are, of requests that are gone, those that say something of the ladder: which were given up, and of each rung the first
// and the last one that were not. A step that was taken is not taken again because its request was deleted, what was deleted is not made
// again at once, and not with all the time of the step.
func worthRemembering(w *observed, gone []nhcv1.Remediation) []nhcv1.Remediation {
	type ends struct{ first, last int }
	of := map[int]ends{}
	for i := range gone {
		rung := w.rungOfGone(&gone[i])
		is, known := of[rung]
		switch {
		case gone[i].TimedOut != nil || rung < 0:
			continue
		case !known:
			is = ends{i, i}
		case gone[i].Started.Before(&gone[is.first].Started):
			is.first = i
		case gone[is.last].Started.Before(&gone[i].Started):
			is.last = i
		}
		of[rung] = is
	}
	var worth []nhcv1.Remediation
	for i := range gone {
		is, known := of[w.rungOfGone(&gone[i])]
		if gone[i].TimedOut != nil || known && (is.first == i || is.last == i) {
			worth = append(worth, gone[i])
		}
	}
	return worth
}

func remediationOf(w *observed, f *found, o *outcome) nhcv1.Remediation {
	is := nhcv1.Remediation{
		Resource: referenceTo(f.obj), Started: f.obj.GetCreationTimestamp(),
		TemplateName: f.obj.GetAnnotations()[nhcv1.TemplateNameAnnotation],
	}
	if is.TemplateName == "" && f.rung >= 0 {
		is.TemplateName = w.remedies[f.rung].ref.Name
	}
	if f.former() && (!f.over || slices.Contains(o.adopt, f)) {
		is.Started = metav1.NewTime(f.begun.Truncate(time.Second))
	}
	switch {
	case !f.givenUp.IsZero():
		is.TimedOut = ptr.To(metav1.NewTime(f.givenUp))
	case o.gaveUp && slices.Contains(o.giveUp, f):
		is.TimedOut = ptr.To(metav1.NewTime(w.now.Truncate(time.Second)))
	}
	return is
}

func referenceTo(obj *unstructured.Unstructured) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
	}
}

const enabledMessage = "No issues found, NodeHealthCheck is enabled."

func sayEnabled(w *observed, st *nhcv1.NodeHealthCheckStatus) {
	c := metav1.Condition{Type: nhcv1.DisabledCondition, Status: metav1.ConditionFalse, Reason: nhcv1.EnabledReason, Message: enabledMessage}
	switch {
	case w.disabled != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, w.disabled.reason, w.disabled.message
	case w.unread():
		return // what could not be asked is neither there nor missing
	}
	set(w, st, c)
}

// unread reports whether a template could be read as little as not.
func (w *observed) unread() bool {
	return slices.ContainsFunc(w.remedies, func(m remedy) bool { return m.object == nil })
}

// stormTexts are medik8s' own.
var stormTexts = map[budget.StormTurn][2]string{
	budget.StormBegan: {
		"Storm mode is activated - preventing any new remediation until the storm is over and cooldown duration expired",
		"Cooldown cleared - storm threshold triggered",
	},
	budget.StormCooling: {"", "Storm cooldown delay started - waiting before resuming normal remediation"},
	budget.StormEnded:   {"Storm mode is deactivated, remediation can occur normally", "Storm cooldown completed"},
}

// sayStorm writes the storm's two conditions, which are also its memory.
func sayStorm(w *observed, s plan, st *nhcv1.NodeHealthCheckStatus) {
	was := stormOf(w.check)
	if was.Active != s.storm.Active || s.storm.Turn == budget.StormBegan {
		set(w, st, metav1.Condition{
			Type: nhcv1.StormActiveCondition, Status: truth(s.storm.Active), Reason: nhcv1.ThresholdReason, Message: stormTexts[s.storm.Turn][0],
		})
	}
	if was.CoolingSince.IsZero() != s.storm.CoolingSince.IsZero() || s.storm.Turn == budget.StormBegan {
		text := stormTexts[s.storm.Turn][1]
		if text == "" {
			text = stormTexts[budget.StormBegan][1]
		}
		set(w, st, metav1.Condition{
			Type: nhcv1.StormCooldownActiveCondition, Status: truth(!s.storm.CoolingSince.IsZero()), Reason: nhcv1.ThresholdReason, Message: text,
		})
	}
}

func sayAllowed(w *observed, s plan, st *nhcv1.NodeHealthCheckStatus) {
	c := metav1.Condition{Type: nhcv1.RemediationAllowedCondition, Status: metav1.ConditionTrue, Reason: nhcv1.AllowedReason}
	if hold := s.hold(); hold.Reason != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, hold.Reason, hold.Text
	}
	was := meta.FindStatusCondition(st.Conditions, c.Type)
	another := was != nil && c.Reason == nhcv1.KubeletsAwaitedReason && was.Reason != c.Reason
	set(w, st, c)
	if another { // it is waited for them since now, whatever was the matter before
		was.LastTransitionTime = metav1.NewTime(w.now.Truncate(time.Second))
	}
}

func truth(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func set(w *observed, st *nhcv1.NodeHealthCheckStatus, c metav1.Condition) {
	c.LastTransitionTime = metav1.NewTime(w.now.Truncate(time.Second))
	meta.SetStatusCondition(&st.Conditions, c)
}

// phaseOf is what a check is doing, and why. (medik8s.)
func phaseOf(check *nhcv1.NodeHealthCheck, remediating bool) (nhcv1.Phase, string) {
	disabled := meta.FindStatusCondition(check.Status.Conditions, nhcv1.DisabledCondition)
	switch {
	case disabled != nil && disabled.Status == metav1.ConditionTrue:
		return nhcv1.PhaseDisabled, fmt.Sprintf("NHC is disabled: %s: %s", disabled.Reason, disabled.Message)
	case len(check.Spec.PauseRequests) > 0:
		return nhcv1.PhasePaused, "NHC is paused: " + strings.Join(check.Spec.PauseRequests, ",")
	case remediating:
		return nhcv1.PhaseRemediating, fmt.Sprintf("NHC is remediating %d nodes", len(check.Status.UnhealthyNodes))
	default:
		return nhcv1.PhaseEnabled, "NHC is enabled, no ongoing remediation"
	}
}

// record writes the status if it differs. Whoever else wrote it since it was read is not overwritten.
func (r *Reconciler) record(ctx context.Context, w *observed, next *nhcv1.NodeHealthCheck) error {
	if equality.Semantic.DeepEqual(w.check.Status, next.Status) {
		return nil
	}
	next.Status.LastUpdateTime = ptr.To(metav1.NewTime(w.now.Truncate(time.Second)))
	patch := client.MergeFromWithOptions(w.check, client.MergeFromWithOptimisticLock{})
	err := r.Client.Status().Patch(ctx, next.DeepCopy(), patch)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of NodeHealthCheck %s: %w", w.check.Name, err)
	}
	return nil
}
