package main

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// remediationChanged describes a change of a HostRemediation, given how moments are written.
func remediationChanged(written func(time.Time) string) func(was, is *mendv1.HostRemediation) []observation {
	return func(was, is *mendv1.HostRemediation) (seen []observation) {
		switch {
		case is == nil:
			return requestDeleted(was)
		case was == nil:
			return saw(makerOfRequest(is), requestMade, is.Name, "%s", whyMade(is))
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

func whyMade(rem *mendv1.HostRemediation) string {
	if makerOfRequest(rem) == kubemendNodes {
		return fmt.Sprintf("starts the next step: makes HostRemediation %s for Node %s from the template",
			rem.Name, rem.Annotations[nhcv1.NodeNameAnnotation])
	}
	return fmt.Sprintf("the timeout of Machine %[1]s has expired: makes HostRemediation %[1]s from the template", rem.Name)
}

// makerOfRequest is who made a remediation. kubemend signs those of its checks.
func makerOfRequest(rem *mendv1.HostRemediation) string {
	if rem.Labels[nhcv1.PartOfLabel] == nhcv1.PartOf {
		return kubemendNodes
	}
	if rem.Annotations[mendv1.MadeByAnnotation] != "" {
		return kubemend
	}
	return "somebody"
}

// requestDeleted is about a remediation that is gone: its check deleted it because the Machine was healthy again, or Kubernetes
// because the Machine was gone after owner remediation had been requested.
func requestDeleted(was *mendv1.HostRemediation) []observation {
	switch by := makerOfRequest(was); {
	case was.Status.Phase == infrav1.PhaseDeleting:
		return saw(controllerManager, requestGone, was.Name, "deletes HostRemediation %s together with its Machine", was.Name)
	case by == kubemendNodes:
		return saw(by, requestGone, was.Name, "deletes HostRemediation %s, since Node %s is healthy again",
			was.Name, was.Annotations[nhcv1.NodeNameAnnotation])
	default:
		return saw(by, requestGone, was.Name, "deletes HostRemediation %s, since its Machine is healthy again", was.Name)
	}
}

// agentAsked describes a change of a SelfNodeRemediation.
func agentAsked(was, is *unstructured.Unstructured) (seen []observation) {
	switch {
	case is == nil:
		return saw(kubemendNodes, agentRequestGone, was.GetName(), "deletes SelfNodeRemediation %s", was.GetName())
	case was == nil:
		return saw(kubemendNodes, agentRequest, is.GetName(),
			"the timeout of Node %[1]s has expired: makes SelfNodeRemediation %[1]s, the first step", is.GetName())
	}
	_, told := was.GetAnnotations()[nhcv1.TimedOutAnnotation]
	if at, tells := is.GetAnnotations()[nhcv1.TimedOutAnnotation]; !told && tells {
		seen = saw(kubemendNodes, agentStopped, is.GetName(), "stops the first step: annotation %s: %s", nhcv1.TimedOutAnnotation, at)
	}
	// In two conditions the remediator reports on a request.
	processing, succeeded := answer(is, nhcv1.ProcessingCondition), answer(is, nhcv1.SucceededCondition)
	const no = string(metav1.ConditionFalse)
	switch {
	case processing == answer(was, nhcv1.ProcessingCondition) && succeeded == answer(was, nhcv1.SucceededCondition):
		return seen
	case processing == no && succeeded == no:
		return append(seen, saw(agent, agentFailed, is.GetName(), "fails, since the agent on Node %s hangs as well: Processing=%s, Succeeded=%s",
			is.GetName(), processing, succeeded)...)
	}
	return append(seen, saw(agent, agentWorks, is.GetName(), "works on Node %s: Processing=%s, Succeeded=%s",
		is.GetName(), processing, succeeded)...)
}

// answer is the status of a condition, or "unsaid".
func answer(object *unstructured.Unstructured, kind string) string {
	if fields := remediationrequest.Condition(object, kind); fields != nil {
		return fmt.Sprint(fields["status"])
	}
	return "unsaid"
}

// leaseChanged describes a change of the leases that keep checks and node maintenance apart.
func leaseChanged(was, is *coordinationv1.Lease) []observation {
	switch {
	case is == nil && was.Namespace == nhcv1.DefaultLeaseNamespace:
		node := strings.TrimPrefix(was.Name, nhcv1.LeasePrefix)
		return saw(kubemendNodes, leaseGone, node, "deletes the lease on Node %s", node)
	case was == nil && is.Namespace == nhcv1.DefaultLeaseNamespace:
		node := strings.TrimPrefix(is.Name, nhcv1.LeasePrefix)
		return saw(kubemendNodes, leaseTaken, node, "takes the lease on Node %s, which keeps other checks and node maintenance away", node)
	}
	return nil
}
