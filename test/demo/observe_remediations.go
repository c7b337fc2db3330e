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
func remediationChanged(written func(time.Time) string) func(was, is *mendv1.HostRemediation) []observation {
	return func(was, is *mendv1.HostRemediation) (seen []observation) {
		switch {
		case is == nil:
			return requestDeleted(was)
		case was == nil:
			return saw(makerOfRequest(is), requestMade, is.Name,
				"the timeout of Machine %[1]s has expired: makes HostRemediation %[1]s from the template", is.Name)
		}
		if was.Status.Attempt != is.Status.Attempt && is.Status.Deadline != nil {
			text := fmt.Sprintf("starts attempt 1 of %d", *is.Spec.Strategy.RetryLimit+1)
			if is.Status.Attempt > 1 {
				text = is.Status.Message // with the reason
			}
			seen = saw(kubemendHost, attemptBegun, is.Name, "%s. Deadline for the host to be off and without workload: %s",
				text, written(is.Status.Deadline.Time))
			seen[0].number = int(is.Status.Attempt)
		}
		if turned(was, is, infrav1.WorkloadMovedCondition, metav1.ConditionTrue) {
			seen = append(seen, saw(kubemendHost, workloadMoved, is.Name, "reports that no pod and no volume is left on Node %s", is.Name)...)
		}
		// The wait for the machine has a deadline of its own.
		const booting = string(powercycle.Booting)
		if was.Status.Step != booting && is.Status.Step == booting && is.Status.Deadline != nil {
			seen = append(seen, saw(kubemendHost, bootAwaited, is.Name, "waits for Machine %s to be healthy until %s; then the attempt has failed",
				is.Name, written(is.Status.Deadline.Time))...)
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
func requestDeleted(was *mendv1.HostRemediation) []observation {
	if was.Status.Phase == infrav1.PhaseDeleting {
		return saw(controllerManager, requestGone, was.Name, "deletes HostRemediation %s together with its Machine", was.Name)
	}
	return saw(makerOfRequest(was), requestGone, was.Name, "deletes HostRemediation %s, since its Machine is healthy again", was.Name)
}
