package machinehealthcheck

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// askedByPowerCycle reports whether the host remediation controller marked machine, which no check judged, unhealthy and asked its owner to
// remediate it, which also takes that back.
func askedByPowerCycle(machine *clusterv1.Machine) bool {
	cond := ConditionOf(machine, clusterv1.MachineHealthCheckSucceededCondition)
	return cond != nil && cond.Reason == mendv1.PowerCycleFailedReason
}

// withConditions returns a copy of machine, status alone, that has these conditions and not those without a status. Held are the findings
// for which it is unhealthy.
func withConditions(machine *clusterv1.Machine, list []metav1.Condition, held []health.Finding, now time.Time) *clusterv1.Machine {
	next := statusCopy(machine)
	for _, cond := range list {
		cond.LastTransitionTime = metav1.NewTime(now)
		switch {
		case cond.Type == HealthCheckSucceeded:
			setHealth(next, cond, held)
		case cond.Type == OwnerRemediated && cond.Status == "":
			dropOwnerRemediated(next)
		case cond.Type == OwnerRemediated:
			askOwner(next, cond)
		case cond.Status == "":
			conditions.Delete(next, cond.Type)
		default:
			cond.Message = health.Short(cond.Message, longestMessage)
			conditions.Set(next, cond)
		}
	}
	return next
}

func setHealth(machine *clusterv1.Machine, cond metav1.Condition, due []health.Finding) {
	if cond.Status == metav1.ConditionTrue {
		conditions.Set(machine, cond)
		v1beta1conditions.MarkTrue(machine, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
		return
	}
	var older string
	cond.Message, older = healthCheckFailed(due)
	conditions.Set(machine, cond)
	v1beta1conditions.Set(machine, &clusterv1.Condition{
		Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionFalse,
		Severity: clusterv1.ConditionSeverityWarning, Reason: reasons[due[0].Reason].v1beta1, Message: older,
	})
}

// How many bytes the message of a condition of a Machine may have; with more the API server refuses the whole status. (Cluster API, the CRD
// of Machine.)
const (
	longestMessage        = 32768
	longestV1Beta1Message = 10240
)

// healthCheckFailedBegin begins the message of a failed health check. (Cluster API)
const healthCheckFailedBegin = "Health check failed:"

// healthCheckFailed is the message of a failed health check in both flavours of the condition. Due are its findings in order of precedence.
// (Cluster API; the wording, the order and the empty v1beta1 message of a deleted node are its own.)
func healthCheckFailed(due []health.Finding) (message, v1beta1 string) {
	if len(due) == 0 {
		return "", ""
	}
	texts := health.Texts(due)
	bulleted := health.Short(healthCheckFailedBegin+"\n  * "+strings.Join(texts, "\n  * "), longestMessage)
	switch due[0].Reason {
	case health.MarkedByHand:
		return healthCheckFailedBegin + " " + texts[0], "Marked for remediation via remediate-machine annotation"
	case health.NodeDeleted:
		return bulleted, ""
	default:
		return bulleted, health.Short(strings.Join(texts, "; "), longestV1Beta1Message)
	}
}

// askOwner asks the machine's owner to remediate it, by cond, in each flavour of the condition where it was not asked yet.
// Owners act on the v1beta2 flavour alone. (MachineSet, KubeadmControlPlane.)
func askOwner(machine *clusterv1.Machine, cond metav1.Condition) {
	if asked := ConditionOf(machine, cond.Type); asked == nil || asked.Status == metav1.ConditionTrue {
		conditions.Set(machine, cond)
	}
	asked := v1beta1conditions.Get(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
	if asked == nil || asked.Status == corev1.ConditionTrue {
		v1beta1conditions.MarkFalse(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition,
			clusterv1.WaitingForRemediationV1Beta1Reason, clusterv1.ConditionSeverityWarning, "")
	}
}

func dropOwnerRemediated(machine *clusterv1.Machine) {
	conditions.Delete(machine, clusterv1.MachineOwnerRemediatedCondition)
	v1beta1conditions.Delete(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
}

// releasedCopy returns a copy of machine, status alone, without the conditions that checks had set: a failed health check, a request to its
// owner that the owner did not take up, the request to a provider. It returns nil if there is nothing of it.
func releasedCopy(machine *clusterv1.Machine) *clusterv1.Machine {
	next := statusCopy(machine)
	if MarkedUnhealthy(machine) {
		conditions.Delete(next, clusterv1.MachineHealthCheckSucceededCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
	}
	asked := ConditionOf(next, OwnerRemediated)
	if asked != nil && !askedByPowerCycle(machine) && asked.Status == metav1.ConditionFalse &&
		asked.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason {
		dropOwnerRemediated(next)
	}
	conditions.Delete(next, clusterv1.MachineExternallyRemediatedCondition)
	capi.DropOwn(next)
	if sameConditions(next, machine) {
		return nil
	}
	return next
}

// sameConditions reports whether a and b have the same conditions, in both flavours. Reflection takes milliseconds for that.
func sameConditions(a, b *clusterv1.Machine) bool {
	return slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(x, y metav1.Condition) bool {
		same := x.LastTransitionTime.Equal(&y.LastTransitionTime)
		x.LastTransitionTime = y.LastTransitionTime
		return same && x == y
	}) && slices.EqualFunc(a.GetV1Beta1Conditions(), b.GetV1Beta1Conditions(), func(x, y clusterv1.Condition) bool {
		same := x.LastTransitionTime.Equal(&y.LastTransitionTime)
		x.LastTransitionTime = y.LastTransitionTime
		return same && x == y
	})
}

// statusCopy returns a machine of its own with its identity and conditions. machine is shared with the cache.
func statusCopy(machine *clusterv1.Machine) *clusterv1.Machine {
	copied := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: machine.Namespace, Name: machine.Name, UID: machine.UID, ResourceVersion: machine.ResourceVersion, Generation: machine.Generation,
	}}
	copied.Status.Conditions = slices.Clone(machine.Status.Conditions)
	if v1beta1 := machine.GetV1Beta1Conditions(); v1beta1 != nil {
		copied.SetV1Beta1Conditions(slices.Clone(v1beta1))
	}
	return copied
}
