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

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// checkChanged describes a change of a MachineHealthCheck.
func checkChanged(was, is *clusterv1.MachineHealthCheck) (seen []observation) {
	if is == nil {
		return nil
	}
	if was == nil {
		was = &clusterv1.MachineHealthCheck{}
	}
	for _, c := range []struct {
		kind   string
		status metav1.ConditionStatus
		fact   fact
		text   string
	}{
		{clusterv1.PausedCondition, metav1.ConditionTrue, coreSkips, fmt.Sprintf("skips MachineHealthCheck %s: Paused=True", is.Name)},
		{mendv1.WorkloadClusterReachable, metav1.ConditionTrue, shown, "the workload cluster is reachable"},
		{mendv1.WorkloadClusterReachable, metav1.ConditionFalse, shown, conditions.GetMessage(is, mendv1.WorkloadClusterReachable)},
		{
			mendv1.RemediationTemplateAvailable, metav1.ConditionTrue, templateUsed,
			fmt.Sprintf("found %s %s: unhealthy machines get a request made from it",
				is.Spec.Remediation.TemplateRef.Kind, is.Spec.Remediation.TemplateRef.Name),
		},
	} {
		if turned(was, is, c.kind, c.status) {
			seen = append(seen, saw(authorOf(is, c.kind), c.fact, is.Name, "%s", c.text)...)
		}
	}
	healthy, expected := ptr.Deref(is.Status.CurrentHealthy, 0), ptr.Deref(is.Status.ExpectedMachines, 0)
	if healthy != ptr.Deref(was.Status.CurrentHealthy, 0) || expected != ptr.Deref(was.Status.ExpectedMachines, 0) {
		count := saw(kubemend, counted, is.Name, "%d of %d machines are healthy, remediations allowed: %d",
			healthy, expected, ptr.Deref(is.Status.RemediationsAllowed, 0))
		count[0].number, count[0].of = int(healthy), int(expected)
		seen = append(seen, count...)
	}
	const allowed = clusterv1.MachineHealthCheckRemediationAllowedCondition
	switch limitTurned(was, is, allowed) {
	case shortCircuited:
		sum := sumOf(conditions.GetMessage(is, allowed))
		seen = append(seen, saw(authorOf(is, allowed), shortCircuited, is.Name, "short-circuit: %s", sum)...)
	case allowedAgain:
		seen = append(seen, saw(authorOf(is, allowed), allowedAgain, is.Name, "short-circuit over: remediation is allowed again")...)
	}
	return seen
}

// limitTurned reports whether a check has just said that it starts nothing, or that it may again. It is empty if neither.
func limitTurned(was, is conditions.Getter, kind string) fact {
	before, now := conditions.Get(was, kind), conditions.Get(is, kind)
	switch {
	case now == nil || (before != nil && before.Status == now.Status && before.Message == now.Message):
		return ""
	case now.Status == metav1.ConditionFalse:
		return shortCircuited
	case before == nil || before.Status == metav1.ConditionTrue:
		return ""
	}
	return allowedAgain
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
	if is == nil || is.Reason != mendv1.EventRemediationRestricted || is.ReportingController != mendv1.FieldOwner {
		return nil
	}
	text := fmt.Sprintf("%s event %s on %s %s", is.Type, is.Reason, is.Regarding.Kind, is.Regarding.Name)
	if is.Series != nil {
		text = fmt.Sprintf("%s, %d times by now", text, is.Series.Count)
	}
	return saw(kubemend, restrictedEvent, is.Regarding.Name, "%s", text)
}
