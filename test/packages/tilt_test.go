package packages

import (
	"encoding/json"
	"testing"
)

// tilt is of tilt-provider.json what has to fit the manifests. Its folders are held to the code by test/arch_test.go.
type tilt struct {
	Config struct {
		Image           string `json:"image"`
		KustomizeFolder string `json:"kustomize_folder"`
	} `json:"config"`
}

func tiltProvider(t *testing.T) tilt {
	t.Helper()
	var provider tilt
	if err := json.Unmarshal(read(t, "tilt-provider.json"), &provider); err != nil {
		t.Fatal(err)
	}
	return provider
}

// Tilt lowers the namespace's Pod Security to privileged, and knows the provider by the label of the namespace.
func TestTiltFindsTheProvider(t *testing.T) {
	folder := tiltProvider(t).Config.KustomizeFolder
	if folder != "config/default" {
		t.Errorf("Tilt builds %s, which no test checks", folder)
	}
	labels := ofKind(beside(t), "Namespace")[0].GetLabels()
	if labels["cluster.x-k8s.io/provider"] == "" || labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("the labels of the namespace are %v", labels)
	}
}
