package machinehealthcheck

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/cluster-api/util/secret"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// maxTargets is how many names the field status.targets can hold. Checks of more machines work; the list is cut.
const maxTargets = 10000

// plan is what was decided, and the facts that it was decided on.
type plan struct {
	machines.Plan
	facts machines.Facts
}

// any reports whether is says so of a decision about a machine about which there is something to decide.
func (s plan) any(is func(*machines.Decision) bool) bool {
	return slices.ContainsFunc(s.Open, func(i int) bool { return is(s.Decisions[i]) })
}

// settled reports whether what is seen can be said. While an answer is awaited the numbers stand as they were: all machines are
// unknown then, and to say so at every start of the manager, and at every probe that is lost, would look like an outage.
func (w *observed) settled() bool { return !w.initialized || w.link.Link != workload.Unsure }

// statusAfter returns the check with the status that follows from s and from what became of it.
func statusAfter(w *observed, s plan, is result) *clusterv1.MachineHealthCheck {
	next := w.check.DeepCopy()
	if w.settled() {
		next.Status.ExpectedMachines = ptr.To(clamp(s.Population.Total()))
		next.Status.CurrentHealthy = ptr.To(clamp(s.Population.Healthy))
		next.Status.RemediationsAllowed = ptr.To(clamp(s.Grant.Remaining))
		next.Status.Targets = targetNames(w)
		if !is.failed {
			next.Status.ObservedGeneration = next.Generation
		}
		setAllowed(next, at(w.now, allowed(s)))
		setStorm(next, w, s)
	}
	conditions.Set(next, w.reach)
	conditions.Set(next, at(w.now, exclusive(w)))
	setTemplate(next, w, s)
	setRequests(next, w, s, is)
	if !claimed(next) {
		conditions.Set(next, at(w.now, metav1.Condition{
			Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason,
		}))
	}
	return next
}

// pausedStatus returns the check with the condition Paused, for a check that core does not look after.
func pausedStatus(w *observed) *clusterv1.MachineHealthCheck {
	next := w.check.DeepCopy()
	conditions.Set(next, at(w.now, metav1.Condition{
		Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason, Message: pausedMessage(w.check, w.cluster),
	}))
	return next
}

// orphanedStatus returns the check with the reason why there is nothing to check.
func orphanedStatus(w *observed) *clusterv1.MachineHealthCheck {
	next := w.check.DeepCopy()
	setAllowed(next, at(w.now, metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse, Reason: mendv1.ClusterNotFoundReason,
		Message: explain.ClusterNotFound(ptr.To(w.about(nil))),
	}))
	return next
}

func clamp(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

func targetNames(w *observed) []string {
	names := make([]string, 0, min(len(w.targets), maxTargets))
	for i := range w.targets[:min(len(w.targets), maxTargets)] {
		names = append(names, w.targets[i].machine.Name)
	}
	return names
}

// allowed is the condition RemediationAllowed.
func allowed(p plan) metav1.Condition {
	reason, message := explain.RemediationAllowed(&p.facts, &p.Plan)
	return metav1.Condition{Type: p.Allowed.Type, Status: metav1.ConditionStatus(p.Allowed.Status), Reason: reason, Message: message}
}

// setAllowed writes one condition in both flavours.
func setAllowed(next *clusterv1.MachineHealthCheck, c metav1.Condition) {
	conditions.Set(next, c)
	if c.Status == metav1.ConditionTrue {
		v1beta1conditions.MarkTrue(next, clusterv1.RemediationAllowedV1Beta1Condition)
		return
	}
	v1beta1conditions.Set(next, &clusterv1.Condition{
		Type: clusterv1.RemediationAllowedV1Beta1Condition, Status: corev1.ConditionFalse,
		Severity: clusterv1.ConditionSeverityWarning, Reason: c.Reason, Message: c.Message,
	})
}

// mostUnhealthy is the limit of a check without a range, as it is written.
func mostUnhealthy(check *clusterv1.MachineHealthCheck) string {
	if limit := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; limit != nil {
		return limit.String()
	}
	return budget.All.String()
}

// setTemplate writes what became of the template, and setRequests of the requests made from it.
func setTemplate(next *clusterv1.MachineHealthCheck, w *observed, s plan) {
	if !w.remediation.external {
		conditions.Delete(next, mendv1.RemediationTemplateAvailable)
	}
	switch {
	case w.remediation.missing == "" && w.remediation.seen():
		v1beta1conditions.Delete(next, clusterv1.ExternalRemediationTemplateAvailableV1Beta1Condition)
	case w.remediation.missing != "":
		v1beta1conditions.MarkFalse(next, clusterv1.ExternalRemediationTemplateAvailableV1Beta1Condition,
			clusterv1.ExternalRemediationTemplateNotFoundV1Beta1Reason, clusterv1.ConditionSeverityError, "%s", w.remediation.missing)
	}
	if !w.remediation.external || !w.remediation.known && w.remediation.missing == "" {
		return
	}
	c := metav1.Condition{Type: mendv1.RemediationTemplateAvailable, Status: metav1.ConditionTrue, Reason: mendv1.TemplateFoundReason}
	if w.remediation.missing != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, w.remediation.lacks(), explain.NoTemplate(&s.facts)
	}
	conditions.Set(next, at(w.now, c))
}

