package history

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhoWroteTheLabelThatClaimsChecks(t *testing.T) {
	o := &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "kustomize-controller", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{}},"f:annotations":{"f:kubemend.io/machine-health-checks":{}}}}`)},
		{Manager: "kubectl-label", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:kubemend.io/machine-health-checks":{}}}}`)},
	}}
	if got := LabelledBy(o); got != "kubectl-label" {
		t.Errorf("got %q", got)
	}
	o.ManagedFields = o.ManagedFields[:1]
	if got := LabelledBy(o); got != "" {
		t.Errorf("without the label: %q", got)
	}
}
