package machinehealthcheck

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Reported reports whether the status of check has the numbers of its targets and is up to date: kubemend does not write it while the check
// is paused. It is false if kubemend does not act on an overlapping check, whose conditions the machines may then have.
func Reported(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
	status := &check.Status
	if shared := ConditionOf(check, mendv1.TargetsExclusive); shared != nil && shared.Status == metav1.ConditionFalse {
		return false
	}
	return status.ObservedGeneration == check.Generation && modeFor(check, cluster, Act) == Active && check.DeletionTimestamp.IsZero() &&
		status.ExpectedMachines != nil && status.CurrentHealthy != nil
}

// Written explains check by what the manager wrote: a status that is Reported, and the conditions of the machines. What the manager does
// not write, it takes from the objects: that a machine has no node yet, or cannot be judged. clockAhead is as in Facts.
func (r *Reconciler) Written(
	check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, machines []clusterv1.Machine, now time.Time, clockAhead time.Duration,
) *explain.Check {
	facts := &Facts{
		Now: now, Check: check, Cluster: cluster, Mode: Active, Policy: policyOf(check.Spec.Checks), Link: health.Up,
		ClockAhead: clockAhead, Settings: SettingsOf(check, int(*check.Status.ExpectedMachines)), Template: templateOf(check),
		SpareWait: r.Ledger.SpareWaits(check, cluster),
	}
	plan := &Plan{Allowed: writtenOr(check, RemediationAllowed), Reach: writtenOr(check, mendv1.WorkloadClusterReachable)}
	facts.Reach = plan.Reach
	if spares := ConditionOf(check, mendv1.SpareHostAvailable); spares != nil && spares.Status != metav1.ConditionTrue {
		plan.Conditions = []metav1.Condition{*spares}
	}
	plan.Grant.Remaining = int(ptr.Deref(check.Status.RemediationsAllowed, 0))
	facts.addMachines(machines)
	told := map[string]*metav1.Condition{}
	for i, verdict := range judge(facts) {
		decision := &Decision{Target: facts.Targets[i], Verdict: verdict}
		told[decision.Target.Name] = decision.written(facts, plan)
		plan.Decisions = append(plan.Decisions, decision)
		plan.Population.Count(decision.Class())
		if decision.InFlight {
			plan.Population.InFlight++
		}
	}
	total, healthy := int(*check.Status.ExpectedMachines), int(*check.Status.CurrentHealthy)
	read := len(facts.Targets) >= total
	if !read {
		plan.Population = plan.Population.Complete(total, healthy)
	}
	for _, decision := range plan.Decisions {
		decision.endTooMany(facts, plan)
	}
	explained := machineHealthCheck(facts, plan)
	explained.Conditions, explained.CountedByStatus = check.Status.Conditions, !read
	for i := range explained.Targets {
		target := &explained.Targets[i]
		if target.Written = told[target.Name]; target.InFlight && target.InFlightSince == nil {
			target.InFlightSince = &target.Written.LastTransitionTime
		}
		if selected := find(target.Name, facts.Targets); selected != nil {
			target.Findings = append(target.Findings, failures(selected.Machine)...)
		}
	}
	return explained
}

// addMachines adds the machines that the check selects, with what is known of them without their nodes.
func (facts *Facts) addMachines(machines []clusterv1.Machine) {
	selector, _ := selectorOf(facts.Check) // a check with an invalid selector is not Reported
	for i := range machines {
		machine := &machines[i]
		if machine.Spec.ClusterName != facts.Check.Spec.ClusterName || !selector.Matches(labels.Set(machine.Labels)) {
			continue
		}
		known := health.NodeUnseen
		if machine.Status.NodeRef.Name == "" && (facts.Reach.Status == metav1.ConditionTrue || !facts.Initialized()) {
			known = health.NodeAwaited
		}
		state := healthOf(facts.Check.Spec.Checks, machine, known, nil)
		target := &Target{Machine: machine, Health: &state}
		if len(LeftAloneBy(machine)) > 0 {
			facts.Skipped = append(facts.Skipped, target)
		} else {
			facts.Targets = append(facts.Targets, target)
		}
	}
}

// failures returns the findings for which the manager marked machine unhealthy, as the condition HealthCheckSucceeded words them.
func failures(machine *clusterv1.Machine) []explain.Finding {
	cond := Failed(machine)
	if cond == nil || cond.Message == "" {
		return nil
	}
	var findings []explain.Finding
	for text := range strings.SplitSeq(strings.TrimSpace(strings.TrimPrefix(cond.Message, healthCheckFailedBegin)), "\n") {
		text = oneLine(strings.TrimPrefix(strings.TrimSpace(text), "* "))
		findings = append(findings, explain.Finding{
			Reason: cond.Reason, Since: &cond.LastTransitionTime, Expired: true, Message: text, Observed: text,
		})
	}
	return findings
}

// writtenOr returns that condition of check; a True one if it has none.
func writtenOr(check *clusterv1.MachineHealthCheck, kind string) metav1.Condition {
	if cond := ConditionOf(check, kind); cond != nil {
		return *cond
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue}
}

