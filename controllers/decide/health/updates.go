package health

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// updatesWithin is for how long an update in place without progress keeps a machine from being remediated: as long as the firmware of a
// host may take.
const updatesWithin = 2 * time.Hour

// Updating is the condition by which machine is being updated in place; nil if it is not, or if that has failed.
func Updating(machine *clusterv1.Machine) *metav1.Condition {
	cond := meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineUpdatingCondition)
	if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason == clusterv1.MachineInPlaceUpdateFailedReason {
		return nil
	}
	return cond
}

// UpdatingUntil is until when an update in place keeps machine from being remediated; zero if it is not known when it began. Each condition
// of the machine that turns meanwhile is progress, but those that a check sets, and the summaries of these. A stamp of NodeReady is of the
// kubelet's clock, and none if it is in the future. (Cluster API, machine_controller_status.go.)
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
