package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/ptr"

	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/serving"
)

// described is what a collector says of itself. Prometheus offers it in one string only.
var described = regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)", (?:unit: "[^"]*", )?constLabels: {}, variableLabels: {([^}]*)}`)

type metric struct{ name, kind, labels, help string }

func allMetrics(t *testing.T) []metric {
	t.Helper()
	var all []metric
	for _, c := range slices.Concat(machinehealthcheck.Metrics(), hostremediation.Metrics(), nodehealthcheck.Metrics(), serving.Metrics()) {
		kind := "gauge" // also what is counted when it is asked for
		switch c.(type) {
		case *prometheus.HistogramVec, prometheus.Histogram:
			kind = "histogram"
		case *prometheus.CounterVec:
			kind = "counter"
		}
		descriptions := make(chan *prometheus.Desc, 10)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := described.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("cannot read the description of %T", c)
			}
			all = append(all, metric{name: m[1], kind: kind, labels: strings.ReplaceAll(m[3], ",", ", "), help: m[2]})
		}
	}
	return all
}

func TestMetricsAreNamedAsPrometheusWantsThem(t *testing.T) {
	for _, m := range allMetrics(t) {
		if slices.Contains(medik8s, m.name) {
			continue
		}
		family := &dto.MetricFamily{Name: ptr.To(m.name), Help: ptr.To(m.help), Type: ptr.To(map[string]dto.MetricType{
			"gauge": dto.MetricType_GAUGE, "counter": dto.MetricType_COUNTER, "histogram": dto.MetricType_HISTOGRAM,
		}[m.kind])}
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %v", m.name, problems, err)
		}
		if !strings.HasPrefix(m.name, "kubemend_") {
			t.Errorf("%s does not begin with kubemend_", m.name)
		}
	}
}

// medik8s are metrics that are known by the names that they have in medik8s' operator.
var medik8s = []string{"nodehealthcheck_old_remediation_cr", "nodehealthcheck_ongoing_remediation", "nodehealthcheck_unhealthy_node_duration_seconds"}

// The table in docs/metrics.md says what the program exports.
func TestMetricsAreDocumented(t *testing.T) {
	const path, begin, end = "docs/metrics.md", "<!-- begin generated -->\n", "<!-- end generated -->\n"
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range allMetrics(t) {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, m.help)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no generated part", path)
	}
	want := before + begin + table.String() + end + after
	if want == string(content) {
		return
	}
	if !*update {
		t.Fatalf("%s is stale; run make generate", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}