// written replaces decision by what the manager wrote on the machine, and returns the condition that says so; nil if there is none. The
// verdict without the node stays where the manager writes nothing: for a machine that has no node yet, or cannot be judged.
func (decision *Decision) written(facts *Facts, plan *Plan) *metav1.Condition {
	machine := decision.Target.Machine
	cond, succeeded := ConditionOf(machine, mendv1.Remediation), ConditionOf(machine, HealthCheckSucceeded)
	verdict := &decision.Verdict
	unknown := verdict.State == health.Unknown &&
		(verdict.Gate != "" || verdict.Doubted(health.NotSincePause) || plan.Reach.Status != metav1.ConditionTrue)
	switch {
	case unknown && !Deleting(machine): // a condition from before does not count
		decision.InFlight = cond != nil && cond.Status == metav1.ConditionTrue
		ask(facts, plan, decision)
		decision.Blockers = slices.DeleteFunc(decision.Blockers, func(blocker Blocker) bool { return !blocker.unjudged })
		return cond
	case cond != nil:
		decision.remediation(facts, plan, cond)
	case succeeded != nil && succeeded.Status == metav1.ConditionTrue:
		decision.Verdict = health.Verdict{State: health.Healthy}
	case succeeded != nil:
		decision.Verdict = health.Verdict{State: health.Unhealthy}
		decision.Blockers = []Blocker{{Blocker: rule.Blocker{
			Reason: succeeded.Reason, Text: "The manager has marked the machine unhealthy, and not written yet what it does about it",
			EndsWhen: "the manager has written it",
		}}}
	case decision.Target.Health.Node == health.NodeAwaited:
		ask(facts, plan, decision)
	default:
		decision.Verdict = health.Verdict{State: health.Unknown}
		decision.Blockers = []Blocker{{Blocker: rule.Blocker{
			Reason: explain.NotJudged, Text: "The manager has not judged the machine yet", EndsWhen: "the manager has judged it",
		}}}
	}
	if Deleting(machine) {
		decision.Blockers = nil
		ask(facts, plan, decision)
		decision.Blockers = slices.DeleteFunc(decision.Blockers, func(blocker Blocker) bool { return blocker.Rule != MachineDeleting })
	}
	return cmp.Or(cond, succeeded)
}

// remediation replaces decision by what the condition kubemend.io/Remediation of the machine says.
func (decision *Decision) remediation(facts *Facts, plan *Plan, cond *metav1.Condition) {
	machine := decision.Target.Machine
	decision.Verdict = health.Verdict{State: health.Unhealthy}
	progress := OwnerOf(machine)
	switch blockers := readBlockers(cond); {
	case cond.Status == metav1.ConditionTrue && cond.Reason == string(PowerCycleInProgress):
		decision.Blockers = blockers
	case cond.Status == metav1.ConditionTrue && cond.Reason == mendv1.RequestedReason && !facts.Template.External:
		decision.Blockers = blockers
		decision.Blockers[0].Rule, decision.Blockers[0].Reason = OtherCheckRemediates, string(OtherCheckRemediates)
	case cond.Status == metav1.ConditionTrue:
		decision.InFlight = true
		if cond.Reason == mendv1.RequestedReason {
			decision.Target.Request = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: machine.Name, CreationTimestamp: cond.LastTransitionTime, // the request has the Machine's name
			}}
		}
	case cond.Reason == mendv1.OwnerSilentReason, progress == CannotRemediate && cond.Reason == OwnerAnswer(machine):
		decision.InFlight = true
	case cond.Reason == string(WithinTimeout):
		decision.Verdict.State, decision.Blockers = health.Pending, blockers
		if plan.Allowed.Status != metav1.ConditionTrue {
			forbidden := rule.Blocker{Reason: plan.Allowed.Reason, Text: plan.Allowed.Message}
			decision.Blockers = append(decision.Blockers, Blocker{Blocker: forbidden})
		}
	default:
		decision.Blockers = blockers
	}
}

// endTooMany adds to a limit that blocks how many machines may be unhealthy for it to end. The condition of the machine does not say.
func (decision *Decision) endTooMany(facts *Facts, plan *Plan) {
	for i := range decision.Blockers {
		if blocker := &decision.Blockers[i]; blocker.Reason == string(TooManyUnhealthy) {
			c := &Case{Facts: facts, Decision: decision, plan: plan}
			blocker.EndsWhen = "at most " + c.notHealthy(max(facts.Limits.AtMost, 0))
			if plan.Population.NotHealthy() < facts.Limits.AtLeast {
				blocker.Cause, blocker.EndsWhen = string(TooFewUnhealthy), "at least "+c.notHealthy(facts.Limits.AtLeast)
			}
		}
	}
}

// How a blocker goes on in the message of the condition kubemend.io/Remediation: when it ends, and what a person can do.
const (
	endsBegin, endsEnd = ". This ends at ", " at the latest"
	toDoBegin          = ". To do: "
)

// line returns blocker as one line of the message of a condition.
func line(blocker *rule.Blocker) string {
	text := cmp.Or(blocker.Brief, blocker.Text)
	if !blocker.Until.IsZero() {
		text += endsBegin + stamp(blocker.Until) + endsEnd
	}
	if blocker.Fix != "" {
		text += toDoBegin + blocker.Fix
	}
	return text
}

// readBlockers returns the blockers that cond lists, one in each line as line wrote it. Only the first has a reason.
func readBlockers(cond *metav1.Condition) []Blocker {
	var blockers []Blocker
	for text := range strings.SplitSeq(strings.TrimPrefix(cond.Message, "* "), "\n* ") {
		blocker := Blocker{}
		text, blocker.Fix, _ = strings.Cut(text, toDoBegin)
		if before, ends, found := strings.Cut(text, endsBegin); found {
			if at, err := time.Parse(time.RFC3339, strings.TrimSuffix(ends, endsEnd)); err == nil {
				text, blocker.Until, blocker.Next = before, at, cond.Reason+" ends at the latest"
			}
		}
		blocker.Text = oneLine(text)
		blockers = append(blockers, blocker)
	}
	blockers[0].Rule, blockers[0].Reason = Reason(cond.Reason), cond.Reason
	return blockers
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
