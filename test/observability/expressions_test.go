package observability

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

var promQL = parser.NewParser(parser.Options{})

// rulesOf returns the alerts, parsed by Prometheus' own code.
func rulesOf(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var object struct {
		Spec yaml.Node `yaml:"spec"`
	}
	mustDo(t, yaml.Unmarshal(read(t, "config", "observability", "prometheus-rule.yaml"), &object))
	spec, err := yaml.Marshal(&object.Spec)
	mustDo(t, err)
	groups, errs := rulefmt.Parse(spec, false, model.LegacyValidation, promQL, promslog.NewNopLogger())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var all []rulefmt.Rule
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no rules")
	}
	return all
}

type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []struct {
			Name string `json:"name"`
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		Targets []struct {
			Datasource struct{ UID string }
			Expr       string
		} `json:"targets"`
	} `json:"panels"`
}

func dashboards(t *testing.T) []dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config", "observability", "dashboards", "*.json"))
	if err != nil || len(files) != 3 {
		t.Fatalf("dashboards are %v, %v; want three", files, err)
	}
	var all []dashboard
	for _, file := range files {
		var d dashboard
		if err := json.Unmarshal(read(t, "config", "observability", "dashboards", filepath.Base(file)), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}

// filledIn replaces the variables in an expression of a dashboard, as Grafana does before it sends the expression.
func filledIn(expr string, d dashboard) string {
	expr = strings.ReplaceAll(expr, "$__rate_interval", "5m")
	for _, v := range d.Templating.List {
		expr = strings.ReplaceAll(expr, "$"+v.Name, "x")
	}
	return expr
}

func asked(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range rulesOf(t) {
		all["alert "+r.Alert] = r.Expr
	}
	for _, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			if series, label, ok := labelValues(v.Query); ok {
				all[fmt.Sprintf("dashboard %s, variable %s", d.Title, v.Name)] = "count by (" + label + ") (" + filledIn(series, d) + ")"
			} else if v.Type != "datasource" {
				t.Errorf("dashboard %s, variable %s: cannot read %q", d.Title, v.Name, v.Query)
			}
		}
		for _, a := range d.Annotations.List {
			all[fmt.Sprintf("dashboard %s, annotation %s", d.Title, a.Name)] = filledIn(a.Expr, d)
		}
		for _, p := range d.Panels {
			for i, target := range p.Targets {
				all[fmt.Sprintf("dashboard %s, panel %d %s, query %d", d.Title, p.ID, p.Title, i)] = filledIn(target.Expr, d)
			}
		}
	}
	return all
}

// labelValues parses label_values(SERIES, LABEL), which is Grafana's own syntax for the values of a label.
func labelValues(query string) (series, label string, ok bool) {
	inner, ok := strings.CutPrefix(query, "label_values(")
	inner, closed := strings.CutSuffix(inner, ")")
	at := strings.LastIndex(inner, ", ")
	if !ok || !closed || at < 0 {
		return "", "", false
	}
	return inner[:at], inner[at+2:], true
}

func TestEveryExpressionAsksForMetricsAndLabelsThatExist(t *testing.T) {
	all, k := asked(t), exported(t)
	if len(all) < 60 {
		t.Errorf("%d expressions were found, which cannot be all", len(all))
	}
	for where, expr := range all {
		if strings.Contains(expr, "$") {
			t.Errorf("%s: a variable is not there: %s", where, expr)
			continue
		}
		for _, wrong := range faultsOf(expr, k) {
			t.Errorf("%s: %s", where, wrong)
		}
	}
}

// faultsOf returns the errors of an expression: it does not parse, or it refers to a metric or label that does not exist.
func faultsOf(expr string, k known) []string {
	parsed, err := promQL.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			if k[n.Name] == nil {
				faults = append(faults, fmt.Sprintf("there is no metric %q", n.Name))
				break
			}
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" && !k.has(n.Name, m.Name) {
					faults = append(faults, fmt.Sprintf("%s has no label %q", n.Name, m.Name))
				}
			}
		case *parser.AggregateExpr:
			faults = append(faults, withoutMetric(n.Expr, n.Grouping, k)...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && n.VectorMatching.On {
				faults = append(faults, withoutMetric(n.LHS, n.VectorMatching.MatchingLabels, k)...)
				faults = append(faults, withoutMetric(n.RHS, n.VectorMatching.MatchingLabels, k)...)
			}
		}
		return nil
	})
	return faults
}

func withoutMetric(expr parser.Expr, labels []string, k known) []string {
	var faults []string
	for _, label := range labels {
		found := false
		for _, matchers := range parser.ExtractSelectors(expr) {
			for _, m := range matchers {
				found = found || m.Name == "__name__" && k.has(m.Value, label)
			}
		}
		if !found {
			faults = append(faults, fmt.Sprintf("no metric in %s has the label %q", expr, label))
		}
	}
	return faults
}

func TestDashboardsAreWellFormed(t *testing.T) {
	for _, d := range dashboards(t) {
		var variables []string
		for _, v := range d.Templating.List {
			variables = append(variables, v.Name)
		}
		for _, want := range []string{"datasource", "namespace", "cluster"} {
			if !slices.Contains(variables, want) {
				t.Errorf("%s has no variable %s", d.Title, want)
			}
		}
		for i, p := range d.Panels {
			if p.ID != i+1 {
				t.Errorf("%s: panel %q has the ID %d, want %d", d.Title, p.Title, p.ID, i+1)
			}
			for _, target := range p.Targets {
				if target.Datasource.UID != "${datasource}" {
					t.Errorf("%s: panel %q asks %q, and not the data source that was chosen", d.Title, p.Title, target.Datasource.UID)
				}
			}
		}
	}
}
