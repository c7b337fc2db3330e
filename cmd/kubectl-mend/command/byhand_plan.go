package command

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// planByHand returns whether the remediation that a person asks for is requested, and how. Nothing is requested that no
// controller acts on, or that the limits of a check would not let begin and no controller would block.
func planByHand(f *byHandFacts) explain.ByHand {
	if f.machine == nil {
		return planWithoutMachine(f)
	}
	r := explain.ByHand{Machine: f.machine.Name}
	r.Earlier, _ = explain.AttributionOf(f.machine, mendv1.RequestedAnnotation)
	_, marked := f.machine.Annotations[clusterv1.RemediateMachineAnnotation]
	was := targetOf(f.before)
	switch {
	case !f.machine.DeletionTimestamp.IsZero():
		r.Reason = explain.MachineGoes
	case len(f.underway) > 0, was != nil && was.InFlight, was != nil && was.StartsNow:
		r.Reason = explain.AlreadyInFlight
	case marked:
		r.Reason = explain.AlreadyMarked
	case f.alone != "":
		r.Reason, r.Why = explain.LeftAlone, f.alone
	case len(f.after.Checks) == 0 && len(f.after.Unread) > 0:
		r.Reason, r.Why, r.Do = explain.ChecksNotRead, f.after.Verdict, f.after.Next.Text
	case len(f.after.Checks) == 0 && !f.cycles():
		r.Reason, r.Why, r.Do = explain.NoneSelects, f.after.Verdict, f.after.Next.Text
	case len(f.after.Checks) > 0:
		f.planByCheck(&r)
	default:
		f.planCycle(&r)
	}
	return r
}

// planWithoutMachine is the plan for a host, or a node, of no machine.
func planWithoutMachine(f *byHandFacts) explain.ByHand {
	switch e := f.before; {
	case f.asked == hostKind:
		return explain.ByHand{Reason: explain.NoMachine, Do: "To reboot it, annotate it with reboot.metal3.io"}
	case len(e.Checks) > 0:
		return explain.ByHand{Reason: explain.NodeCheckAlone, Check: e.Checks[0].String(), Do: explain.RequestOfNode}
	case len(e.Unread) > 0:
		return explain.ByHand{Reason: explain.ChecksNotRead, Why: e.Verdict, Do: e.Next.Text}
	default:
		return explain.ByHand{Reason: explain.NoneSelects, Why: e.Verdict, Do: e.Next.Text}
	}
}

// targetOf is what is explained, as the check that acts first judges it; nil if none does.
func targetOf(e *page.Explanation) *explain.Target {
	if len(e.Checks) == 0 || len(e.Checks[0].Targets) == 0 {
		return nil
	}
	return &e.Checks[0].Targets[0]
}

// planByCheck is the plan for a machine that a check judges.
func (f *byHandFacts) planByCheck(r *explain.ByHand) {
	check, target := &f.after.Checks[0], targetOf(f.after)
	r.Check = check.String()
	switch {
	case target == nil || slices.Contains([]explain.Mode{explain.Paused, explain.None, explain.Unknown, ""}, check.Mode):
		r.Reason, r.Why = explain.NotActedOn, cmp.Or(check.ModeText, check.NotJudged().Text(nil))
		for _, next := range []explain.Step{f.after.Next, check.Next} {
			if next.Manual && r.Do == "" {
				r.Do = next.Text
			}
		}
	case f.cycles():
		f.planCycle(r)
	case check.Kind == string(nodeCheckKind):
		r.Reason, r.Do = explain.NodeCheckAlone, explain.RequestOfNode
	default:
		f.planMark(r)
	}
}

// planMark is the plan for a machine that its check marks unhealthy because of the annotation. What blocks the remediation then is for the check's controller.
func (f *byHandFacts) planMark(r *explain.ByHand) {
	check, target, was := &f.after.Checks[0], targetOf(f.after), targetOf(f.before)
	const tooMany = clusterv1.MachineHealthCheckTooManyUnhealthyReason
	switch {
	case was != nil && was.State == health.Healthy && f.before.Checks[0].Reason != tooMany && check.Reason == tooMany:
		r.Reason, r.Why, r.Do = explain.OneTooMany, check.Allowance(), explain.CycleOnce
	case f.template == "" && metav1.GetControllerOf(f.machine) == nil:
		r.Reason, r.Do = explain.WithoutOwner, explain.DeleteMachine
	default:
		r.Reason, r.Leaves, r.Waits = explain.RequestedMark, f.template, blockerOf(check, target) != nil
	}
}

// planCycle is the plan for a machine whose host is power-cycled by a request of its own, which no check blocks: so it is only made if the check would
// remediate the machine at this moment.
func (f *byHandFacts) planCycle(r *explain.ByHand) {
	if f.request == nil {
		r.Reason, r.Do = explain.NotInstalled, "Install their CRD, or delete the machine, so that its owner replaces it"
		return
	}
	r.Request, r.Attempts = f.request.Name, int(*f.request.Spec.Strategy.RetryLimit)+1
	if is := f.cyclePage.Remediations[0]; is.Reason == explain.NotServed || is.Reason == explain.NoManager {
		r.Reason, r.Why = explain.NotActedOnKind, is.Text
		if is.Next.Manual {
			r.Do = text.Capital(is.Next.Text)
		}
		return
	}
	if carries := f.cyclePage.Remediations[0].Host; f.host != "" && f.host != carries {
		r.Reason, r.Why = explain.AnotherHost, f.cyclePage.Remediations[0].Text
		return
	}
	r.Reason = explain.RequestedCycle
	if len(f.after.Checks) == 0 {
		return
	}
	check, target := &f.after.Checks[0], targetOf(f.after)
	switch blocker := blockerOf(check, target); {
	case check.NodesNotReadable():
		r.Reason, r.Do = explain.BudgetUnread, explain.ChecksUnreadNext.Text
	case blocker != nil:
		r.Reason, r.Why, r.Do = explain.BudgetBlocks, blocker.Text, explain.CycleOnce
	case check.Kind == string(nodeCheckKind) && (check.Text != "" || target.State == health.Healthy && check.Remaining < 1):
		r.Reason, r.Why, r.Do = explain.BudgetBlocks, cmp.Or(check.Text, check.Allowance()), explain.CycleOnce
	}
}

// blockerOf is the first that blocks the remediation of a target, whichever controller acts on its check; nil if none does.
func blockerOf(check *page.Check, target *explain.Target) *explain.Blocker {
	for i := range target.Blockers {
		if b := &target.Blockers[i]; b.Reason != explain.NotActing || !check.ActsElsewhere() {
			return b
		}
	}
	return nil
}
