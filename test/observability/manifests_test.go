// Package observability tests what config/observability, docs/monitoring.md and docs/runbooks say: that every expression parses and asks
// for metrics that exist, that every alert fires and stops when it should, and that what people are sent to is there.
//
// It is a module of its own, because Prometheus' parser, engine and rules need other versions of libraries than the manager may have.
// It takes nothing from the manager but docs/reference/metrics.md, which a test beside main.go compares with what the program registers.
package observability

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := yaml.Unmarshal(read(t, "config", "observability", "kube-state-metrics-rbac.yaml"), &role); err != nil {
		t.Fatal(err)
	}
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

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// known are the metrics that there can be: name to labels.
type known map[string]map[string]bool

func (k known) add(name string, labels ...string) {
	set := map[string]bool{}
	for _, label := range labels {
		set[label] = true
	}
	k[name] = set
}

// ofTarget are the labels that Prometheus' operator adds to all that is scraped of a Service.
var ofTarget = []string{"job", "instance", "namespace", "service", "pod", "container", "endpoint"}

// has reports whether a metric of that name may have that label.
func (k known) has(name, label string) bool {
	for _, l := range ofTarget {
		if l == label {
			return true
		}
	}
	return k[name][label]
}

// row is one of the tables in docs/reference/metrics.md: a name, a type in the table of our own metrics, labels, and a meaning.
var row = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|(?: (gauge|counter|histogram) \\|)? ([a-z0-9_, ]*)\\| .* \\|$")

// exported are the metrics of the manager, of kube-state-metrics as it is configured here, and what Prometheus itself adds.
func exported(t *testing.T) known {
	t.Helper()
	k := known{}
	for _, m := range row.FindAllStringSubmatch(string(read(t, "docs", "reference", "metrics.md")), -1) {
		name, kind, labels := m[1], m[2], strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		if kind != "histogram" {
			k.add(name, labels...)
		}
		if kind == "histogram" || kind == "" && strings.HasSuffix(name, "_seconds") { // of others the type is not documented
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
