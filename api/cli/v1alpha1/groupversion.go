package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of all documents.
var GroupVersion = schema.GroupVersion{Group: "cli.kubemend.io", Version: "v1alpha1"}

// TypeOf is the type of the documents of a kind.
func TypeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: kind}
}
