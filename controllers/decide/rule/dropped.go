package rule

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json" //nolint:depguard // a function of bytes, which minds the case of a field as the API server does

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// DroppedField says which field of spec a user has applied to a check and the API server has dropped, such as one of another version;
// empty if none is known: kubectl keeps what it applied in an annotation. The API server minds the case of a field. Specs are empty ones by
// their apiVersion.
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
	dropped, _ := kjson.UnmarshalStrict(kept.Spec, spec) // what is of another type the API server has refused
	for _, err := range dropped {
		if field, unknown := strings.CutPrefix(err.Error(), "unknown field "); unknown {
			return fmt.Sprintf("The field %s, which was applied in spec, does not exist in %s: the API server has dropped it",
				health.Quoted(field), kept.APIVersion)
		}
	}
	return ""
}
