package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// remediationChanged describes a change of a HostRemediation, given how moments are written.
func remediationChanged(written func(time.Time) string) func(old, updated *mendv1.HostRemediation) []observation {
	return func(old, updated *mendv1.HostRemediation) (seen []observation) {
		switch {
		case updated == nil:
			return requestDeleted(old)
		case old == nil:
			return saw(makerOfRequest(updated), requestMade, updated.Name,
				"the timeout of Machine %[1]s has expired: makes HostRemediation %[1]s from the template", updated.Name)
		}
		if old.Status.Attempt != updated.Status.Attempt && updated.Status.Deadline != nil {
			text := fmt.Sprintf("starts attempt 1 of %d", *updated.Spec.Strategy.RetryLimit+1)
			if updated.Status.Attempt > 1 {
				text = updated.Status.Message // with the reason
			}
			seen = saw(kubemendHost, attemptBegun, updated.Name, "%s. Deadline for the host to be off and without workload: %s",
				text, written(updated.Status.Deadline.Time))
			seen[0].number = int(updated.Status.Attempt)
		}
		if turned(old, updated, infrav1.WorkloadMovedCondition, metav1.ConditionTrue) {
			seen = append(seen, saw(kubemendHost, workloadMoved, updated.Name,
				"reports that no pod and no volume is left on Node %s", updated.Name)...)
		}
		// The wait for the machine has a deadline of its own.
		const booting = string(powercycle.Booting)
		if old.Status.Step != booting && updated.Status.Step == booting && updated.Status.Deadline != nil {
			seen = append(seen, saw(kubemendHost, bootAwaited, updated.Name,
				"waits for Machine %s to be healthy until %s; then the attempt has failed",
				updated.Name, written(updated.Status.Deadline.Time))...)
		}
		return seen
	}
}

// makerOfRequest is who made a remediation. kubemend signs those of its checks.
func makerOfRequest(rem *mendv1.HostRemediation) string {
	if rem.Annotations[mendv1.MadeByAnnotation] != "" {
		return kubemend
	}
	return "somebody"
}

// requestDeleted is about a remediation that is gone: its check deleted it because the Machine was healthy again, or Kubernetes
// because the Machine was gone after owner remediation had been requested.
func requestDeleted(old *mendv1.HostRemediation) []observation {
	if old.Status.Phase == infrav1.PhaseDeleting {
		return saw(controllerManager, requestGone, old.Name, "deletes HostRemediation %s together with its Machine", old.Name)
	}
	return saw(makerOfRequest(old), requestGone, old.Name, "deletes HostRemediation %s, since its Machine is healthy again", old.Name)
}
