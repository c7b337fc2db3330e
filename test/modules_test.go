package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// alike are the modules that share compiled packages with the project. A package is compiled once for each set of versions below it: one version that
// differs, of a module far below, makes Kubernetes compile again.
var alike = []string{"test/rig/kube", "test/rig/capi", "test/gitops", "hack/release"}

// dependency is a module with its version.
type dependency struct{ Path, Version string }

// requirements is what `go mod edit -json` says of a go.mod.
type requirements struct {
	Require []dependency
	Replace []struct{ Old, New dependency }
}

func TestModulesUseTheSameVersionsOfSharedDependencies(t *testing.T) {
	ours := readRequirements(t, ".")
	for _, folder := range alike {
		t.Run(folder, func(t *testing.T) {
			different := differences(ours, readRequirements(t, folder))
			report(t, different)
			if len(different) > 0 {
				t.Logf("raise the older one, with go -C %s get PATH@VERSION or go get PATH@VERSION, and then run make tidy", folder)
			}
		})
	}
}

func TestAVersionThatDiffersIsFound(t *testing.T) {
	ours := requirements{Require: []dependency{{"a", "v1"}, {"b", "v1"}, {"c", "v2"}, {"ours", "v1"}}}
	theirs := requirements{Require: []dependency{{"a", "v1"}, {"b", "v2"}, {"c", "v0"}, {"theirs", "v1"}}}
	theirs.Replace = []struct{ Old, New dependency }{{Old: dependency{"c", ""}, New: dependency{"c", "v2"}}}
	if got := differences(ours, theirs); !slices.Equal(got, []string{"b v2, here v1"}) {
		t.Errorf("got %q", got)
	}
}

func readRequirements(t *testing.T, folder string) requirements {
	t.Helper()
	var found requirements
	content := goOutput(t, filepath.Join(root, folder), "mod", "edit", "-json")
	if err := json.Unmarshal(content, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// versions are those that are built with.
func (r requirements) versions() map[string]string {
	found := map[string]string{}
	for _, d := range r.Require {
		found[d.Path] = d.Version
	}
	for _, replaced := range r.Replace {
		if _, needed := found[replaced.Old.Path]; needed {
			found[replaced.Old.Path] = replaced.New.Version
		}
	}
	return found
}

func differences(ours, theirs requirements) []string {
	here, there := ours.versions(), theirs.versions()
	var found []string
	for path, version := range there {
		if own, shared := here[path]; shared && own != version {
			found = append(found, fmt.Sprintf("%s %s, here %s", path, version, own))
		}
	}
	slices.Sort(found)
	return found
}

func goOutput(t *testing.T, folder string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = folder
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, stderr.String())
	}
	return out
}
