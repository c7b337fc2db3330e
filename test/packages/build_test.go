// Package packages checks what a user installs: the kustomizations of config/, what clusterctl makes of them, and the Helm chart.
//
// It renders them with the tools themselves, and checks the objects. It needs no control plane.
package packages

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/kubemend/kubemend/test/manifests"
)

const root = "../.."

// command is one of the tools in .tools/bin, at the top of the project.
func command(t *testing.T, tool string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, ".tools", "bin", tool))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make tools", err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = root
	return cmd
}

func run(t *testing.T, tool string, args ...string) []byte {
	t.Helper()
	cmd := command(t, tool, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", tool, strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// built remembers what each folder of config/ is built into.
var built = map[string][]byte{}

// kustomized is what a folder of config/ is built into.
func kustomized(t *testing.T, folder string) []byte {
	t.Helper()
	if built[folder] == nil {
		built[folder] = run(t, "kustomize", "build", filepath.Join("config", folder))
	}
	return built[folder]
}

// substituted is what clusterctl makes of a manifest, for a user who has set only these variables.
func substituted(t *testing.T, manifest []byte, variables map[string]string) []byte {
	t.Helper()
	out, err := yamlprocessor.NewSimpleProcessor().Process(manifest, func(name string) (string, error) {
		if value, given := variables[name]; given {
			return value, nil
		}
		return "", errors.New("not given")
	})
	if err != nil {
		t.Fatalf("substitute variables: %v", err)
	}
	return out
}

type object = unstructured.Unstructured

// objects are all of a manifest, in its order.
func objects(t *testing.T, manifest []byte) []object {
	t.Helper()
	all, err := manifests.Decode(manifest)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// id names an object in messages and in maps.
func id(o *object) string {
	return o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}

func ofKind(all []object, kind string) []*object {
	var found []*object
	for i := range all {
		if all[i].GetKind() == kind {
			found = append(found, &all[i])
		}
	}
	return found
}

// as gives an object its type; one that does not fit is a mistake in the manifest, and so is a field that the type lacks.
func as[T any](t *testing.T, o *object) *T {
	t.Helper()
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
		t.Fatalf("%s: %v", id(o), err)
	}
	return typed
}

// read is a file of the project, and readAt one that is anywhere.
func read(t *testing.T, path string) []byte {
	t.Helper()
	return readAt(t, filepath.Join(root, path))
}

func readAt(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

var flagRow = regexp.MustCompile("(?m)^\\| `--([a-z0-9-]+)` \\| `([^`]*)` \\|")

// programFlags are the flags of the manager and their defaults. The document is held to the program by a test beside the program.
func programFlags(t *testing.T) map[string]string {
	t.Helper()
	flags := map[string]string{}
	for _, row := range flagRow.FindAllSubmatch(read(t, "docs/reference/flags.md"), -1) {
		flags[string(row[1])] = string(row[2])
	}
	if len(flags) == 0 {
		t.Fatal("docs/reference/flags.md lists no flags")
	}
	return flags
}
