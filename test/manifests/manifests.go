// Package manifests reads manifests like kubectl.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Decode returns all objects of a manifest. It ignores what follows the line "..." in a document, because that line ends a YAML document.
func Decode(content []byte) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		var o unstructured.Unstructured
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("decode a manifest: %w", err)
		case len(o.Object) > 0:
			all = append(all, o)
		}
	}
}