func setRequests(next *clusterv1.MachineHealthCheck, w *observed, s plan, is result) {
	allMade := is.started || w.remediation.seen() && w.settled() && s.Population.Waiting == 0 && !s.JustSeen
	switch {
	case is.refused != nil:
		v1beta1conditions.MarkFalse(next, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition,
			clusterv1.ExternalRemediationRequestCreationFailedV1Beta1Reason, clusterv1.ConditionSeverityError, "%s", is.refused.Error())
	case allMade:
		v1beta1conditions.Delete(next, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition)
	}
}

// reachCondition says whether nodes can be judged, and since when they cannot. was is the condition
// until now; while the first connection is being made it stands as it was.
func reachCondition(was *metav1.Condition, w *observed) metav1.Condition {
	c := metav1.Condition{Type: mendv1.WorkloadClusterReachable, LastTransitionTime: metav1.NewTime(w.now.Truncate(time.Second))}
	switch {
	case !w.initialized:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, mendv1.NotInitializedReason, "The control plane of the Cluster is not initialized"
	case w.link.Reported && was != nil && was.Status == metav1.ConditionFalse && was.Message != "":
		return *was
	case w.link.Link == workload.Up:
		c.Status, c.Reason = metav1.ConditionTrue, reachableReason(was)
	case w.link.Link == workload.Unsure && was != nil:
		return *was
	case w.link.Link == workload.Unsure:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, mendv1.NotInitializedReason, "The first connection to the workload cluster is being made"
	default:
		c.Status, c.Reason = metav1.ConditionFalse, mendv1.UnreachableReason
		if w.link.Refused != nil {
			c.Reason = mendv1.KubeconfigRefusedReason
		}
	}
	if was != nil && was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	if c.Status == metav1.ConditionFalse {
		c.Message = unreachable(w, c.LastTransitionTime)
	}
	return c
}

// unreachable says that the workload cluster has been out of reach since then, and why.
func unreachable(w *observed, since metav1.Time) string {
	message := fmt.Sprintf("The workload cluster has been out of reach since %s; machines cannot be judged as far as their nodes are concerned, "+
		"and nothing is started or ended because of them", since.UTC().Format(time.RFC3339))
	if w.link.Silent {
		message = "The API server answers probes, and leaves other requests unanswered or answers them without end, " +
			"so it is asked one at a time, after pauses. " + message
	}
	if w.link.Refused != nil {
		message = fmt.Sprintf("Secret %s-%s: %s. %s", w.cluster.Name, secret.Kubeconfig, w.link.Refused, message)
	}
	return message
}

// reachableReason is why a cluster is in reach that was as was says.
func reachableReason(was *metav1.Condition) string {
	if was != nil && (was.Status == metav1.ConditionFalse || was.Reason == mendv1.ReachableAgainReason) {
		return mendv1.ReachableAgainReason
	}
	return mendv1.ReachableReason
}

// exclusive says whether other checks select machines of this one. Both say so; the older one acts.
func exclusive(w *observed) metav1.Condition {
	c := metav1.Condition{Type: mendv1.TargetsExclusive, Status: metav1.ConditionTrue, Reason: mendv1.ExclusiveReason}
	var lines []string
	for _, other := range w.others {
		shared := 0
		for i := range w.targets {
			if other.selector.Matches(labels.Set(w.targets[i].machine.Labels)) {
				shared++
			}
		}
		if shared == 0 {
			continue
		}
		who := "this check is older and acts on them"
		if other.older {
			who = "that check is older and acts on them"
		}
		lines = append(lines, fmt.Sprintf("* %d of %d targets are selected by MachineHealthCheck %s too: %s", shared, len(w.targets), other.name, who))
	}
	if len(lines) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, mendv1.OverlapReason, strings.Join(lines, "\n")
	}
	return c
}
