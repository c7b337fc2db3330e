package policy

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// mostMeasured is how many groups have series. Further groups have none.
const mostMeasured = 200

var (
	groupMetric = prometheus.NewDesc("kubemend_policy_group",
		"Targets in a group of a RemediationPolicy, by count: targets (all that can be judged), unavailable, in_flight, waiting. "+
			"Only of groups with a target that is not idle, at most 200.", []string{"namespace", "policy", "limit", "group", "count"}, nil)
	validMetric = prometheus.NewDesc("kubemend_policy_valid", "Whether a RemediationPolicy can be read: 1, or 0 if a field is invalid.",
		[]string{"namespace", "policy"}, nil)
	overridesMetric = prometheus.NewDesc("kubemend_overrides_active", "RemediationOverrides that have an effect, by action: Hold, Allow.",
		[]string{"action"}, nil)
)

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{groupMetric, validMetric, overridesMetric} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (l *Ledger) Collect(series chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	send := func(of *prometheus.Desc, n int, labels ...string) {
		series <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(n), labels...)
	}
	active := map[mendv1.OverrideAction]int{mendv1.OverrideHold: 0, mendv1.OverrideAllow: 0}
	for _, p := range l.policies {
		valid := 1
		if p.Invalid != "" {
			valid = 0
		}
		if p.override != nil {
			active[p.override.Action]++
		} else {
			send(validMetric, valid, p.Namespace, p.Name)
		}
	}
	for action, n := range active {
		send(overridesMetric, n, string(action))
	}
	var busy []*group
	for _, g := range l.groups {
		if len(g.open) > 0 && g.policy.override == nil {
			busy = append(busy, g)
		}
	}
	slices.SortFunc(busy, func(a, b *group) int {
		return strings.Compare(a.policy.String()+a.limit.Name+a.Group, b.policy.String()+b.limit.Name+b.Group)
	})
	for _, g := range busy[:min(len(busy), mostMeasured)] {
		n := l.numbers(g, l.Clock.Now())
		for count, value := range map[string]int{
			"targets": n.targets, "unavailable": n.unavailable, "in_flight": n.inFlight, "waiting": n.waiting,
		} {
			send(groupMetric, value, g.policy.Namespace, g.policy.Name, g.limit.Name, g.Group, count)
		}
	}
}
