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

type kustomization struct {
	Namespace  string
	Labels     []struct{ Pairs map[string]string }
	Resources  []string
	ConfigMaps []struct {
		Name    string
		Files   []string
		Options struct{ Labels map[string]string }
	} `yaml:"configMapGenerator"`
}

func kustomized(t *testing.T) kustomization {
	t.Helper()
	var k kustomization
	if err := yaml.Unmarshal(read(t, "config", "observability", "kustomization.yaml"), &k); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestEveryFileIsInThePackage(t *testing.T) {
	k := kustomized(t)
	packed := append(slices.Clone(k.Resources), "kustomization.yaml")
	for _, c := range k.ConfigMaps {
		label := "grafana_dashboard"
		if !strings.Contains(c.Name, "dashboard") {
			label = "kube-state-metrics/custom-resource"
		}
		if c.Options.Labels[label] == "" {
			t.Errorf("ConfigMap %s has no label %s, and is not found", c.Name, label)
		}
		for _, file := range c.Files {
			_, file, _ = strings.Cut(file, "=")
			packed = append(packed, file)
		}
	}
	var there []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := filepath.Rel(folder, path)
		there = append(there, filepath.ToSlash(file))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(packed)
	slices.Sort(there)
	if !slices.Equal(packed, there) {
		t.Errorf("packed are %v, there are %v", packed, there)
	}
	if k.Namespace != "kubemend-system" || len(k.Labels) != 1 || k.Labels[0].Pairs["cluster.x-k8s.io/provider"] != "addon-kubemend" {
		t.Errorf("namespace %s, labels %v", k.Namespace, k.Labels)
	}
}

// object is what the manifests here have in common with what is asked of them.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Rules []struct {
		Groups    []string `yaml:"apiGroups"`
		Resources []string
		URLs      []string `yaml:"nonResourceURLs"`
		Verbs     []string
	}
	Spec struct {
		Ports    []struct{ Name string }
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Endpoints []struct {
			Port, Scheme, Path string
			Authorization      struct {
				Credentials struct{ Name, Key string }
			}
			HonorLabels bool `yaml:"honorLabels"`
		}
	}
}

// first is the first object of a file.
func first(t *testing.T, file string) object {
	t.Helper()
	var o object
	if err := yaml.Unmarshal(read(t, "config", "observability", file), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTheServiceMonitorFindsTheService(t *testing.T) {
	service, monitor := first(t, "metrics-service.yaml"), first(t, "service-monitor.yaml")
	labels := service.Metadata.Labels
	for name, value := range kustomized(t).Labels[0].Pairs {
		labels[name] = value
	}
	for name, value := range monitor.Spec.Selector.MatchLabels {
		if labels[name] != value {
			t.Errorf("the Service has not the label %s=%s", name, value)
		}
	}
	if len(monitor.Spec.Endpoints) != 1 || len(service.Spec.Ports) != 1 {
		t.Fatalf("%d endpoints, %d ports", len(monitor.Spec.Endpoints), len(service.Spec.Ports))
	}
	at := monitor.Spec.Endpoints[0]
	if at.Port != service.Spec.Ports[0].Name || at.Scheme != "https" || at.Path != "/metrics" || at.Authorization.Credentials.Name != "kubemend-metrics-token" || !at.HonorLabels {
		t.Errorf("it asks %+v", at)
	}
	_, role, _ := strings.Cut(string(read(t, "config", "observability", "prometheus-rbac.yaml")), "kind: ClusterRole\n")
	var reader object
	if err := yaml.Unmarshal([]byte("kind: ClusterRole\n"+strings.Split(role, "\n---\n")[0]), &reader); err != nil {
		t.Fatal(err)
	}
	if len(reader.Rules) != 1 || !slices.Equal(reader.Rules[0].URLs, []string{"/metrics"}) ||
		!slices.Equal(reader.Rules[0].Verbs, []string{"get"}) {
		t.Errorf("%s %s gives %+v", reader.Kind, reader.Metadata.Name, reader.Rules)
	}
}

func TestKubeStateMetricsMayReadExactlyWhatItExports(t *testing.T) {
	crds := installed(t)
	var want, got []string
	for _, r := range customResources(t) {
		want = append(want, r.GroupVersionKind.Group+"/"+crds[r.GroupVersionKind.Group+"/"+r.GroupVersionKind.Kind].Spec.Names.Plural)
	}
	for _, rule := range first(t, "kube-state-metrics-rbac.yaml").Rules {
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
