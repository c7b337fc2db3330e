// Package observability tests config/observability, docs/monitoring.md and docs/runbooks: every expression must parse and use existing
// metrics, every alert must fire and stop when it should, and every link must lead somewhere.
//
// It is a separate module, because Prometheus' parser, engine and rules need other versions of libraries than the manager. From the manager
// it uses only docs/reference/metrics.md, which a test beside main.go compares with the metrics of the program.
package observability

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// These are the parts of the configuration of kube-state-metrics that this project uses (kube-state-metrics,
// docs/metrics/extend/customresourcestate-metrics.md).
type (
	resource struct {
		GroupVersionKind struct{ Group, Version, Kind string } `yaml:"groupVersionKind"`
		Prefix           string                                `yaml:"metricNamePrefix"`
		Labels           map[string][]string                   `yaml:"labelsFromPath"`
		Metrics          []generator                           `yaml:"metrics"`
	}
	generator struct {
		Name string `yaml:"name"`
		Help string `yaml:"help"`
		Each struct {
			Type     string  `yaml:"type"`
			Gauge    *source `yaml:"gauge"`
			Info     *source `yaml:"info"`
			StateSet *source `yaml:"stateSet"`
		} `yaml:"each"`
	}
	source struct {
		Path      []string            `yaml:"path"`
		ValueFrom []string            `yaml:"valueFrom"`
		Labels    map[string][]string `yaml:"labelsFromPath"`
		LabelName string              `yaml:"labelName"`
		List      []string            `yaml:"list"`
	}
)

// source returns the field that belongs to the type of the metric.
func (g generator) source() *source {
	return map[string]*source{"Gauge": g.Each.Gauge, "Info": g.Each.Info, "StateSet": g.Each.StateSet}[g.Each.Type]
}

// customResources parses the configuration of kube-state-metrics. An unknown field fails the test.
func customResources(t *testing.T) []resource {
	t.Helper()
	var config struct {
		Kind string
		Spec struct{ Resources []resource }
	}
	decoder := yaml.NewDecoder(bytes.NewReader(read(t, "config", "observability", "kube-state-metrics.yaml")))
	decoder.KnownFields(true)
	mustDo(t, decoder.Decode(&config))
	if config.Kind != "CustomResourceStateMetrics" || len(config.Spec.Resources) == 0 {
		t.Fatalf("it is a %s with %d resources", config.Kind, len(config.Spec.Resources))
	}
	return config.Spec.Resources
}

// labelsOf returns the labels of a metric, including those that kube-state-metrics adds for the kind.
func labelsOf(r resource, m generator) []string {
	labels := append(slices.Collect(maps.Keys(r.Labels)), "customresource_group", "customresource_kind", "customresource_version")
	if s := m.source(); s != nil {
		labels = append(labels, slices.Collect(maps.Keys(s.Labels))...)
		if s.LabelName != "" {
			labels = append(labels, s.LabelName)
		}
	}
	return labels
}

// schema is a part of the OpenAPI schema of a kind.
type schema struct {
	Type       string            `yaml:"type"`
	Format     string            `yaml:"format"`
	Enum       []string          `yaml:"enum"`
	Properties map[string]schema `yaml:"properties"`
	Items      *schema           `yaml:"items"`
	Additional *yaml.Node        `yaml:"additionalProperties"`
}

// metadata is the schema of the metadata of every object, which CRDs do not contain. It has only the annotations and labels that are used
// here.
var metadata = schema{Type: "object", Properties: map[string]schema{
	"name": {Type: "string"}, "namespace": {Type: "string"}, "uid": {Type: "string"},
	"creationTimestamp": {Type: "string", Format: "date-time"},
	"annotations":       {Type: "object", Properties: map[string]schema{"cluster.x-k8s.io/paused": {Type: "string"}}},
	"labels":            {Type: "object", Properties: map[string]schema{"cluster.x-k8s.io/cluster-name": {Type: "string"}}},
	"ownerReferences": {Type: "array", Items: &schema{Type: "object", Properties: map[string]schema{
		"controller": {Type: "boolean"}, "kind": {Type: "string"}, "name": {Type: "string"}, "uid": {Type: "string"},
	}}},
}}

