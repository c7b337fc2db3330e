// Package packages checks what a user installs: the kustomizations of config/, with and without clusterctl, and the Helm chart.
//
// It renders them with the real tools and checks the objects. It needs no control plane.
package packages

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/kubemend/kubemend/test/manifests"
)

// standalone, beside and provider return the objects of the three ways to install the manifests.
func standalone(t *testing.T) []object { return objects(t, kustomized(t, "standalone")) }
func beside(t *testing.T) []object     { return objects(t, kustomized(t, "default")) }
func provider(t *testing.T) []object {
	return objects(t, substituted(t, kustomized(t, "clusterctl"), nil))
}

func TestPackages(t *testing.T) {
	for name, all := range map[string][]object{"standalone": standalone(t), "default": beside(t), "clusterctl": provider(t)} {
		obey(t, name, all)
	}
}

func obey(t *testing.T, name string, all []object) {
	t.Helper()
	for rule, check := range rules {
		t.Run(name+": "+rule, func(t *testing.T) {
			for _, fault := range check(t, all) {
				t.Error(fault)
			}
		})
	}
}

// clusterctl and config/default leave the CRDs of Metal3 to CAPM3, and NodeHealthCheck with its rights to medik8s' operator. Without that
// operator, config/node-health-checks adds NodeHealthCheck. Everything else is equal, so that switching between the packages changes only
// CRDs.
func TestStandaloneIsTheDefaultAndTheKindsOfOthers(t *testing.T) {
	left := byID(standalone(t))
	for name, all := range map[string][]object{"default": beside(t),
		"node-health-checks": objects(t, kustomized(t, "node-health-checks"))} {
		for key, o := range byID(all) {
			if diff := cmp.Diff(left[key], o); diff != "" && !strings.HasPrefix(key, "MutatingWebhookConfiguration") {
				t.Errorf("%s (-standalone +%s):\n%s", key, name, diff)
			}
			delete(left, key)
		}
	}
	for key := range left {
		if !strings.HasPrefix(key, "CustomResourceDefinition metal3remediation") {
			t.Errorf("%s is installed by config/standalone alone", key)
		}
	}
	if len(left) != 2 {
		t.Errorf("there are %d kinds of Metal3, want that of remediations and that of their templates", len(left))
	}
}

// A user of clusterctl who sets no variable gets the same flags as from `kubectl apply -k config/default`.
func TestTheVariablesOfClusterctlHaveTheDefaultsOfTheProgram(t *testing.T) {
	plain, filled := beside(t), provider(t)
	_, want := manager(t, plain)
	_, got := manager(t, filled)
	known := programFlags(t)
	for flag := range flags(got) {
		value := set(t, got, flag)
		expected, is := flags(want)[flag]
		if !is {
			expected = known[flag]
		}
		if flag == "feature-gates" {
			expected = "HostRemediation=true,NodeHealthCheck=true,WarmStandby=false"
		}
		if !sameValue(expected, value) {
			t.Errorf("--%s is %q, want %q", flag, value, expected)
		}
	}
	for flag := range flags(want) {
		if _, is := flags(got)[flag]; !is {
			t.Errorf("--%s is not set", flag)
		}
	}
	got.Args, want.Args = nil, nil
	got.Env = slices.DeleteFunc(got.Env, func(e corev1.EnvVar) bool { return strings.HasPrefix(e.Name, "KUBEMEND_") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the container (-default +clusterctl):\n%s", diff)
	}
	others := func(o object) bool { return o.GetKind() == "Deployment" }
	if diff := cmp.Diff(slices.DeleteFunc(plain, others), slices.DeleteFunc(filled, others)); diff != "" {
		t.Errorf("the other objects (-default +clusterctl):\n%s", diff)
	}
}

// set returns the value of a flag. If the flag refers to an environment variable, it returns the value of the variable.
func set(t *testing.T, c *corev1.Container, flag string) string {
	t.Helper()
	name, is := strings.CutPrefix(flags(c)[flag], "$(")
	if !is {
		return flags(c)[flag]
	}
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name+")" == name })
	if i < 0 {
		t.Fatalf("--%s: the container has no variable %s", flag, name)
	}
	return c.Env[i].Value
}

// sameValue compares values, or durations such as 10m and 10m0s.
func sameValue(a, b string) bool {
	left, err := time.ParseDuration(a)
	right, another := time.ParseDuration(b)
	return a == b || err == nil && another == nil && left == right
}

func TestTheVariablesOfClusterctlReachTheManager(t *testing.T) {
	const template = "SelfNodeRemediationTemplate.v1alpha1.self-node-remediation.medik8s.io/medik8s/automatic"
	_, c := manager(t, objects(t, substituted(t, kustomized(t, "clusterctl"), map[string]string{
		"KUBEMEND_WATCH_FILTER": "shard-1", "KUBEMEND_NAMESPACE": "fleet", "KUBEMEND_LOG_LEVEL": "4", "KUBEMEND_WARM_STANDBY": "true",
		"KUBEMEND_DEFAULT_NODE_HEALTH_CHECK_TEMPLATE": template,
	})))
	for flag, want := range map[string]string{
		"watch-filter": "shard-1", "namespace": "fleet", "v": "4", "default-node-health-check-template": template,
		"feature-gates": "HostRemediation=true,NodeHealthCheck=true,WarmStandby=true",
	} {
		must.Is(t, want, set(t, c, flag), "--%s is", flag)
	}
}

