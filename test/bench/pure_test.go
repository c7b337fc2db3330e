package main

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// A healthy machine is judged again and again, so this must not allocate.
func BenchmarkJudgeHealthy(b *testing.B) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	policy := health.Policy{NodeStartup: 10 * time.Minute, Rules: []health.Rule{
		{Source: health.OnNode, Type: "Ready", Status: "False", For: 5 * time.Minute},
		{Source: health.OnNode, Type: "Ready", Status: "Unknown", For: 5 * time.Minute},
	}}
	target := health.Target{Node: health.NodePresent, NodeName: "node"}
	for _, kind := range []string{"NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure"} {
		target.Signals = append(target.Signals, health.Signal{Source: health.OnNode, Type: kind, Status: "False", Since: now.Add(-time.Hour)})
	}
	target.Signals = append(target.Signals, health.Signal{Source: health.OnNode, Type: "Ready", Status: "True", Since: now.Add(-time.Hour)})
	b.ReportAllocs()
	for b.Loop() {
		if v := health.Judge(target, policy, now); v.State != health.Healthy {
			b.Fatalf("judged %s", v.State)
		}
	}
}

func BenchmarkJudgeUnhealthy(b *testing.B) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	policy := health.Policy{Rules: []health.Rule{{Source: health.OnNode, Type: "Ready", Status: "Unknown", For: 5 * time.Minute}}}
	target := health.Target{Node: health.NodePresent, NodeName: "node", Signals: []health.Signal{
		{Source: health.OnNode, Type: "Ready", Status: "Unknown", Since: now.Add(-time.Hour)},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if v := health.Judge(target, policy, now); v.State != health.Unhealthy {
			b.Fatalf("judged %s", v.State)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	p := budget.Population{Healthy: 4900, Unhealthy: 60, Pending: 20, Starting: 10, Deleting: 5, Unknown: 5, InFlight: 10, Waiting: 50}
	limits := budget.Limits{AtMost: budget.All.Of(p.Total()), InFlight: 20}
	b.ReportAllocs()
	for b.Loop() {
		if g := budget.Decide(p, limits); g.Start != 10 {
			b.Fatalf("granted %d", g.Start)
		}
	}
}
