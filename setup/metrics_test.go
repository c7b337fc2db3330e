package setup

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/controllers/clockerror"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/leftovers"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/test/golden"
	"github.com/kubemend/kubemend/test/must"
)

// described parses the string form of a prometheus.Desc, which has no other way to read its fields.
var described = regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)", (?:unit: "[^"]*", )?constLabels: {[^}]*}, variableLabels: {([^}]*)}`)

type metric struct{ name, kind, labels, help string }

func allMetrics(t *testing.T) []metric {
	t.Helper()
	var all []metric
	for _, c := range slices.Concat(
		machinehealthcheck.Metrics(), hostremediation.Metrics(), []prometheus.Collector{&hostremediation.UnderWay{}},
		nodehealthcheck.Metrics(), crdgate.Metrics(), clockerror.Metrics(), leftovers.Metrics(), records.Metrics(),
		[]prometheus.Collector{&policy.Ledger{}},
	) {
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

// othersMetrics returns the registered metrics of controller-runtime, client-go and Cluster API, without those that every Go program
// exports.
func othersMetrics(t *testing.T) []metric {
	t.Helper()
	ours := map[string]bool{}
	for _, m := range allMetrics(t) {
		ours[m.name] = true
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		metrics.Registry.(prometheus.Collector).Describe(descriptions)
		close(descriptions)
	}()
	var others []metric
	for d := range descriptions {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("cannot read the description %s", d)
			continue
		}
		if ours[m[1]] || strings.HasPrefix(m[1], "go_") || strings.HasPrefix(m[1], "process_") {
			continue
		}
		others = append(others, metric{name: m[1], labels: strings.ReplaceAll(m[3], ",", ", "), help: m[2]})
	}
	slices.SortFunc(others, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return others
}

// medik8s has the metrics that have the same names as in medik8s' operator, so that dashboards and alerts for it can be used, and the
// objection of Prometheus' linter to each name.
var medik8s = map[string]string{
	"nodehealthcheck_old_remediation_cr":              `counter metrics should have "_total" suffix`,
	"nodehealthcheck_ongoing_remediation":             "",
	"nodehealthcheck_unhealthy_node_duration_seconds": "",
}

func TestMetricsAreNamedAsPrometheusWantsThem(t *testing.T) {
	for _, m := range allMetrics(t) {
		family := &dto.MetricFamily{Name: ptr.To(m.name), Help: ptr.To(m.help), Type: ptr.To(map[string]dto.MetricType{
			"gauge": dto.MetricType_GAUGE, "counter": dto.MetricType_COUNTER, "histogram": dto.MetricType_HISTOGRAM,
		}[m.kind])}
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint()
		must.Do(t, err)
		var found []string
		for _, problem := range problems {
			found = append(found, problem.Text)
		}
		allowed, foreign := medik8s[m.name]
		if got := strings.Join(found, "; "); got != allowed {
			t.Errorf("%s: %q, want %q", m.name, got, allowed)
		}
		if !foreign && !strings.HasPrefix(m.name, "kubemend_") {
			t.Errorf("%s does not begin with kubemend_", m.name)
		}
	}
	for _, m := range othersMetrics(t) {
		if strings.HasPrefix(m.name, "kubemend_") || strings.HasPrefix(m.name, "nodehealthcheck_") {
			t.Errorf("%s is registered, and no package offers it for documentation", m.name)
		}
	}
}

// The tables in docs/reference/metrics.md are generated from the metrics.
func TestMetricsAreDocumented(t *testing.T) {
	const path = "../docs/reference/metrics.md"
	var ours, others strings.Builder
	ours.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range allMetrics(t) {
		fmt.Fprintf(&ours, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, m.help)
	}
	others.WriteString("| metric | labels | meaning |\n|---|---|---|\n")
	for _, m := range othersMetrics(t) {
		first, _, _ := strings.Cut(m.help, ". ") // the rest is on the page /metrics
		first, _, _ = strings.Cut(first, ", 0 indicates")
		fmt.Fprintf(&others, "| `%s` | %s | %s |\n", m.name, m.labels, strings.TrimSuffix(first, "."))
	}
	golden.Section(t, path, "generated", ours.String())
	golden.Section(t, path, "generated others", others.String())
}

// Hundreds of records may be written at once, each of which reads the host of its machine.
func TestHostsAreReadFromTheCachesThatHaveThem(t *testing.T) {
	for name, tc := range map[string]struct {
		watched   bool
		namespace string // of the caches
		want      int    // reads past them
	}{
		"while power cycles are watched":           {watched: true},
		"not of another namespace":                 {watched: true, namespace: "other", want: 301},
		"not before, and lists in a moment as one": {want: 301},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			counting := func(n *int) client.WithWatch {
				return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
					List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
						*n++
						return nil
					},
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						*n++
						return nil
					},
				}).Build()
			}
			live := counting(&reads)
			reader := hostReader{
				Client: live, recent: records.NewRecent(live, clocktesting.NewFakePassiveClock(time.Unix(0, 0))),
				caches: counting(new(int)), namespace: tc.namespace, watched: func() bool { return tc.watched },
			}
			for range 300 {
				one, list := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
				one.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
				list.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3MachineList"))
				get := reader.Get(t.Context(), client.ObjectKey{Namespace: "metal", Name: "m"}, one)
				must.Do(t, errors.Join(get, reader.List(t.Context(), list, client.InNamespace("metal"))))
			}
			if reads != tc.want {
				t.Errorf("the API server is asked %d times", reads)
			}
		})
	}
}
