// Package remediator is a remediator of nodes that knows nothing of kubemend but the contract of medik8s, as a model: it has no clock and
// no client. It finds a request, says that it processes it, does its work, and says whether that succeeded. It stops when the request says
// that its time is over. The check that made the request deletes it.
package remediator

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Report is what a remediator says of a request, by the two conditions that all of them have.
type Report struct {
	Processing, Succeeded metav1.ConditionStatus
	Reason                string
}

// The reports.
var (
	Started  = Report{metav1.ConditionTrue, metav1.ConditionUnknown, "RemediationStarted"}
	Finished = Report{metav1.ConditionFalse, metav1.ConditionTrue, "RemediationFinished"}
	Failed   = Report{metav1.ConditionFalse, metav1.ConditionFalse, "RemediationFailed"}
	Stopped  = Report{metav1.ConditionFalse, metav1.ConditionFalse, "RemediationStopped"}
)

// Step is what a remediator does about a request now.
type Step struct {
	// Report is what it says of the request; nil if that stands there.
	Report *Report
	// Acts says that it has worked for as long as it takes: what it does about the node, it does now, and says Finished or Failed.
	Acts bool
	// After is when it looks again; zero for when the request changes.
	After time.Duration
}

// Next is the next step about a request on which it works for so long. How far it has come is in the request alone.
func Next(request *unstructured.Unstructured, takes time.Duration, now time.Time) Step {
	processing, since := condition(request, nhcv1.ProcessingCondition)
	_, timedOut := request.GetAnnotations()[nhcv1.TimedOutAnnotation]
	switch done := since.Add(takes); {
	case processing == metav1.ConditionFalse, !request.GetDeletionTimestamp().IsZero():
		return Step{}
	case timedOut:
		return Step{Report: &Stopped}
	case processing != metav1.ConditionTrue:
		return Step{Report: &Started, After: max(takes, time.Millisecond)}
	case now.Before(done):
		return Step{After: done.Sub(now)}
	}
	return Step{Acts: true}
}

// condition is the status of a condition of a request, and since when it has it; empty if there is none.
func condition(request *unstructured.Unstructured, kind string) (metav1.ConditionStatus, time.Time) {
	conditions, _, _ := unstructured.NestedSlice(request.Object, "status", "conditions") // what is not a list is replaced
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok && fields["type"] == kind {
			status, _ := fields["status"].(string)
			text, _ := fields["lastTransitionTime"].(string)
			since, _ := time.Parse(time.RFC3339, text) // what is none has been so for ever
			return metav1.ConditionStatus(status), since
		}
	}
	return "", time.Time{}
}

// Set makes both conditions of a request say r.
func (r Report) Set(request *unstructured.Unstructured, now time.Time) error {
	condition := func(kind string, status metav1.ConditionStatus) any {
		return map[string]any{
			"type": kind, "status": string(status), "reason": r.Reason, "message": "", "lastTransitionTime": now.UTC().Format(time.RFC3339),
		}
	}
	conditions := []any{condition(nhcv1.ProcessingCondition, r.Processing), condition(nhcv1.SucceededCondition, r.Succeeded)}
	if err := unstructured.SetNestedSlice(request.Object, conditions, "status", "conditions"); err != nil {
		return fmt.Errorf("report on %s %s: %w", request.GetKind(), request.GetName(), err)
	}
	return nil
}
