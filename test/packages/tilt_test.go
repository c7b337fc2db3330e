package packages

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/rig"
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

// Cluster API's Tiltfile reads the configuration as p.get("key"), and its program tilt-prepare, which is in a module of its own, reads the folder. A key
// that neither knows is ignored without a word.
func TestTiltKnowsEveryKey(t *testing.T) {
	module, err := rig.ClusterAPI()
	if err != nil {
		t.Fatal(err)
	}
	tiltfile, err := os.ReadFile(filepath.Join(module, "Tiltfile"))
	if err != nil {
		t.Fatal(err)
	}
	var provider struct {
		Config map[string]any `json:"config"`
	}
	if err := json.Unmarshal(read(t, "tilt-provider.json"), &provider); err != nil {
		t.Fatal(err)
	}
	if len(provider.Config) == 0 {
		t.Error("nothing is configured")
	}
	for key := range provider.Config {
		if key != "kustomize_folder" && !strings.Contains(string(tiltfile), `p.get("`+key+`"`) {
			t.Errorf("Tilt does not read %s", key)
		}
	}
}
