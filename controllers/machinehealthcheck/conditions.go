package machinehealthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

// markedHealthy reports whether the machine's conditions say already that it is healthy. It is the steady state of nearly
// every machine, so it must cost next to nothing.
func markedHealthy(m *clusterv1.Machine) bool {
	said, external := false, false
	for i := range m.Status.Conditions {
		switch c := &m.Status.Conditions[i]; c.Type {
		case clusterv1.MachineHealthCheckSucceededCondition:
			said = c.Status == metav1.ConditionTrue && c.Reason == clusterv1.MachineHealthCheckSucceededReason &&
				c.Message == "" && c.ObservedGeneration == m.Generation
		case clusterv1.MachineExternallyRemediatedCondition:
			external = true
		}
	}
	if !said || external {
		return false
	}
	for _, c := range m.GetV1Beta1Conditions() {
		if c.Type == clusterv1.MachineHealthCheckSucceededV1Beta1Condition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// marked reports whether the machine's conditions say something that a check said and that is not good.
func marked(m *clusterv1.Machine) bool {
	return markedUnhealthy(m) || conditionOf(m, clusterv1.MachineExternallyRemediatedCondition) != nil
}

// markedUnhealthy reports whether a check has marked m unhealthy.
func markedUnhealthy(m *clusterv1.Machine) bool {
	c := conditionOf(m, clusterv1.MachineHealthCheckSucceededCondition)
	return c != nil && c.Status == metav1.ConditionFalse && !askedByPowerCycle(m)
}

// askedByPowerCycle reports whether the host remediation controller marked m, which no check judged, unhealthy and asked its owner to remediate it,
// which also takes that back.
func askedByPowerCycle(m *clusterv1.Machine) bool {
	c := conditionOf(m, clusterv1.MachineHealthCheckSucceededCondition)
	return c != nil && c.Reason == mendv1.PowerCycleFailedReason
}

// with returns a copy of m, the machine of s as it was last read or written, status alone, that has these conditions.
func (s step) with(w *observed, m *clusterv1.Machine, all []machines.Condition) *clusterv1.Machine {
	next := statusCopy(m)
	for _, c := range all {
		switch {
		case c.Type == machines.HealthCheckSucceeded:
			setHealth(next, c, s.Verdict.Due(w.now), w.now)
		case c.Type == machines.OwnerRemediated && c.Remove:
			dropOwnerRemediated(next)
		case c.Type == machines.OwnerRemediated:
			askOwner(next, w.now)
		case c.Remove:
			conditions.Delete(next, c.Type)
		default:
			conditions.Set(next, at(w.now, metav1.Condition{
				Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: short(s.message(w, c), longestMessage),
			}))
		}
	}
	return next
}

// message is that of c, which is about the request of the machine.
func (s step) message(w *observed, c machines.Condition) string {
	switch c.Because {
	case machines.RequestInTheWay:
		return explain.ForeignRequest(s.facts, s.Target)
	case machines.TemplateRefused:
		return explain.NoTemplate(s.facts)
	case machines.TemplateMissing:
		return fmt.Sprintf("Error retrieving remediation template %s %s/%s", w.remediation.ref.Kind, w.check.Namespace, w.remediation.ref.Name)
	case machines.TemplateUnusable:
		return s.refused.Error()
	}
	return ""
}

func setHealth(m *clusterv1.Machine, c machines.Condition, due []health.Finding, now time.Time) {
	is := metav1.Condition{Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason}
	if is.Status == metav1.ConditionTrue {
		conditions.Set(m, at(now, is))
		v1beta1conditions.MarkTrue(m, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
		return
	}
	f := failureOf(due)
	is.Message = f.message
	conditions.Set(m, at(now, is))
	v1beta1conditions.Set(m, &clusterv1.Condition{
		Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionFalse,
		Severity: clusterv1.ConditionSeverityWarning, Reason: f.v1beta1Reason, Message: f.v1beta1Message,
	})
}

// askOwner asks the machine's owner to remediate it, in each flavour of the condition where it was not asked yet.
// Owners act on the v1beta2 flavour alone. (MachineSet, KubeadmControlPlane.)
func askOwner(m *clusterv1.Machine, now time.Time) {
	if c := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition); c == nil || c.Status == metav1.ConditionTrue {
		conditions.Set(m, at(now, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, Message: "Waiting for remediation",
		}))
	}
	if c := v1beta1conditions.Get(m, clusterv1.MachineOwnerRemediatedV1Beta1Condition); c == nil || c.Status == corev1.ConditionTrue {
		v1beta1conditions.MarkFalse(m, clusterv1.MachineOwnerRemediatedV1Beta1Condition,
			clusterv1.WaitingForRemediationV1Beta1Reason, clusterv1.ConditionSeverityWarning, "")
	}
}

func dropOwnerRemediated(m *clusterv1.Machine) {
	conditions.Delete(m, clusterv1.MachineOwnerRemediatedCondition)
	v1beta1conditions.Delete(m, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
}

func failureOfOurs(external *metav1.Condition) bool {
	return external.Reason == clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason ||
		external.Reason == clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason
}

// releasedCopy returns a copy of m, status alone, without what checks had said of it: a failed health check, a request to its
// owner that the owner did not take up, the request to a provider. It returns nil if there is nothing of it.
func releasedCopy(m *clusterv1.Machine) *clusterv1.Machine {
	next := statusCopy(m)
	if markedUnhealthy(m) {
		conditions.Delete(next, clusterv1.MachineHealthCheckSucceededCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
	}
	if c := conditionOf(next, clusterv1.MachineOwnerRemediatedCondition); c != nil && !askedByPowerCycle(m) && c.Status == metav1.ConditionFalse &&
		c.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason {
		dropOwnerRemediated(next)
	}
	conditions.Delete(next, clusterv1.MachineExternallyRemediatedCondition)
	if equality.Semantic.DeepEqual(next.Status, statusCopy(m).Status) {
		return nil
	}
	return next
}

// statusCopy returns a machine of its own with m's identity and conditions. m is shared with the cache.
func statusCopy(m *clusterv1.Machine) *clusterv1.Machine {
	c := &clusterv1.Machine{}
	c.Name, c.Namespace, c.UID, c.ResourceVersion, c.Generation = m.Name, m.Namespace, m.UID, m.ResourceVersion, m.Generation
	c.Status.Conditions = slices.Clone(m.Status.Conditions)
	if v1beta1 := m.GetV1Beta1Conditions(); v1beta1 != nil {
		c.SetV1Beta1Conditions(slices.Clone(v1beta1))
	}
	return c
}

func at(now time.Time, c metav1.Condition) metav1.Condition {
	c.LastTransitionTime = metav1.NewTime(now)
	return c
}

// failure is a failed health check in the words of both flavours of the condition.
type failure struct {
	message                       string
	v1beta1Reason, v1beta1Message string
}

// v1beta1Reasons are those of the older flavour for what was found.
var v1beta1Reasons = map[health.Reason]string{
	health.MarkedByHand:     clusterv1.HasRemediateMachineAnnotationV1Beta1Reason,
	health.MachineFailed:    clusterv1.MachineHasFailureV1Beta1Reason,
	health.MachineCondition: clusterv1.UnhealthyMachineConditionV1Beta1Reason,
	health.NodeDeleted:      clusterv1.NodeNotFoundV1Beta1Reason,
	health.NodeStartup:      clusterv1.NodeStartupTimeoutV1Beta1Reason,
	health.NodeCondition:    clusterv1.UnhealthyNodeConditionV1Beta1Reason,
}

// failureOf puts due findings into words. (Cluster API; the wording, the order and the empty v1beta1 message of a deleted node are its own.)
func failureOf(due []health.Finding) failure {
	if len(due) == 0 {
		return failure{}
	}
	// The rules are in order of precedence, so the first finding names the reason.
	f := failure{v1beta1Reason: v1beta1Reasons[due[0].Reason]}
	switch due[0].Reason {
	case health.MarkedByHand:
		f.message = "Health check failed: " + due[0].Detail
		f.v1beta1Message = "Marked for remediation via remediate-machine annotation"
		return f
	case health.NodeDeleted:
		f.message = short(bulleted(due), longestMessage)
		return f
	}
	f.message, f.v1beta1Message = short(bulleted(due), longestMessage), short(joined(due), longestV1Beta1Message)
	return f
}

// How many bytes the message of a condition may have; with more the API server refuses the whole status. (Cluster API, the CRD of Machine.)
const (
	longestMessage        = 32768
	longestV1Beta1Message = 10240
)

// short is text, cut where it has more bytes than that.
func short(text string, most int) string {
	const more = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

func bulleted(due []health.Finding) string {
	lines := append(make([]string, 0, 1+len(due)), "Health check failed:")
	for _, f := range due {
		lines = append(lines, "  * "+f.Detail)
	}
	return strings.Join(lines, "\n")
}

func joined(due []health.Finding) string {
	details := make([]string, 0, len(due))
	for _, f := range due {
		details = append(details, f.Detail)
	}
	return strings.Join(details, "; ")
}
