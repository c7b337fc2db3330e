package main

import (
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"
)

func TestAnAimThatIsMissedIsNamed(t *testing.T) {
	s := section{title: "Checks"}
	for column, delay := range []time.Duration{250 * time.Millisecond, 50 * time.Millisecond} {
		var measured figures
		measured.addDelays("Marked after", []time.Duration{delay, 25400 * time.Microsecond, time.Millisecond}, 0.025, 0.2)
		measured.add("Heartbeats", 0, count, 0)
		must.Do(t, s.add([]string{"few", "many"}[column], measured))
	}
	want := []string{"- Checks, Marked after, p99: 0.250 s / 0.050 s, want ≤ 0.200 s"}
	must.Equal(t, want, s.missed(), "missed")
	const stored = "# Head\n<!-- checks: begin -->\nold\n<!-- checks: end -->\n<!-- cli: begin -->\nold\n<!-- cli: end -->\n"
	document, err := merged(stored, map[string]string{"checks": s.markdown("checks", "a machine", time.Second)})
	must.Do(t, err)
	for _, l := range []string{
		"| measured | few | many | aim |\n|---|---:|---:|---|",
		"| Marked after, p50 | 0.025 s | 0.025 s | ≤ 0.025 s: met |",
		"| Marked after, p99 | 0.250 s | 0.050 s | ≤ 0.200 s: **missed** |",
		"<!-- checks: end -->\n<!-- cli: begin -->\nold",
	} {
		if !strings.Contains(document, l+"\n") {
			t.Errorf("there is no line\n%s\nin\n%s", l, document)
		}
	}
	if err := s.add("other", figures{{name: "Other", show: count}}); err == nil {
		t.Error("a figure came into the row of another one")
	}
}
