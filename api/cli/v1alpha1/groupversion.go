package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all documents.
var GroupVersion = schema.GroupVersion{Group: "cli.kubemend.io", Version: "v1alpha1"}

// TypeOf returns the apiVersion and kind of a document.
func TypeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: kind}
}

// Moment returns a time as a document has it: in UTC, and nil for the zero time.
func Moment(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	moment := metav1.NewTime(at.UTC())
	return &moment
}
