package machinehealthcheck

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:depguard,staticcheck // users may still apply it
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// RemediationAllowed is a condition of a check, and its reason while remediation is allowed.
const RemediationAllowed = clusterv1.MachineHealthCheckRemediationAllowedCondition

// checkConditions returns the conditions of the check to set or to remove: those that kubemend may write and that are known.
func checkConditions(facts *Facts, plan *Plan) []metav1.Condition {
	switch {
	case facts.Mode == Paused && facts.ActsUnclaimed && !Claimed(facts.Check): // of a claimed check core writes this condition
		pauses := facts.pauses()
		why := make([]string, 0, len(pauses))
		for _, pause := range pauses {
			why = append(why, pause.wire)
		}
		paused := condition(clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason, strings.Join(why, ", "))
		return []metav1.Condition{paused}
	case (facts.Mode == NoCluster || facts.Mode == BadSelector) && (Claimed(facts.Check) || facts.ActsUnclaimed):
		return []metav1.Condition{plan.Allowed}
	case facts.Mode != Active:
		return nil
	}
	conditions := []metav1.Condition{plan.Reach, exclusiveTargets(facts), effective(facts)}
	if facts.Settled() {
		conditions = append(conditions, plan.Allowed, sparesAwaited(facts, plan))
	}
	if facts.Template.Known || facts.Template.Missing != "" {
		conditions = append(conditions, templateAvailable(facts))
	}
	if back, set := capacityBack(facts); set {
		conditions = append(conditions, back)
	}
	if !Claimed(facts.Check) {
		conditions = append(conditions, condition(clusterv1.PausedCondition, metav1.ConditionFalse, clusterv1.NotPausedReason, ""))
	}
	return conditions
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// limit returns the blocker of all machines of the check; nil if there is none.
func limit(facts *Facts, plan *Plan) *Blocker {
	c := &Case{Facts: facts, Decision: &Decision{}, plan: plan}
	if r := first(rules, func(r Rule) bool { return r.asked == ofLimits && r.When(c) }); r != nil {
		return new(r.blocker(c))
	}
	return nil
}

func allowed(facts *Facts, plan *Plan) metav1.Condition {
	if blocker := limit(facts, plan); blocker != nil {
		return condition(RemediationAllowed, metav1.ConditionFalse, blocker.Reason, blocker.Text)
	}
	message := ""
	if by := facts.Allowed; by != nil {
		message = fmt.Sprintf("%s allows %s to be unhealthy until %s", by.Ref, &by.MaxUnhealthy, stamp(by.Until))
	}
	return condition(RemediationAllowed, metav1.ConditionTrue, RemediationAllowed, message)
}

// restriction returns the reason if the limits block an unhealthy machine or cannot be parsed; otherwise "". Pending machines often exceed
// the limits earlier, but a warning before a machine is unhealthy would warn of every rollout. Cluster API does not warn then either.
func restriction(plan *Plan) string {
	reason := Reason(plan.Allowed.Reason)
	if reason == InvalidLimit || reason == TooManyUnhealthy && plan.Population.Unhealthy > 0 {
		return string(reason)
	}
	return ""
}

// reach returns the condition WorkloadClusterReachable: whether nodes can be judged, and since when.
func reach(facts *Facts) metav1.Condition {
	before := &facts.Reach
	cond := metav1.Condition{Type: mendv1.WorkloadClusterReachable, LastTransitionTime: metav1.NewTime(facts.Now.Truncate(time.Second))}
	switch {
	case facts.ReachStands():
		cond.Status, cond.Reason = before.Status, before.Reason
	case facts.Link == health.Unsure:
		cond.Status, cond.Reason = metav1.ConditionUnknown, mendv1.NotInitializedReason
	case facts.Link == health.Up && (before.Status == metav1.ConditionFalse || before.Reason == mendv1.ReachableAgainReason):
		cond.Status, cond.Reason = metav1.ConditionTrue, mendv1.ReachableAgainReason
	case facts.Link == health.Up:
		cond.Status, cond.Reason = metav1.ConditionTrue, mendv1.ReachableReason
	case facts.Outage.Changed != "":
		cond.Status, cond.Reason = metav1.ConditionFalse, mendv1.ChangedReason
	case facts.Outage.Refused != "":
		cond.Status, cond.Reason = metav1.ConditionFalse, mendv1.KubeconfigRefusedReason
	default:
		cond.Status, cond.Reason = metav1.ConditionFalse, mendv1.UnreachableReason
	}
	if before.Status == cond.Status {
		cond.LastTransitionTime = before.LastTransitionTime
	}
	cond.Message = reachText(facts, cond)
	return cond
}

// reachText returns why nodes cannot be judged, and since when; empty if they can.
func reachText(facts *Facts, cond metav1.Condition) string {
	switch {
	case facts.ReachStands():
		return facts.Reach.Message
	case !facts.Initialized():
		return "The control plane of the Cluster is not initialized"
	case cond.Status == metav1.ConditionUnknown:
		return "The first connection to the workload cluster is being made"
	case cond.Status == metav1.ConditionTrue:
		return ""
	}
	message := "The workload cluster has been out of reach since " + stamp(cond.LastTransitionTime.Time) +
		"; kubemend cannot judge nodes, so it starts and ends no remediation because of a node"
	if facts.Outage.Changed != "" {
		message = fmt.Sprintf("Cluster %s: %s. %s", facts.Check.Spec.ClusterName, facts.Outage.Changed, message)
	}
	if facts.Outage.Silent {
		message = "The API server answers probes, but other requests get no answer or an endless one. " +
			"kubemend sends one request at a time, with pauses. " + message
	}
	if facts.Outage.Refused != "" {
		message = fmt.Sprintf("Secret %s-kubeconfig: %s. %s", facts.Check.Spec.ClusterName, facts.Outage.Refused, message)
	}
	return message
}

// ReachStands reports whether the condition WorkloadClusterReachable keeps its status and message, because an answer is awaited.
func (facts *Facts) ReachStands() bool {
	return facts.Initialized() && facts.Link == health.Unsure && facts.Reach.Status != ""
}

// exclusiveTargets returns the condition TargetsExclusive: which other checks select machines of this one. It is False if kubemend does not
// act on one of them, because another controller then sets the same conditions.
func exclusiveTargets(facts *Facts) metav1.Condition {
	var lines []string
	cond := condition(mendv1.TargetsExclusive, metav1.ConditionTrue, mendv1.ExclusiveReason, "")
	for _, other := range facts.Overlaps {
		if other.Shared == 0 {
			continue
		}
		acts := "each acts by its own rules and limits, and one remediation of a machine is in progress at a time"
		if !other.Acting {
			acts = "kubemend does not act on that check; as this check is older, kubemend acts on these machines"
			if other.Older {
				acts = "kubemend does not act on that check; as that check is older, kubemend leaves these machines alone"
			}
			cond.Status, cond.Reason = metav1.ConditionFalse, mendv1.OverlapReason
		}
		const shared = "* %d of %d targets are selected by MachineHealthCheck %s too: %s"
		lines = append(lines, fmt.Sprintf(shared, other.Shared, len(facts.Targets), other.Name, acts))
	}
	cond.Message = strings.Join(lines, "\n")
	return cond
}

// templateAvailable returns the condition RemediationTemplateAvailable; to remove if the check has no template.
func templateAvailable(facts *Facts) metav1.Condition {
	switch {
	case !facts.Template.External:
		return metav1.Condition{Type: mendv1.RemediationTemplateAvailable}
	case facts.Template.Refused:
		return condition(mendv1.RemediationTemplateAvailable, metav1.ConditionFalse, mendv1.TemplateRefusedReason, facts.noTemplate())
	case facts.Template.Missing != "":
		return condition(mendv1.RemediationTemplateAvailable, metav1.ConditionFalse, mendv1.TemplateNotFoundReason, facts.noTemplate())
	}
	return condition(mendv1.RemediationTemplateAvailable, metav1.ConditionTrue, mendv1.TemplateFoundReason, "")
}

// capacityBack returns the condition CapacityBack: how many remediations it is missing for, and what the oldest waits for. set is false if
// that is not known, or if the check never missed capacity: it has no such condition then.
func capacityBack(facts *Facts) (cond metav1.Condition, set bool) {
	capacity := &facts.Capacity
	if !capacity.Known {
		return metav1.Condition{}, false
	}
	if capacity.Missing == 0 {
		back := condition(mendv1.CapacityBack, metav1.ConditionTrue, mendv1.CapacityBackReason, "")
		return back, ConditionOf(facts.Check, mendv1.CapacityBack) != nil
	}
	message := "The capacity of " + capacity.Target + " is not back"
	if capacity.Missing > 1 {
		message = fmt.Sprintf("The capacity of %d remediations is not back. The longest wait is for %s",
			capacity.Missing, capacity.Target)
	}
	if capacity.Message != "" {
		message += ": " + capacity.Message
	}
	return condition(mendv1.CapacityBack, metav1.ConditionFalse, capacity.Reason, message), true
}

// selectsWithin is how long after a check its Machines, or the MachineDeployment that makes them, may be created.
const selectsWithin = 10 * time.Minute

// effective returns the condition Effective: False while the check, or one of its rules, can never act as written, or while a wrong clock
// keeps machines from being judged. Otherwise it is to be removed. Nothing else on the check would show these faults.
func effective(facts *Facts) metav1.Condition {
	var reasons, lines []string
	flaw := func(reason, text string) {
		reasons, lines = append(reasons, reason), append(lines, text)
	}
	specs := map[string]any{
		clusterv1.GroupVersion.String():      &clusterv1.MachineHealthCheckSpec{},
		clusterv1beta1.GroupVersion.String(): &clusterv1beta1.MachineHealthCheckSpec{},
	}
	if dropped := rule.DroppedField(facts.Check.Annotations, specs); dropped != "" {
		flaw(mendv1.FieldDroppedReason, dropped)
	}
	for i, cond := range facts.Check.Spec.Checks.UnhealthyNodeConditions {
		switch cond.Status {
		case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		default:
			flaw(mendv1.NoSuchStatusReason, fmt.Sprintf("spec.checks.unhealthyNodeConditions[%d] is never met: "+
				"no condition has the status %q, but True, False or Unknown", i, cond.Status))
		}
	}
	if len(facts.Policy.Rules) == 0 && facts.Policy.NodeStartup == 0 {
		flaw(mendv1.NoRulesReason, "The check has no rule, and spec.checks.nodeStartupTimeoutSeconds is 0: "+
			"only a machine whose node is deleted, whose provider says that it has failed, or that a person marks is remediated")
	}
	if facts.SelectsNothing && facts.Initialized() && facts.Now.Sub(facts.Check.CreationTimestamp.Time) >= selectsWithin {
		flaw(mendv1.SelectsNothingReason, "spec.selector matches no Machine of Cluster "+facts.Check.Spec.ClusterName+
			", and the labels of no template of a MachineDeployment or MachineSet: labels of Nodes are not those of Machines")
	}
	if facts.Policy.Misjudges(facts.ClockAhead) {
		flaw(string(ManagerClockWrong), "The clock of the manager differs from that of an API server, here or of Cluster "+
			facts.Check.Spec.ClusterName+", by more than the shortest timeout of the check: kubemend judges no machine until the "+
			"clocks agree. Find out from kubemend_clock_error_seconds which clock is wrong, and set it")
	}
	if len(lines) == 0 {
		return metav1.Condition{Type: mendv1.Effective}
	}
	return condition(mendv1.Effective, metav1.ConditionFalse, reasons[0], bulleted(lines))
}

// bulleted returns lines as Cluster API lists them in a message; a single line has no bullet.
func bulleted(lines []string) string {
	if len(lines) == 1 {
		return lines[0]
	}
	return "* " + strings.Join(lines, "\n* ")
}

// Settings are the limits of a check.
type Settings struct {
	// Limits are absolute numbers.
	Limits budget.Limits
	// Invalid says which field cannot be parsed; nil if all can.
	Invalid *InvalidField
	// Limited says that a number of unhealthy machines can block all remediations.
	Limited bool
}

// SettingsOf returns the limits of check, given the number of its targets. As in Cluster API, the range takes precedence over the number,
// and without either all machines may be remediated.
func SettingsOf(check *clusterv1.MachineHealthCheck, total int) Settings {
	settings := Settings{Limits: budget.Limits{AtMost: budget.All.Of(total)}}
	trigger := check.Spec.Remediation.TriggerIf
	most := trigger.UnhealthyLessThanOrEqualTo
	settings.Limited = trigger.UnhealthyInRange != "" || most != nil && most.String() != "100%"
	switch {
	case trigger.UnhealthyInRange != "":
		within, err := budget.ParseRange(trigger.UnhealthyInRange)
		if err != nil {
			settings.Invalid = &InvalidField{"spec.remediation.triggerIf.unhealthyInRange", err}
			break
		}
		settings.Limits.AtLeast, settings.Limits.AtMost = within.Min, within.Max
	case most != nil:
		amount, err := budget.ParseAmount(most.String())
		if err != nil {
			settings.Invalid = &InvalidField{"spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", err}
			break
		}
		settings.Limits.AtMost = amount.Of(total)
	}
	return settings
}

// InvalidField is a field of a check that cannot be parsed.
type InvalidField struct {
	Field string // its path
	Err   error
}

// Error returns the field and what is wrong with it.
func (e *InvalidField) Error() string { return e.Field + ": " + e.Err.Error() }

// MostUnhealthy returns unhealthyLessThanOrEqualTo of check as it is written, or its default.
func MostUnhealthy(check *clusterv1.MachineHealthCheck) string {
	if limit := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; limit != nil {
		return limit.String()
	}
	return budget.All.String()
}

// LimitText returns the limits of check as they are written, with the field names of the served API version.
func LimitText(check *clusterv1.MachineHealthCheck) string {
	if written := check.Spec.Remediation.TriggerIf.UnhealthyInRange; written != "" {
		return "unhealthyInRange " + written
	}
	return "unhealthyLessThanOrEqualTo " + MostUnhealthy(check)
}
