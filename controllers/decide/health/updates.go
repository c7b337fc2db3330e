package health

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// updatesWithin is how long an in-place update without progress blocks remediation: the time that a firmware update of a host may take.
const updatesWithin = 2 * time.Hour

// Updating returns the condition Updating of machine; nil if no in-place update is under way, or if the update has failed.
func Updating(machine *clusterv1.Machine) *metav1.Condition {
	cond := meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineUpdatingCondition)
	if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason == clusterv1.MachineInPlaceUpdateFailedReason {
		return nil
	}
	return cond
}

// UpdatingUntil returns until when an in-place update blocks the remediation of machine; zero if the beginning of the update is not known.
// Each transition of a condition counts as progress, except for conditions that a check sets, and their summaries. The lastTransitionTime
// of NodeReady comes from the kubelet's clock (Cluster API, machine_controller_status.go), so a time in the future does not count.
func UpdatingUntil(machine *clusterv1.Machine, now time.Time) time.Time {
	updating := Updating(machine)
	if updating == nil || updating.LastTransitionTime.IsZero() {
		return time.Time{}
	}
	last := updating.LastTransitionTime.Time
	for i := range machine.Status.Conditions {
		switch cond := &machine.Status.Conditions[i]; cond.Type {
		case clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition,
			clusterv1.MachineExternallyRemediatedCondition, mendv1.Remediation, mendv1.SpareHostAvailable,
			clusterv1.MachineReadyCondition, clusterv1.MachineAvailableCondition:
		default:
			if turned := cond.LastTransitionTime.Time; turned.After(last) && !turned.After(now) {
				last = turned
			}
		}
	}
	return last.Add(updatesWithin)
}
