package machinehealthcheck

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

const (
	// CyclesUnreadFor is for how long no remediation starts for a machine on a host while it is not known which power cycles are in
	// progress, and how long a power cycle counts as under way before anybody has put a finalizer on it.
	CyclesUnreadFor = 10 * time.Minute
	// cycleDeletingFor is how long a power cycle that is being deleted holds its machine. Its controller gives the host back in minutes, if
	// it runs.
	cycleDeletingFor = time.Hour
)

// CycleUnderWay reports whether a power cycle is not over: its finalizer keeps it until its host is on and its node is free again, which
// must not take for ever once it is being deleted.
func CycleUnderWay(cycle *metav1.PartialObjectMetadata, now time.Time) bool {
	return heldByFinalizer(cycle) && cycle.DeletionTimestamp.IsZero() || now.Before(cycleUntil(cycle))
}

func heldByFinalizer(cycle *metav1.PartialObjectMetadata) bool {
	return slices.Contains(cycle.Finalizers, mendv1.HostRemediationFinalizer) || slices.Contains(cycle.Finalizers, infrav1.RemediationFinalizer)
}

// cycleUntil is until when a power cycle counts as under way although no controller has taken it on, or although it is being deleted; zero
// if that does not matter.
func cycleUntil(cycle *metav1.PartialObjectMetadata) time.Time {
	held, deleting := heldByFinalizer(cycle), !cycle.DeletionTimestamp.IsZero()
	if held && deleting {
		return cycle.DeletionTimestamp.Add(cycleDeletingFor)
	}
	if _, begun := cycle.Annotations[mendv1.PowerCycleAnnotation]; begun || held || deleting {
		return time.Time{}
	}
	return cycle.CreationTimestamp.Add(CyclesUnreadFor)
}
