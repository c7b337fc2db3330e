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

// remediationChanged tells what there is to say about a change of a HostRemediation, given how moments are written.
func remediationChanged(written func(time.Time) string) func(was, is *mendv1.HostRemediation) []sighting {
	return func(was, is *mendv1.HostRemediation) []sighting {
		switch {
		case is == nil:
			return []sighting{requestDeleted(was)}
		case was == nil:
			return []sighting{{
				by: makerOfRequest(is), fact: requestMade, about: is.Name,
				text: whyMade(is),
			}}
		}
		var seen []sighting
		for _, s := range []*sighting{attemptChanged(was, is, written), movedChanged(was, is), bootChanged(was, is, written)} {
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
		return fmt.Sprintf("it is the next remedy's turn: makes HostRemediation %s for Node %s from the template",
			rem.Name, rem.Annotations[nhcv1.NodeNameAnnotation])
	}
	return fmt.Sprintf("the time of Machine %[1]s is over: makes HostRemediation %[1]s from the template", rem.Name)
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
// because the Machine was gone after it had been handed over.
func requestDeleted(was *mendv1.HostRemediation) sighting {
	s := sighting{
		by: makerOfRequest(was), fact: requestGone, about: was.Name,
		text: fmt.Sprintf("HostRemediation %s is deleted, for its Machine is well again", was.Name),
	}
	if s.by == kubemendNodes {
		s.text = fmt.Sprintf("HostRemediation %s is deleted, for Node %s is well again", was.Name, was.Annotations[nhcv1.NodeNameAnnotation])
	}
	if was.Status.Phase == infrav1.PhaseDeleting {
		s.by, s.text = controllerManager, fmt.Sprintf("HostRemediation %s goes with its Machine", was.Name)
	}
	return s
}

// attemptChanged tells of attempts, each with the moment at which it will have been in vain.
func attemptChanged(was, is *mendv1.HostRemediation, written func(time.Time) string) *sighting {
	if was.Status.Attempt == is.Status.Attempt || is.Status.Deadline == nil {
		return nil
	}
	text := fmt.Sprintf("begins attempt 1 of %d", *is.Spec.Strategy.RetryLimit+1)
	if is.Status.Attempt > 1 {
		text = is.Status.Message // with the reason
	}
	return &sighting{
		by: kubemendHost, fact: attemptBegun, number: int(is.Status.Attempt),
		text: fmt.Sprintf("%s. Its host has until %s to be off and without workload", text, written(is.Status.Deadline.Time)),
	}
}

func movedChanged(was, is *mendv1.HostRemediation) *sighting {
	if !turned(was, is, infrav1.WorkloadMovedCondition, metav1.ConditionTrue) {
		return nil
	}
	return &sighting{
		by: kubemendHost, fact: workloadMoved,
		text: fmt.Sprintf("finds no pod and no volume left on Node %s", is.Name),
	}
}

// bootChanged tells that the wait for the machine begins, which has a deadline of its own.
func bootChanged(was, is *mendv1.HostRemediation, written func(time.Time) string) *sighting {
	const booting = string(powercycle.Booting)
	if was.Status.Step == booting || is.Status.Step != booting || is.Status.Deadline == nil {
		return nil
	}
	return &sighting{
		by: kubemendHost, fact: bootAwaited,
		text: fmt.Sprintf("gives Machine %s until %s to be healthy; else the attempt was in vain", is.Name, written(is.Status.Deadline.Time)),
	}
}