// at returns the schema at a path. For a list it continues with the schema of the elements, like kube-state-metrics.
func (s schema) at(path []string) (schema, error) {
	for i, name := range path {
		if s.Items != nil {
			s = *s.Items
		}
		next, ok := s.Properties[name]
		if !ok {
			return s, fmt.Errorf("there is no %s", strings.Join(path[:i+1], "."))
		}
		s = next
	}
	return s, nil
}

type crd struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Group, Scope string
		Names        struct{ Kind, Plural string }
		Versions     []struct {
			Name    string
			Storage bool
			Schema  struct {
				Schema schema `yaml:"openAPIV3Schema"`
			}
		}
	}
}

// clusterAPI returns the folder of the Cluster API module that the manager is built with.
func clusterAPI(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("find the module of Cluster API: %v\n%s", err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// installed returns the CRDs of this project and of Cluster API, by kind.
func installed(t *testing.T) map[string]crd {
	t.Helper()
	all := map[string]crd{}
	for _, folder := range []string{filepath.Join(root, "config", "crd", "bases"),
		filepath.Join(clusterAPI(t), "core", "config", "crd", "bases")} {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no CRDs in %s: %v", folder, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			mustDo(t, err)
			var c crd
			if err := yaml.Unmarshal(content, &c); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all[c.Spec.Group+"/"+c.Spec.Names.Kind] = c
		}
	}
	return all
}

// stored returns the schema and the name of the storage version.
func (c crd) stored() (schema, string) {
	for _, v := range c.Spec.Versions {
		if v.Storage {
			s := v.Schema.Schema
			s.Properties = maps.Clone(s.Properties)
			s.Properties["metadata"] = metadata
			return s, v.Name
		}
	}
	return schema{}, ""
}

func TestKubeStateMetricsReadsFieldsOfTheSchemas(t *testing.T) {
	crds := installed(t)
	for _, r := range customResources(t) {
		t.Run(r.GroupVersionKind.Kind, func(t *testing.T) {
			c, ok := crds[r.GroupVersionKind.Group+"/"+r.GroupVersionKind.Kind]
			whole, version := c.stored()
			if !ok || version != r.GroupVersionKind.Version {
				t.Fatalf("stored is version %q, and read %q", version, r.GroupVersionKind.Version)
			}
			if want := "capi_" + strings.ToLower(r.GroupVersionKind.Kind); r.Prefix != want {
				t.Errorf("the prefix is %s, want %s", r.Prefix, want)
			}
			if _, namespaced := r.Labels["namespace"]; namespaced != (c.Spec.Scope == "Namespaced") {
				t.Errorf("its metrics have a namespace: %t; its scope is %s", namespaced, c.Spec.Scope)
			}
			for label, path := range r.Labels {
				if at, err := whole.at(path); err != nil || at.Type != "string" {
					t.Errorf("label %s: %v, %q", label, err, at.Type)
				}
			}
			for _, m := range r.Metrics {
				for _, fault := range m.faults(whole) {
					t.Errorf("%s: %s", m.Name, fault)
				}
			}
		})
	}
}

func (g generator) faults(kind schema) []string {
	s := g.source()
	if s == nil || g.Help == "" {
		return []string{"it has no help, or not the source that its type asks for"}
	}
	at, err := kind.at(s.Path)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	for label, path := range s.Labels {
		if _, err := at.at(path); err != nil {
			faults = append(faults, fmt.Sprintf("label %s: %v", label, err))
		}
	}
	value, err := at.at(s.ValueFrom)
	if err != nil {
		return append(faults, err.Error())
	}
	number := value.Type == "integer" || value.Type == "number" || value.Format == "date-time"
	states, listed := slices.Sorted(slices.Values(value.Enum)), slices.Sorted(slices.Values(s.List))
	switch {
	case g.Each.Type == "Gauge" && !number:
		faults = append(faults, fmt.Sprintf("a %s is no number", value.Type))
	case g.Each.Type == "StateSet" && value.Type != "string":
		faults = append(faults, fmt.Sprintf("a %s is no state", value.Type))
	case g.Each.Type == "StateSet" && len(states) > 0 && !slices.Equal(states, listed):
		faults = append(faults, fmt.Sprintf("the states are %v, and it lists %v", states, listed))
	}
	return faults
}

const folder = root + "/config/observability"

func TestEveryFileIsInThePackage(t *testing.T) {
	packed := string(read(t, "config", "observability", "kustomization.yaml"))
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "kustomization.yaml" {
			return err
		}
		if file := strings.TrimPrefix(filepath.ToSlash(path), folder+"/"); !regexp.MustCompile(`(- |=)` + file + "\n").MatchString(packed) {
			t.Errorf("%s is not in the package", file)
		}
		return nil
	})
	mustDo(t, err)
}

