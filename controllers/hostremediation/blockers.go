package hostremediation

import (
	"fmt"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/explain"
)

// blockers are all that keeps the remediation from going on, in the order in which it would be met.
func (w *observed) blockers(step powercycle.Step) []explain.Blocker {
	if w.idle != "" {
		return []explain.Blocker{{Reason: string(step.Reason), Text: step.Message(), Fix: powercycle.RuleOf(step.Reason).Fix}}
	}
	facts, cycle := w.facts, w.cycle()
	if at, _ := powercycle.Foresee(facts, w.policy, w.now); step.Next.Final() && !at.IsZero() {
		return []explain.Blocker{{Reason: string(step.Reason), Text: cycle.Sentence(step), Until: at}} // the fence, on a node that cannot be seen
	}
	var blockers []explain.Blocker
	for paused := false; step.Do == powercycle.Wait; step = powercycle.Next(facts, w.policy, w.now) {
		rule := powercycle.RuleOf(step.Reason)
		if !rule.Blocks {
			break
		}
		blocker := explain.Blocker{Reason: string(step.Reason), Text: cycle.Sentence(step), Fix: w.fix(rule), Object: w.blockedBy(rule.Object)}
		if paused = paused || step.Reason == powercycle.PausedReason; !paused { // the clocks stand still in a pause
			blocker.Until, _ = powercycle.Foresee(facts, w.policy, w.now)
		}
		blockers = append(blockers, blocker)
		if rule.Without == nil {
			break
		}
		rule.Without(&facts)
	}
	return blockers
}

// fix is what a person has to do about what blocks the remediation.
func (w *observed) fix(rule powercycle.Rule) string {
	pause := w.pause()
	switch {
	case rule.Reason == powercycle.ClusterUnreachableReason && len(w.unasked) > 0:
		return "" // the cluster was not read for this explanation, but it may be reachable
	case rule.Reason == powercycle.PausedReason && pause.By != "":
		return pause.Fix
	}
	return rule.Fix
}

// blockedBy names the object that blocks the remediation, of several in its queue the first; zero if it is none.
func (w *observed) blockedBy(object powercycle.Object) explain.Ref {
	var ahead powercycle.Ahead
	if object == powercycle.TheQueue && len(w.ahead) > 0 {
		ahead = w.ahead[0]
	}
	switch cluster := w.pause().Cluster; {
	case object == powercycle.TheHost || ahead.Kind == "BareMetalHost":
		if w.found.Host != nil {
			return explain.Ref{Kind: "BareMetalHost", Namespace: w.found.Host.Namespace, Name: w.found.Host.Name}
		}
	case ahead.Name != "":
		return explain.Ref{Kind: ahead.Kind, Namespace: w.rem.GetNamespace(), Name: ahead.Name}
	case object == powercycle.TheCluster && cluster != "":
		return explain.Ref{Kind: "Cluster", Namespace: w.rem.GetNamespace(), Name: cluster}
	}
	return explain.Ref{}
}

// awaitedByDeadline is what a state has its deadline for. What comes after it the steps on the page show.
var awaitedByDeadline = map[powercycle.State]string{
	powercycle.PoweringOff:    "deadline for the host to be proven off; ",
	powercycle.MovingWorkload: "deadline for the workload to leave the node; ",
	powercycle.PoweringOn:     "deadline for the host to be on; ",
	powercycle.Booting:        "deadline for the machine to be healthy; ",
}

// explainNext is what happens next: now, or when the patience with what is waited for ends; else what a person has to do.
func (w *observed) explainNext(step powercycle.Step, blockers []explain.Blocker) explain.Step {
	if step.Do != powercycle.Wait {
		return explain.Step{At: w.now, Reason: string(step.Reason), Text: step.Outcome(w.facts, w.policy)}
	}
	if w.idle == "" {
		if at, then := powercycle.Foresee(w.facts, w.policy, w.now); !at.IsZero() {
			text := then.Outcome(w.facts, w.policy)
			if powercycle.RuleOf(then.Reason).Late {
				text = awaitedByDeadline[w.facts.State] + "if it is not done by then: " + text
			}
			return explain.Step{At: at, Reason: string(then.Reason), Text: text}
		}
	}
	for _, blocker := range blockers {
		if blocker.Fix != "" {
			return explain.Step{Reason: blocker.Reason, Text: blocker.Fix, Manual: true}
		}
	}
	if text := w.afterwards(); text != "" {
		return explain.Step{Reason: string(step.Reason), Text: text, Manual: true}
	}
	return explain.Step{}
}

// afterwards is what a person has to do about a remediation that has ended.
func (w *observed) afterwards() string {
	facts, bmh := w.facts, w.found.Host
	switch {
	case !facts.State.Final():
		return ""
	case facts.Fencing && facts.Node == powercycle.NodeUnseen && facts.Machine == powercycle.MachinePresent:
		return powercycle.RuleOf(powercycle.UnfenceTimedOutReason).Fix
	case facts.State == powercycle.OwnerRequested && bmh != nil:
		fix := powercycle.RuleOf(powercycle.OwnerRequestedReason).Fix
		return fmt.Sprintf("%s: kubectl mend reset host/%s -n %s", fix, bmh.Name, bmh.Namespace)
	case facts.State == powercycle.Failed:
		return powercycle.RuleOf(facts.Cause.Reason).Fix
	}
	return ""
}
