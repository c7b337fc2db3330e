package escalation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Condition is the condition of that type of a request, shared with obj: read only; nil if there is none that can be read.
func Condition(obj *unstructured.Unstructured, kind string) map[string]any {
	list, _, err := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	conditions, isList := list.([]any)
	if err != nil || !isList {
		return nil
	}
	for _, c := range conditions {
		if fields, _ := c.(map[string]any); fields["type"] == kind {
			return fields
		}
	}
	return nil
}

// Says is the status of that condition, and since when it is so.
func Says(obj *unstructured.Unstructured, kind string) (Status, time.Time) {
	fields := Condition(obj, kind)
	if fields == nil {
		return Unsaid, time.Time{}
	}
	text, _ := fields["lastTransitionTime"].(string)
	at, _ := time.Parse(time.RFC3339, text)
	switch fields["status"] {
	case string(metav1.ConditionTrue):
		return Yes, at
	case string(metav1.ConditionFalse):
		return No, at
	default:
		return Unsure, at
	}
}