func TestKubeStateMetricsMayReadExactlyWhatItExports(t *testing.T) {
	crds := installed(t)
	var want, got []string
	for _, r := range customResources(t) {
		want = append(want, r.GroupVersionKind.Group+"/"+crds[r.GroupVersionKind.Group+"/"+r.GroupVersionKind.Kind].Spec.Names.Plural)
	}
	var role struct {
		Rules []struct {
			Groups    []string `yaml:"apiGroups"`
			Resources []string
			Verbs     []string
		}
	}
	mustDo(t, yaml.Unmarshal(read(t, "config", "observability", "kube-state-metrics-rbac.yaml"), &role))
	for _, rule := range role.Rules {
		if !slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
			t.Errorf("of %v it may %v", rule.Resources, rule.Verbs)
		}
		for _, group := range rule.Groups {
			for _, resource := range rule.Resources {
				got = append(got, group+"/"+resource)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("it may read %v, and reads %v", got, want)
	}
}

const root = "../.."

// mustDo ends the test if a step that is not under test has failed.
func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	mustDo(t, err)
	return content
}

// known has the labels of all existing metrics, by name.
type known map[string]map[string]bool

func (k known) add(name string, labels ...string) {
	set := map[string]bool{}
	for _, label := range labels {
		set[label] = true
	}
	k[name] = set
}

// ofTarget are the labels that Prometheus Operator adds to all series of a Service.
var ofTarget = []string{"job", "instance", "namespace", "service", "pod", "container", "endpoint"}

// has reports whether a metric may have a label.
func (k known) has(name, label string) bool {
	for _, l := range ofTarget {
		if l == label {
			return true
		}
	}
	return k[name][label]
}

// row matches a row of the tables in docs/reference/metrics.md: a name, a type (only for kubemend's own metrics), labels, and a meaning.
var row = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|(?: (gauge|counter|histogram) \\|)? ([a-z0-9_, ]*)\\| .* \\|$")

// exported returns the metrics of the manager and of kube-state-metrics, and those that Prometheus itself adds.
func exported(t *testing.T) known {
	t.Helper()
	k := known{}
	for _, m := range row.FindAllStringSubmatch(string(read(t, "docs", "reference", "metrics.md")), -1) {
		name, kind, labels := m[1], m[2], strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		if kind != "histogram" {
			k.add(name, labels...)
		}
		if kind == "histogram" || kind == "" && strings.HasSuffix(name, "_seconds") { // the type of other metrics is not documented
			k.add(name+"_bucket", append(labels, "le")...)
			k.add(name+"_sum", labels...)
			k.add(name+"_count", labels...)
		}
	}
	for _, resource := range customResources(t) {
		for _, m := range resource.Metrics {
			k.add(resource.Prefix+"_"+m.Name, labelsOf(resource, m)...)
		}
	}
	k.add("ALERTS", "alertname", "alertstate", "severity")
	return k
}
