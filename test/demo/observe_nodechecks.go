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
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// nodeCheckChanged describes a change of a NodeHealthCheck.
func nodeCheckChanged(was, is *nhcv1.NodeHealthCheck) []observation {
	if is == nil {
		return nil
	}
	if was == nil {
		was = &nhcv1.NodeHealthCheck{}
	}
	var seen []observation
	for _, describe := range []func(was, is *nhcv1.NodeHealthCheck) *observation{enabledChanged, nodeCountChanged, nodeLimitChanged} {
		if s := describe(was, is); s != nil {
			s.by, s.about = kubemendNodes, is.Name
			seen = append(seen, *s)
		}
	}
	return seen
}

func enabledChanged(was, is *nhcv1.NodeHealthCheck) *observation {
	if !turned(was, is, nhcv1.DisabledCondition, metav1.ConditionFalse) {
		return nil
	}
	var kinds []string
	for _, step := range is.Spec.EscalatingRemediations {
		kinds = append(kinds, step.RemediationTemplate.Kind)
	}
	return &observation{
		fact: checkEnabled,
		text: fmt.Sprintf("found the templates: unhealthy nodes get a request made from %s", strings.Join(kinds, ", then from ")),
	}
}

func nodeCountChanged(was, is *nhcv1.NodeHealthCheck) *observation {
	healthy, observed := ptr.Deref(is.Status.HealthyNodes, 0), ptr.Deref(is.Status.ObservedNodes, 0)
	if healthy == ptr.Deref(was.Status.HealthyNodes, 0) && observed == ptr.Deref(was.Status.ObservedNodes, 0) {
		return nil
	}
	return &observation{fact: counted, number: healthy, of: observed, text: fmt.Sprintf("%d of %d nodes are healthy", healthy, observed)}
}

func nodeLimitChanged(was, is *nhcv1.NodeHealthCheck) *observation {
	const allowed = nhcv1.RemediationAllowedCondition
	before, now := conditions.Get(was, allowed), conditions.Get(is, allowed)
	switch {
	case now == nil || (before != nil && before.Status == now.Status && before.Message == now.Message):
		return nil
	case now.Status == metav1.ConditionFalse:
		sum := noMachines.ReplaceAllString(now.Message, "")
		return &observation{fact: shortCircuited, text: fmt.Sprintf("RemediationAllowed=False, %s: %s", now.Reason, sum)}
	case before == nil || before.Status == metav1.ConditionTrue:
		return nil
	}
	return &observation{fact: allowedAgain, text: "RemediationAllowed=True again"}
}

// agentAsked describes a change of a SelfNodeRemediation.
func agentAsked(was, is *unstructured.Unstructured) []observation {
	switch {
	case is == nil:
		return []observation{{
			by: kubemendNodes, fact: agentRequestGone, about: was.GetName(), text: fmt.Sprintf("deletes SelfNodeRemediation %s", was.GetName()),
		}}
	case was == nil:
		return []observation{{
			by: kubemendNodes, fact: agentRequest, about: is.GetName(),
			text: fmt.Sprintf("the timeout of Node %[1]s has expired: makes SelfNodeRemediation %[1]s, the first step", is.GetName()),
		}}
	}
	_, told := was.GetAnnotations()[nhcv1.TimedOutAnnotation]
	at, tells := is.GetAnnotations()[nhcv1.TimedOutAnnotation]
	var seen []observation
	if !told && tells {
		seen = append(seen, observation{
			by: kubemendNodes, fact: agentStopped, about: is.GetName(),
			text: fmt.Sprintf("stops the first step: annotation %s: %s", nhcv1.TimedOutAnnotation, at),
		})
	}
	return append(seen, answerChanged(was, is)...)
}

// answerChanged describes a change of the two conditions in which the remediator reports on a request.
func answerChanged(was, is *unstructured.Unstructured) []observation {
	processing, succeeded := answer(is, nhcv1.ProcessingCondition), answer(is, nhcv1.SucceededCondition)
	if processing == answer(was, nhcv1.ProcessingCondition) && succeeded == answer(was, nhcv1.SucceededCondition) {
		return nil
	}
	s := observation{
		by: agent, fact: agentWorks, about: is.GetName(),
		text: fmt.Sprintf("works on Node %s: Processing=%s, Succeeded=%s", is.GetName(), processing, succeeded),
	}
	if processing == string(metav1.ConditionFalse) && succeeded == string(metav1.ConditionFalse) {
		s.fact = agentFailed
		s.text = fmt.Sprintf("fails, since the agent on Node %s hangs as well: Processing=%s, Succeeded=%s", is.GetName(), processing, succeeded)
	}
	return []observation{s}
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
		return []observation{{by: kubemendNodes, fact: leaseGone, about: node, text: fmt.Sprintf("deletes the lease on Node %s", node)}}
	case was == nil && is.Namespace == nhcv1.DefaultLeaseNamespace:
		node := strings.TrimPrefix(is.Name, nhcv1.LeasePrefix)
		return []observation{{
			by: kubemendNodes, fact: leaseTaken, about: node,
			text: fmt.Sprintf("takes the lease on Node %s, which keeps other checks and node maintenance away", node),
		}}
	}
	return nil
}
