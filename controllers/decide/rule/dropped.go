package rule

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json" //nolint:depguard // a function of bytes, which minds the case of a field as the API server does

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// DroppedField returns a message if the API server has dropped a field of spec that a user applied with kubectl, such as a field of another
// version; empty if none is known. kubectl keeps what it applied in an annotation. As in the API server, the case of field names matters.
// Specs has an empty spec for each apiVersion.
func DroppedField(annotations map[string]string, specs map[string]any) string {
	var kept struct {
		APIVersion string          `json:"apiVersion"`
		Spec       json.RawMessage `json:"spec"`
	}
	err := json.Unmarshal([]byte(annotations[corev1.LastAppliedConfigAnnotation]), &kept)
	spec, known := specs[kept.APIVersion]
	if err != nil || !known {
		return ""
	}
	dropped, _ := kjson.UnmarshalStrict(kept.Spec, spec) // the API server has refused values of a wrong type
	for _, err := range dropped {
		if field, unknown := strings.CutPrefix(err.Error(), "unknown field "); unknown {
			return fmt.Sprintf("The field %s, which was applied in spec, does not exist in %s: the API server has dropped it",
				health.Quoted(field), kept.APIVersion)
		}
	}
	return ""
}
