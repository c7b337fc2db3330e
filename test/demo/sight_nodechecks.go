package main

import (
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// nodeCheckChanged is what there is to say about a change of a NodeHealthCheck.
func nodeCheckChanged(was, is *nhcv1.NodeHealthCheck) []sighting {
	if is == nil {
		return nil
	}
	if was == nil {
		was = &nhcv1.NodeHealthCheck{}
	}
	var seen []sighting
	for _, look := range []func(was, is *nhcv1.NodeHealthCheck) *sighting{enabledChanged, nodeCountChanged, nodeLimitChanged} {
		if s := look(was, is); s != nil {
			s.by, s.about = kubemendNodes, is.Name
			seen = append(seen, *s)
		}
	}
	return seen
}

func enabledChanged(was, is *nhcv1.NodeHealthCheck) *sighting {
	if !turned(was, is, nhcv1.DisabledCondition, metav1.ConditionFalse) {
		return nil
	}
	var kinds []string
	for _, step := range is.Spec.EscalatingRemediations {
		kinds = append(kinds, step.RemediationTemplate.Kind)
	}
	return &sighting{
		fact: checkEnabled,
		text: fmt.Sprintf("has found the templates: from now on a bad node gets a request made from %s", strings.Join(kinds, ", then from ")),
	}
}

func nodeCountChanged(was, is *nhcv1.NodeHealthCheck) *sighting {
	healthy, observed := ptr.Deref(is.Status.HealthyNodes, 0), ptr.Deref(is.Status.ObservedNodes, 0)
	if healthy == ptr.Deref(was.Status.HealthyNodes, 0) && observed == ptr.Deref(was.Status.ObservedNodes, 0) {
		return nil
	}
	return &sighting{fact: counted, number: healthy, of: observed, text: fmt.Sprintf("%d of %d nodes are healthy", healthy, observed)}
}

func nodeLimitChanged(was, is *nhcv1.NodeHealthCheck) *sighting {
	const allowed = nhcv1.RemediationAllowedCondition
	before, now := conditions.Get(was, allowed), conditions.Get(is, allowed)
	switch {
	case now == nil || (before != nil && before.Status == now.Status && before.Message == now.Message):
		return nil
	case now.Status == metav1.ConditionFalse:
		return &sighting{fact: shortCircuited, text: fmt.Sprintf("RemediationAllowed=False, %s: %s", now.Reason, noMachines.ReplaceAllString(now.Message, ""))}
	case before == nil || before.Status == metav1.ConditionTrue:
		return nil
	}
	return &sighting{fact: allowedAgain, text: "RemediationAllowed=True again"}
}

// agentAsked is what there is to say about a change of a SelfNodeRemediation.
func agentAsked(was, is *unstructured.Unstructured) []sighting {
	switch {
	case is == nil:
		return []sighting{{by: kubemendNodes, fact: agentFree, about: was.GetName(), text: fmt.Sprintf("SelfNodeRemediation %s is deleted", was.GetName())}}
	case was == nil:
		return []sighting{{
			by: kubemendNodes, fact: agentRequest, about: is.GetName(),
			text: fmt.Sprintf("the time of Node %[1]s is over: makes SelfNodeRemediation %[1]s, the first remedy", is.GetName()),
		}}
	}
	_, told := was.GetAnnotations()[nhcv1.TimedOutAnnotation]
	at, tells := is.GetAnnotations()[nhcv1.TimedOutAnnotation]
	var seen []sighting
	if !told && tells {
		seen = append(seen, sighting{
			by: kubemendNodes, fact: agentTold, about: is.GetName(),
			text: fmt.Sprintf("gives it up, and says so to whoever works on it: annotation %s: %s", nhcv1.TimedOutAnnotation, at),
		})
	}
	return append(seen, answerChanged(was, is)...)
}

// answerChanged tells what the remediator says about a request, by the two conditions of the contract.
func answerChanged(was, is *unstructured.Unstructured) []sighting {
	processing, succeeded := answer(is, nhcv1.ProcessingCondition), answer(is, nhcv1.SucceededCondition)
	if processing == answer(was, nhcv1.ProcessingCondition) && succeeded == answer(was, nhcv1.SucceededCondition) {
		return nil
	}
	s := sighting{
		by: agent, fact: agentWorks, about: is.GetName(),
		text: fmt.Sprintf("is at work on Node %s: Processing=%s, Succeeded=%s", is.GetName(), processing, succeeded),
	}
	if processing == string(metav1.ConditionFalse) && succeeded == string(metav1.ConditionFalse) {
		s.fact = agentFailed
		s.text = fmt.Sprintf("cannot help, the agent on Node %s hangs as well: Processing=%s, Succeeded=%s", is.GetName(), processing, succeeded)
	}
	return []sighting{s}
}

// answer is the status of a condition, or "unsaid".
func answer(object *unstructured.Unstructured, kind string) string {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // what is not a list says nothing
	for _, c := range list {
		if fields, ok := c.(map[string]any); ok && fields["type"] == kind {
			return fmt.Sprint(fields["status"])
		}
	}
	return "unsaid"
}

// leaseChanged is what there is to say about the leases by which checks, and node maintenance, keep out of each other's way.
func leaseChanged(was, is *coordinationv1.Lease) []sighting {
	switch {
	case is == nil && was.Namespace == nhcv1.DefaultLeaseNamespace:
		node := strings.TrimPrefix(was.Name, nhcv1.LeasePrefix)
		return []sighting{{by: kubemendNodes, fact: leaseGone, about: node, text: fmt.Sprintf("gives the lease on Node %s back", node)}}
	case was == nil && is.Namespace == nhcv1.DefaultLeaseNamespace:
		node := strings.TrimPrefix(is.Name, nhcv1.LeasePrefix)
		return []sighting{{
			by: kubemendNodes, fact: leaseTaken, about: node,
			text: fmt.Sprintf("takes the lease on Node %s, so that no other check and no maintenance gets at it", node),
		}}
	}
	return nil
}
