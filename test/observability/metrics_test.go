package observability

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
