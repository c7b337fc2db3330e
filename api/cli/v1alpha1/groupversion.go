package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of all documents.
var GroupVersion = schema.GroupVersion{Group: "cli.kubemend.io", Version: "v1alpha1"}

// TypeOf is the type of the documents of a kind.
func TypeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: kind}
}

// Moment is a moment of a document that may be missing.
func Moment(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	moment := metav1.NewTime(at.UTC())
	return &moment
}
