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
func checkChanged(old, updated *clusterv1.MachineHealthCheck) (seen []observation) {
	if updated == nil {
		return nil
	}
	if old == nil {
		old = &clusterv1.MachineHealthCheck{}
	}
	for _, c := range []struct {
		kind   string
		status metav1.ConditionStatus
		fact   fact
		text   string
	}{
		{clusterv1.PausedCondition, metav1.ConditionTrue, coreSkips, fmt.Sprintf("skips MachineHealthCheck %s: Paused=True", updated.Name)},
		{mendv1.WorkloadClusterReachable, metav1.ConditionTrue, shown, "the workload cluster is reachable"},
		{mendv1.WorkloadClusterReachable, metav1.ConditionFalse, shown, conditions.GetMessage(updated, mendv1.WorkloadClusterReachable)},
		{
			mendv1.RemediationTemplateAvailable, metav1.ConditionTrue, templateUsed,
			fmt.Sprintf("found %s %s: unhealthy machines get a request made from it",
				updated.Spec.Remediation.TemplateRef.Kind, updated.Spec.Remediation.TemplateRef.Name),
		},
	} {
		if turned(old, updated, c.kind, c.status) {
			seen = append(seen, saw(authorOf(updated, c.kind), c.fact, updated.Name, "%s", c.text)...)
		}
	}
	healthy, expected := ptr.Deref(updated.Status.CurrentHealthy, 0), ptr.Deref(updated.Status.ExpectedMachines, 0)
	if healthy != ptr.Deref(old.Status.CurrentHealthy, 0) || expected != ptr.Deref(old.Status.ExpectedMachines, 0) {
		count := saw(kubemend, counted, updated.Name, "%d of %d machines are healthy, remediations allowed: %d",
			healthy, expected, ptr.Deref(updated.Status.RemediationsAllowed, 0))
		count[0].number, count[0].of = int(healthy), int(expected)
		seen = append(seen, count...)
	}
	const allowed = clusterv1.MachineHealthCheckRemediationAllowedCondition
	switch limitTurned(old, updated, allowed) {
	case shortCircuited:
		sum := sumOf(conditions.GetMessage(updated, allowed))
		seen = append(seen, saw(authorOf(updated, allowed), shortCircuited, updated.Name, "short-circuit: %s", sum)...)
	case allowedAgain:
		seen = append(seen, saw(authorOf(updated, allowed), allowedAgain, updated.Name,
			"short-circuit over: remediation is allowed again")...)
	}
	return seen
}

// limitTurned reports whether a check has just said that it starts nothing, or that it may again. It is empty if neither.
func limitTurned(old, updated conditions.Getter, kind string) fact {
	before, now := conditions.Get(old, kind), conditions.Get(updated, kind)
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
func eventChanged(_, updated *eventsv1.Event) []observation {
	if updated == nil || updated.Reason != mendv1.EventRemediationRestricted || updated.ReportingController != mendv1.FieldOwner {
		return nil
	}
	text := fmt.Sprintf("%s event %s on %s %s", updated.Type, updated.Reason, updated.Regarding.Kind, updated.Regarding.Name)
	if updated.Series != nil {
		text = fmt.Sprintf("%s, %d times by now", text, updated.Series.Count)
	}
	return saw(kubemend, restrictedEvent, updated.Regarding.Name, "%s", text)
}