// clusterctl-settings.json says how to build the local repository of clusterctl. test/api installs a release from such a repository.
func TestTheClusterctlSettingsNameTheProvider(t *testing.T) {
	var settings struct {
		Name   string            `json:"name"`
		Config map[string]string `json:"config"`
	}
	must.Do(t, json.Unmarshal(read(t, "clusterctl-settings.json"), &settings))
	if got := ofKind(provider(t), "Namespace")[0].GetLabels()["cluster.x-k8s.io/provider"]; got != settings.Name {
		t.Errorf("the provider is %q in the manifests, and %q in the settings", got, settings.Name)
	}
	if c := settings.Config; c["componentsFile"] != "addon-components.yaml" || c["configFolder"] != "config/clusterctl" {
		t.Errorf("made from %s, and named %s", c["configFolder"], c["componentsFile"])
	}
}

// templates returns the objects of templates/ by file, for a user who sets only the name of the cluster.
func templates(t *testing.T) map[string]object {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "templates"))
	must.Do(t, err)
	all := map[string]object{}
	for _, e := range entries {
		content := read(t, filepath.Join("templates", e.Name()))
		rendered := objects(t, substituted(t, content, map[string]string{"CLUSTER_NAME": "fleet"}))
		if len(rendered) != 1 {
			t.Fatalf("%s has %d objects", e.Name(), len(rendered))
		}
		all[e.Name()] = rendered[0]
	}
	return all
}

func TestATemplateNeedsOnlyTheNameOfTheCluster(t *testing.T) {
	for name, o := range templates(t) {
		variables, err := yamlprocessor.NewSimpleProcessor().GetVariableMap(read(t, filepath.Join("templates", name)))
		must.Do(t, err)
		for variable, initial := range variables {
			if (initial == nil) != (variable == "CLUSTER_NAME") {
				t.Errorf("%s: %s has the default %v", name, variable, initial)
			}
		}
		if !strings.HasPrefix(o.GetName(), "fleet-") {
			t.Errorf("%s: its object is %s, and of another cluster it would be the same", name, o.GetName())
		}
		if !strings.Contains(string(read(t, filepath.Join("templates", name))), "clusterctl generate yaml --from "+name) {
			t.Errorf("%s does not say how it is applied", name)
		}
		says := strings.Contains(string(read(t, filepath.Join("templates", name))),
			"kubectl apply --server-side -f kubemend-node-health-checks.yaml")
		if says != (o.GetKind() == "NodeHealthCheck") {
			t.Errorf("%s, a %s, names the file that its kind comes with: %t", name, o.GetKind(), says)
		}
	}
}

func TestChecksNameTemplatesThatExist(t *testing.T) {
	all := templates(t)
	there := map[string]bool{}
	for _, o := range all {
		there[o.GetAPIVersion()+" "+o.GetKind()+" "+o.GetName()] = true
	}
	named := 0
	for name, o := range all {
		for _, way := range [][]string{{"spec", "remediation", "templateRef"}, {"spec", "remediationTemplate"}} {
			reference, found, err := unstructured.NestedStringMap(o.Object, way...)
			must.Do(t, err)
			if !found {
				continue
			}
			named++
			if !there[reference["apiVersion"]+" "+reference["kind"]+" "+reference["name"]] {
				t.Errorf("%s names %v, which no template makes", name, reference)
			}
		}
	}
	if named < 7 {
		t.Errorf("only %d checks name a template", named)
	}
}

// tilt is the part of tilt-provider.json that must agree with the manifests. test/project_test.go checks its folders.
type tilt struct {
	Config struct {
		Image           string `json:"image"`
		KustomizeFolder string `json:"kustomize_folder"`
	} `json:"config"`
}

func tiltProvider(t *testing.T) tilt {
	t.Helper()
	var provider tilt
	must.Do(t, json.Unmarshal(read(t, "tilt-provider.json"), &provider))
	return provider
}

// Tilt sets the namespace's Pod Security level to privileged, and finds the provider by a label of the namespace.
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

const root = "../.."

// command returns a command that runs a tool of .tools/bin in the root of the project.
func command(t *testing.T, tool string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, ".tools", "bin", tool))
	must.Do(t, err)
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

// built caches the output of kustomize by folder of config/.
var built = map[string][]byte{}

func kustomized(t *testing.T, folder string) []byte {
	t.Helper()
	if built[folder] == nil {
		built[folder] = run(t, "kustomize", "build", filepath.Join("config", folder))
	}
	return built[folder]
}

// substituted replaces the variables in a manifest like clusterctl, for a user who has set only these variables.
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

func objects(t *testing.T, manifest []byte) []object {
	t.Helper()
	all, err := manifests.Decode(manifest)
	must.Do(t, err)
	return all
}

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

// as converts an object to its type. An unknown field or a wrong type fails the test.
func as[T any](t *testing.T, o *object) *T {
	t.Helper()
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
		t.Fatalf("%s: %v", id(o), err)
	}
	return typed
}

// read returns a file of the project, readAt a file with any path.
func read(t *testing.T, path string) []byte {
	t.Helper()
	return readAt(t, filepath.Join(root, path))
}

func readAt(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	must.Do(t, err)
	return content
}

var flagRow = regexp.MustCompile("(?m)^\\| `--([a-z0-9-]+)` \\| `([^`]*)` \\|")

// programFlags returns the manager's flags and their defaults from docs/reference/flags.md, which is generated.
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
