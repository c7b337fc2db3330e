package observability

import (
	"bytes"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	alertlabels "github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// story is what Prometheus has recorded, in the notation of promqltest, and when an alert must fire.
type story struct {
	name  string
	every time.Duration // the interval of samples and evaluations; a minute if zero
	// recorded are series: a selector, a space, and values such as "_x5 0x10 1x30 stale": no sample five times, eleven zeros, 31 ones, end.
	recorded []string
	// turns are the times at which the alert starts firing, stops, starts again, and so on; empty if it never fires.
	turns []time.Duration
	// says is a part of the description of the alert.
	says string
}

// fires returns a story in which the alert starts and stops firing after these minutes, with a description that contains says.
func fires(name string, turns []int, says string, recorded ...string) story {
	s := story{name: name, recorded: recorded, says: says}
	for _, minutes := range turns {
		s.turns = append(s.turns, time.Duration(minutes)*time.Minute)
	}
	return s
}

func (s story) each(d time.Duration) story {
	s.every = d
	return s
}

func quiet(name string, recorded ...string) story {
	return story{name: name, recorded: recorded}
}

func TestAlertsFireAndStopAsInTheirStories(t *testing.T) {
	told := map[string]bool{}
	for _, r := range rulesOf(t) {
		told[r.Alert] = true
		if !slices.ContainsFunc(stories[r.Alert], func(s story) bool { return len(s.turns) > 0 }) {
			t.Errorf("%s: there is no story in which it fires", r.Alert)
		}
		for _, s := range stories[r.Alert] {
			t.Run(r.Alert+"/"+s.name, func(t *testing.T) { s.tell(t, r) })
		}
	}
	for alert := range stories {
		if !told[alert] {
			t.Errorf("there is no alert %s", alert)
		}
	}
}

// The first number of the Fleet dashboard must be more than 0 whenever one of these alerts fires.
func TestNeedsAPersonCountsWhatAlertsReport(t *testing.T) {
	fleet := dashboards(t)[1]
	number := fleet.Panels[1] // the first panel is the heading of the row
	if number.Title != "Needs a person" {
		t.Fatalf("the first panel is %q", number.Title)
	}
	expr := strings.NewReplacer("$namespace", ".*", "$cluster", ".*").Replace(number.Targets[0].Expr) + " > 0"
	alerts := []string{"KubemendHostNeedsPerson", "KubemendHostRemediationStuck", "KubemendHostExhausted", "KubemendCapacityNotBack"}
	for _, r := range rulesOf(t) {
		if !slices.Contains(alerts, r.Alert) {
			continue
		}
		r.Expr, r.Annotations = expr, map[string]string{"summary": "x", "description": "x", "runbook_url": "x"}
		for _, s := range stories[r.Alert] {
			s.says = ""
			t.Run(r.Alert+"/"+s.name, func(t *testing.T) { s.tell(t, r) })
		}
	}
	r := rulefmt.Rule{Alert: "Needs", Expr: expr, Annotations: map[string]string{"summary": "x", "description": "x", "runbook_url": "x"}}
	for _, reason := range []string{"CannotBeRemediated", "NoOwner"} {
		story{
			recorded: []string{`kubemend_capacity_missing{namespace="ns", cluster="c1", reason="` + reason + `"} _x10 1x19 stale`},
			turns:    []time.Duration{10 * time.Minute, 30 * time.Minute},
		}.tell(t, r)
	}
}

// tell evaluates the rule like Prometheus, from the beginning to shortly after the end of the series.
func (s story) tell(t *testing.T, r rulefmt.Rule) {
	every := s.every
	if every == 0 {
		every = time.Minute
	}
	storage := promqltest.LoadedStorage(t, "load "+every.String()+"\n  "+strings.Join(s.recorded, "\n  ")+"\n")
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)
	if every > time.Minute { // a sample is valid until the next sample
		engine = promqltest.NewTestEngine(t, false, every, 1_000_000)
	}
	query := rules.EngineQueryFunc(engine, storage)
	rule := ruleOf(t, r)
	var turns []time.Duration
	last := s.end(t, every)
	for at := time.Duration(0); at <= last; at += every {
		now := time.Unix(0, 0).Add(at)
		if _, err := rule.Eval(t.Context(), 0, now, query, &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
		firing := firing(rule)
		if begun := len(turns)%2 == 1; begun == (len(firing) > 0) {
			continue
		}
		turns = append(turns, at)
		if len(turns) == 1 {
			s.check(t, firing[0])
		}
	}
	if !slices.Equal(turns, s.turns) {
		t.Errorf("it fires, and stops, after %v; want %v", turns, s.turns)
	}
}

// end returns when the longest series ends.
func (s story) end(t *testing.T, every time.Duration) time.Duration {
	t.Helper()
	longest := 0
	for _, line := range s.recorded {
		_, values, err := promQL.ParseSeriesDesc(line)
		mustDo(t, err)
		longest = max(longest, len(values))
	}
	return time.Duration(longest-1) * every
}

func ruleOf(t *testing.T, r rulefmt.Rule) *rules.AlertingRule {
	t.Helper()
	expr, err := promQL.ParseExpr(r.Expr)
	mustDo(t, err)
	return rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
}

func firing(rule *rules.AlertingRule) []*rules.Alert {
	return slices.DeleteFunc(rule.ActiveAlerts(), func(a *rules.Alert) bool { return a.State != rules.StateFiring })
}

// check checks the annotations of a firing alert.
func (s story) check(t *testing.T, alert *rules.Alert) {
	t.Helper()
	description := alert.Annotations.Get("description")
	for _, name := range []string{"summary", "description", "runbook_url"} {
		text := alert.Annotations.Get(name)
		if text == "" || strings.Contains(text, "<no value>") || strings.Contains(text, "<error") || strings.Contains(text, "  ") {
			t.Errorf("its %s is %q", name, text)
		}
	}
	if !strings.Contains(description, s.says) {
		t.Errorf("its description is %q, want it to say %q", description, s.says)
	}
}

const runbooks = "https://github.com/kubemend/kubemend/blob/main/docs/runbooks/"

func TestEveryAlertHasAPageThatSaysWhatToDo(t *testing.T) {
	var want []string
	for _, r := range rulesOf(t) {
		want = append(want, r.Alert+".md")
		if !strings.HasPrefix(r.Alert, "Kubemend") || !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		if got := r.Annotations["runbook_url"]; got != runbooks+r.Alert+".md" {
			t.Errorf("%s sends people to %s", r.Alert, got)
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "runbooks", "*.md"))
	mustDo(t, err)
	var got []string
	for _, file := range files {
		got = append(got, filepath.Base(file))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the pages are %v, want %v", got, want)
	}
	for _, name := range got {
		page := string(read(t, "docs", "runbooks", name))
		for _, part := range []string{"# " + strings.TrimSuffix(name, ".md") + "\n", "\n## Symptom\n", "\n## Command\n", "\n## Decision\n",
			"\n## Done\n"} {
			if !strings.Contains(page, part) {
				t.Errorf("%s has no %q", name, strings.TrimSpace(part))
			}
		}
	}
}

// Users read the table in docs/monitoring.md before they install the alerts, so it must be complete.
func TestEveryAlertIsInTheTableOfAlerts(t *testing.T) {
	page := string(read(t, "docs", "monitoring.md"))
	for _, r := range rulesOf(t) {
		after := "at once"
		if r.For > 0 {
			after = r.For.String()
		}
		line := "| [`" + r.Alert + "`](runbooks/" + r.Alert + ".md) | " + r.Labels["severity"] + " | " + after + " | " +
			r.Annotations["summary"] + " |\n"
		if !strings.Contains(page, line) {
			t.Errorf("docs/monitoring.md lacks this line:\n%s", line)
		}
	}
}

// alertmanagerConfig is the used part of Alertmanager's configuration. Alertmanager's own package needs the clients of a dozen services.
type alertmanagerConfig struct {
	Route     route        `yaml:"route"`
	Inhibit   []inhibition `yaml:"inhibit_rules"`
	Receivers []struct {
		Name string `yaml:"name"`
	} `yaml:"receivers"`
}

type route struct {
	Receiver      string         `yaml:"receiver"`
	Matchers      []string       `yaml:"matchers"`
	GroupBy       []string       `yaml:"group_by"`
	GroupWait     model.Duration `yaml:"group_wait"`
	GroupInterval model.Duration `yaml:"group_interval"`
	Routes        []route        `yaml:"routes"`
}

type inhibition struct {
	Source []string `yaml:"source_matchers"`
	Target []string `yaml:"target_matchers"`
	Equal  []string `yaml:"equal"`
}

// matching parses matchers with Alertmanager's own parser.
func matching(t *testing.T, matchers []string) alertlabels.Matchers {
	t.Helper()
	var all alertlabels.Matchers
	for _, one := range matchers {
		parsed, err := alertlabels.ParseMatchers(one)
		if err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		all = append(all, parsed...)
	}
	return all
}

func exampleOfAlertmanager(t *testing.T) alertmanagerConfig {
	t.Helper()
	config, decoder := alertmanagerConfig{},
		yaml.NewDecoder(bytes.NewReader(read(t, "docs", "examples", "alertmanager", "alertmanager.yml")))
	decoder.KnownFields(true)
	mustDo(t, decoder.Decode(&config))
	return config
}

func TestTheExampleOfAlertmanagerSilencesNoneOfOursForItsCluster(t *testing.T) {
	config := exampleOfAlertmanager(t)
	inhibits := func(source string, r string, severity string) bool {
		return slices.ContainsFunc(config.Inhibit, func(i inhibition) bool {
			alert := func(name, severity string) model.LabelSet {
				return model.LabelSet{"alertname": model.LabelValue(name), "severity": model.LabelValue(severity)}
			}
			return matching(t, i.Source).Matches(alert(source, "")) && matching(t, i.Target).Matches(alert(r, severity))
		})
	}
	for _, r := range rulesOf(t) {
		severity := r.Labels["severity"]
		if inhibits(unreachable, r.Alert, severity) {
			t.Errorf("an unreachable cluster inhibits %s, also while it is lost and found again; the rules do that", r.Alert)
		}
		if got := inhibits("KubemendNoLeader", r.Alert, severity); got != (severity == "warning") {
			t.Errorf("a missing leader inhibits %s: %t", r.Alert, got)
		}
	}
	if !inhibits(unreachable, "KubeNodeNotReady", "warning") {
		t.Error("an unreachable cluster inhibits nothing of others")
	}
	for _, i := range config.Inhibit {
		if matching(t, i.Source).Matches(model.LabelSet{"alertname": unreachable}) &&
			!slices.Equal(i.Equal, []string{"namespace", "cluster"}) {
			t.Errorf("the alert of a cluster inhibits those with the same %v; a cluster is its namespace and its name", i.Equal)
		}
	}
}

func TestTheExampleOfAlertmanagerHasTheReceiversThatItNames(t *testing.T) {
	config := exampleOfAlertmanager(t)
	receivers := map[string]bool{}
	for _, receiver := range config.Receivers {
		receivers[receiver.Name] = true
	}
	for _, r := range append(config.Route.Routes, config.Route) {
		if !receivers[r.Receiver] {
			t.Errorf("there is no receiver %q", r.Receiver)
		}
		matching(t, r.Matchers)
	}
	outage := model.LabelSet{"alertname": unreachable, "severity": "warning"}
	first := slices.IndexFunc(config.Route.Routes, func(r route) bool { return matching(t, r.Matchers).Matches(outage) })
	if first < 0 || !slices.Equal(config.Route.Routes[first].GroupBy, []string{"alertname"}) {
		t.Error("clusters behind one uplink are not one message")
	}
}
