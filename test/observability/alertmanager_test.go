package observability

import (
	"bytes"
	"slices"
	"testing"

	"github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// alertmanagerConfig is the part of Alertmanager's configuration that the example has. Its own package for that brings clients of a dozen
// services along.
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
func matching(t *testing.T, matchers []string) labels.Matchers {
	t.Helper()
	var all labels.Matchers
	for _, one := range matchers {
		parsed, err := labels.ParseMatchers(one)
		if err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		all = append(all, parsed...)
	}
	return all
}

func exampleOfAlertmanager(t *testing.T) alertmanagerConfig {
	t.Helper()
	config, decoder := alertmanagerConfig{}, yaml.NewDecoder(bytes.NewReader(read(t, "docs", "examples", "alertmanager", "alertmanager.yml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&config); err != nil {
		t.Fatal(err)
	}
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
		if matching(t, i.Source).Matches(model.LabelSet{"alertname": unreachable}) && !slices.Equal(i.Equal, []string{"namespace", "cluster"}) {
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
