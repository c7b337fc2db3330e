package machinehealthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Explain returns what a reconcile of the check called key would see at now and what it would do, and does none of it; nil if there is no such
// check. The machines of a check that is paused, or that others act on, are judged too.
//
// What passes remember of each other it does not know: of what was begun within the last half minute it says no more than the objects show.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.Check, error) {
	w, err := r.find(ctx, key, now)
	if err != nil || w == nil {
		return nil, err
	}
	is := &explain.Check{Ref: refTo("MachineHealthCheck", w.check), Cluster: w.check.Spec.ClusterName, Limit: limitSpelled(w.check)}
	is.Mode, is.Because = actor(w)
	is.Conditions = r.aside(w).Status.Conditions
	if w.cluster.UID == "" { // gone, or not looked for: there is nothing to judge
		if w.mode == orphaned {
			is.Reason, is.Text = mendv1.ClusterNotFoundReason, orphanedMessage(w.check)
		}
		is.Next = aloneNext(w)
		return is, nil
	}
	if err := r.survey(ctx, w); err != nil {
		return nil, err
	}
	tellCheck(is, w, r.decide(ctx, w, func(d *machines.Decision) bool { return !d.InFlight && !d.Blocked(machines.NotUnhealthy) }))
	return is, nil
}

// aloneNext is what comes next for a check whose machines are not looked at.
func aloneNext(w *observed) explain.Step {
	switch {
	case !w.check.DeletionTimestamp.IsZero():
		return explain.Step{Text: "nothing, until the check is gone"}
	case w.filtered != "":
		return explain.Step{}
	case w.mode == orphaned:
		return explain.Step{Person: true, Text: fmt.Sprintf("make Cluster %s, or a check of another one in place of this: spec.clusterName cannot be changed",
			w.check.Spec.ClusterName)}
	}
	if person := handIt(w); person != "" {
		return explain.Step{Text: person, Person: true}
	}
	return explain.Step{}
}

// tellCheck says in is what w comes to.
func tellCheck(is *explain.Check, w *observed, s plan) {
	is.Population, is.Limits, is.Remaining = s.Population, s.limits, s.Grant.Remaining
	is.CountedByStatus = w.counted != nil
	switch {
	case is.CountedByStatus:
		is.StatusChanged = StatusChanged(w.check)
	case w.mode == acting:
		is.Conditions = statusAfter(w, s, result{}).Status.Conditions
	}
	if c := allowed(w, s); c.Message != "" {
		is.Reason, is.Text = c.Reason, c.Message
	}
	if w.reach.Status != metav1.ConditionTrue {
		is.Unseen, is.UnseenSince = w.reach.Message, w.reach.LastTransitionTime.Time
	}
	for _, err := range w.trouble {
		is.Trouble = append(is.Trouble, err.Error())
	}
	for i := range w.targets {
		is.Targets = append(is.Targets, seen(w, s, &w.targets[i]))
	}
	for i := range w.skipped {
		is.Targets = append(is.Targets, leftAlone(&w.skipped[i]))
	}
	slices.SortFunc(is.Targets, func(a, b explain.Target) int { return strings.Compare(a.Name, b.Name) })
	is.Next = explain.Soonest(is.Targets)
}

// seen is what there is to say about a target.
func seen(w *observed, s plan, t *target) explain.Target {
	m, d := t.machine, s.of(t)
	v := d.Verdict
	is := explain.Target{
		Ref: refTo("Machine", m), Node: m.Status.NodeRef.Name,
		State: v.State, Verdict: v.State.String(), Class: d.Class(), Findings: explain.Findings(v, w.now),
		Doubted: explain.Doubted(v),
		Would:   would(w, m), Begins: d.Starts(), InFlight: d.InFlight,
	}
	if v.State == health.Starting {
		is.Starts = latestOf(startsOf(w, m))
	}
	if t.request != nil {
		is.Underway = []explain.Ref{{Kind: w.remediation.kind.Kind, Namespace: t.request.Namespace, Name: t.request.Name}}
		is.UnderwaySince = t.request.CreationTimestamp.Time
	}
	is.Answer = answer(w, t)
	if is.InFlight && t.request == nil {
		asked := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition)
		if w.remediation.unread && asked == nil {
			asked = conditionOf(m, clusterv1.MachineExternallyRemediatedCondition)
		}
		is.UnderwaySince = since(asked)
	}
	is.Blockers = holds(w, s, t)
	is.Next = nextOf(w, t, d, &is)
	return is
}

// leftAlone is what there is to say about a machine that its user wants left alone.
func leftAlone(t *target) explain.Target {
	var by []string
	for _, annotation := range []string{clusterv1.PausedAnnotation, clusterv1.MachineSkipRemediationAnnotation} {
		if _, annotated := t.machine.Annotations[annotation]; annotated {
			by = append(by, annotation)
		}
	}
	return explain.Target{
		Ref: refTo("Machine", t.machine), Node: t.machine.Status.NodeRef.Name, Verdict: "left alone", Left: wantedAlone(t.machine),
		Next: explain.Step{Text: fmt.Sprintf("take the annotation %s off the machine, if it is to be judged again", strings.Join(by, " and ")), Person: true},
	}
}

// would is what is done about m when it is unhealthy.
func would(w *observed, m *clusterv1.Machine) string {
	if w.remediation.external {
		return fmt.Sprintf("requests a %s from %s %s/%s", w.remediation.kind.Kind, w.remediation.ref.Kind, w.check.Namespace, w.remediation.ref.Name)
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		return fmt.Sprintf("asks its owner, %s %s, to remediate it", owner.Kind, owner.Name)
	}
	return "asks its owner to remediate it, but it has none"
}

// answer is what the remediators of the machine report: the provider of the requests, and the owner, which may have been asked.
func answer(w *observed, t *target) string {
	kinds := []string{clusterv1.MachineExternallyRemediatedCondition, clusterv1.MachineOwnerRemediatedCondition}
	if !w.remediation.external {
		kinds = kinds[1:]
	}
	var all []string
	for _, kind := range kinds {
		c := conditionOf(t.machine, kind)
		if c == nil {
			continue
		}
		said := fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
		if c.Message != "" {
			said += ": " + c.Message
		}
		all = append(all, strings.TrimSuffix(said, "."))
	}
	return strings.Join(all, "; ")
}

// latestOf are the starts that have happened, with a mark at the one that counts.
func latestOf(all [6]explain.Start) []explain.Start {
	var happened []explain.Start
	last := -1
	for _, start := range all {
		if start.At.IsZero() {
			continue
		}
		happened = append(happened, start)
		if last < 0 || start.At.After(happened[last].At) {
			last = len(happened) - 1
		}
	}
	if last >= 0 {
		happened[last].Counts = true
	}
	return happened
}

func refTo(kind string, obj client.Object) explain.Ref {
	return explain.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
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
