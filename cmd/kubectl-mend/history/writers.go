package history

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// PausedBy is the field manager that wrote the paused annotation of an object, and when that last changed the object, as far as the API
// server knows.
func PausedBy(o metav1.Object) (writer string, at time.Time) {
	for _, entry := range o.GetManagedFields() {
		if !slices.Contains(AnnotationsBy(entry), clusterv1.PausedAnnotation) {
			continue
		}
		if entry.Time != nil {
			at = entry.Time.Time
		}
		return entry.Manager, at
	}
	return "", time.Time{}
}

// LabelledBy is the field manager that wrote the label of an object that claims checks; empty if the API server does not know.
func LabelledBy(o metav1.Object) string {
	for _, entry := range o.GetManagedFields() {
		if _, wrote := writtenBy(entry).Labels["f:"+mendv1.ClaimLabel]; wrote {
			return entry.Manager
		}
	}
	return ""
}

// AnnotationsBy are the keys of the annotations that a field manager wrote.
func AnnotationsBy(entry metav1.ManagedFieldsEntry) []string {
	var keys []string
	for field := range writtenBy(entry).Annotations {
		if key, is := strings.CutPrefix(field, "f:"); is {
			keys = append(keys, key)
		}
	}
	return keys
}

// fields are those of the metadata that a field manager wrote, each with "f:" before its name.
type fields struct {
	Annotations map[string]any `json:"f:annotations"`
	Labels      map[string]any `json:"f:labels"`
}

func writtenBy(entry metav1.ManagedFieldsEntry) fields {
	var wrote struct {
		Metadata fields `json:"f:metadata"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &wrote) != nil {
		return fields{}
	}
	return wrote.Metadata
}
