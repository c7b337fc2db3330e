package main

import (
	"fmt"
	"regexp"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// checkChanged describes a change of a MachineHealthCheck.
func checkChanged(was, is *clusterv1.MachineHealthCheck) []observation {
	if is == nil {
		return nil
	}
	if was == nil {
		was = &clusterv1.MachineHealthCheck{}
	}
	var seen []observation
	for _, describe := range []func(was, is *clusterv1.MachineHealthCheck) *observation{
		pauseChanged, reachChanged, templateFound, countChanged, limitChanged,
	} {
		if s := describe(was, is); s != nil {
			s.about = is.Name
			seen = append(seen, *s)
		}
	}
	return seen
}

func pauseChanged(was, is *clusterv1.MachineHealthCheck) *observation {
	if !turned(was, is, clusterv1.PausedCondition, metav1.ConditionTrue) {
		return nil
	}
	return &observation{
		by: authorOf(is, clusterv1.PausedCondition), fact: coreSkips,
		text: fmt.Sprintf("skips MachineHealthCheck %s: Paused=True", is.Name),
	}
}

func reachChanged(was, is *clusterv1.MachineHealthCheck) *observation {
	s := &observation{by: authorOf(is, mendv1.WorkloadClusterReachable), fact: reachability}
	switch {
	case turned(was, is, mendv1.WorkloadClusterReachable, metav1.ConditionTrue):
		s.text = "the workload cluster is reachable"
	case turned(was, is, mendv1.WorkloadClusterReachable, metav1.ConditionFalse):
		s.text = conditions.GetMessage(is, mendv1.WorkloadClusterReachable)
	default:
		return nil
	}
	return s
}

func templateFound(was, is *clusterv1.MachineHealthCheck) *observation {
	if !turned(was, is, mendv1.RemediationTemplateAvailable, metav1.ConditionTrue) {
		return nil
	}
	template := is.Spec.Remediation.TemplateRef
	return &observation{
		by: authorOf(is, mendv1.RemediationTemplateAvailable), fact: templateUsed,
		text: fmt.Sprintf("found %s %s: unhealthy machines get a request made from it", template.Kind, template.Name),
	}
}

func countChanged(was, is *clusterv1.MachineHealthCheck) *observation {
	healthy, expected := ptr.Deref(is.Status.CurrentHealthy, 0), ptr.Deref(is.Status.ExpectedMachines, 0)
	if healthy == ptr.Deref(was.Status.CurrentHealthy, 0) && expected == ptr.Deref(was.Status.ExpectedMachines, 0) {
		return nil
	}
	allowed := ptr.Deref(is.Status.RemediationsAllowed, 0)
	return &observation{
		by: kubemend, fact: counted, number: int(healthy), of: int(expected),
		text: fmt.Sprintf("%d of %d machines are healthy, remediations allowed: %d", healthy, expected, allowed),
	}
}

func limitChanged(was, is *clusterv1.MachineHealthCheck) *observation {
	const allowed = clusterv1.MachineHealthCheckRemediationAllowedCondition
	before, now := conditions.Get(was, allowed), conditions.Get(is, allowed)
	switch {
	case now == nil || (before != nil && before.Status == now.Status && before.Message == now.Message):
		return nil
	case now.Status == metav1.ConditionFalse:
		return &observation{by: authorOf(is, now.Type), fact: shortCircuited, text: "short-circuit: " + sumOf(now.Message)}
	case before == nil || before.Status == metav1.ConditionTrue:
		return nil
	}
	return &observation{by: authorOf(is, now.Type), fact: allowedAgain, text: "short-circuit over: remediation is allowed again"}
}

// sumOf is the arithmetic in the message of a short-circuit. It comes after Cluster API's own sentence, and classes
// without machines are left out here.
func sumOf(message string) string {
	if _, sum, found := strings.Cut(message, "). "); found {
		message = sum
	}
	return noMachines.ReplaceAllString(message, "")
}

var noMachines = regexp.MustCompile(`\b0 [a-z ]+, |, 0 [a-z ]+`)

// eventChanged describes a new or repeated event. What a change of another object shows as well is left out.
func eventChanged(_, is *eventsv1.Event) []observation {
	by := map[string]string{mendv1.EventRemediationRestricted: kubemend, nhcv1.EventRemediationSkipped: kubemendNodes}
	if is == nil || by[is.Reason] == "" || is.ReportingController != mendv1.FieldOwner && is.ReportingController != "NodeHealthCheck" {
		return nil
	}
	s := observation{
		by: by[is.Reason], fact: restrictedEvent, about: is.Regarding.Name,
		text: fmt.Sprintf("%s event %s on %s %s", is.Type, is.Reason, is.Regarding.Kind, is.Regarding.Name),
	}
	if is.Series != nil {
		s.text = fmt.Sprintf("%s, %d times by now", s.text, is.Series.Count)
	}
	return []observation{s}
}
