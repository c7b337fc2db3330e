package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// remediationChanged describes a change of a HostRemediation, given how moments are written.
func remediationChanged(written func(time.Time) string) func(was, is *mendv1.HostRemediation) []observation {
	return func(was, is *mendv1.HostRemediation) []observation {
		switch {
		case is == nil:
			return []observation{requestDeleted(was)}
		case was == nil:
			return []observation{{
				by: makerOfRequest(is), fact: requestMade, about: is.Name,
				text: whyMade(is),
			}}
		}
		var seen []observation
		for _, s := range []*observation{attemptChanged(was, is, written), movedChanged(was, is), bootChanged(was, is, written)} {
			if s != nil {
				s.about = is.Name
				seen = append(seen, *s)
			}
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
func requestDeleted(was *mendv1.HostRemediation) observation {
	s := observation{
		by: makerOfRequest(was), fact: requestGone, about: was.Name,
		text: fmt.Sprintf("deletes HostRemediation %s, since its Machine is healthy again", was.Name),
	}
	if s.by == kubemendNodes {
		s.text = fmt.Sprintf("deletes HostRemediation %s, since Node %s is healthy again", was.Name, was.Annotations[nhcv1.NodeNameAnnotation])
	}
	if was.Status.Phase == infrav1.PhaseDeleting {
		s.by, s.text = controllerManager, fmt.Sprintf("deletes HostRemediation %s together with its Machine", was.Name)
	}
	return s
}

// attemptChanged describes a new attempt, with its deadline.
func attemptChanged(was, is *mendv1.HostRemediation, written func(time.Time) string) *observation {
	if was.Status.Attempt == is.Status.Attempt || is.Status.Deadline == nil {
		return nil
	}
	text := fmt.Sprintf("starts attempt 1 of %d", *is.Spec.Strategy.RetryLimit+1)
	if is.Status.Attempt > 1 {
		text = is.Status.Message // with the reason
	}
	return &observation{
		by: kubemendHost, fact: attemptBegun, number: int(is.Status.Attempt),
		text: fmt.Sprintf("%s. Deadline for the host to be off and without workload: %s", text, written(is.Status.Deadline.Time)),
	}
}

func movedChanged(was, is *mendv1.HostRemediation) *observation {
	if !turned(was, is, infrav1.WorkloadMovedCondition, metav1.ConditionTrue) {
		return nil
	}
	return &observation{
		by: kubemendHost, fact: workloadMoved,
		text: fmt.Sprintf("reports that no pod and no volume is left on Node %s", is.Name),
	}
}

// bootChanged describes the start of the wait for the machine, which has a deadline of its own.
func bootChanged(was, is *mendv1.HostRemediation, written func(time.Time) string) *observation {
	const booting = string(powercycle.Booting)
	if was.Status.Step == booting || is.Status.Step != booting || is.Status.Deadline == nil {
		return nil
	}
	return &observation{
		by: kubemendHost, fact: bootAwaited,
		text: fmt.Sprintf("waits for Machine %s to be healthy until %s; then the attempt has failed", is.Name, written(is.Status.Deadline.Time)),
	}
}
