package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAnAimThatIsMissedIsNamed(t *testing.T) {
	s := section{title: "Checks"}
	for column, delay := range []time.Duration{250 * time.Millisecond, 50 * time.Millisecond} {
		var measured figures
		measured.addDelays("Marked after", []time.Duration{delay, 25400 * time.Microsecond, time.Millisecond}, 0.025, 0.2)
		measured.add("Heartbeats", 0, count, 0)
		if err := s.add([]string{"few", "many"}[column], measured); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"- Checks, Marked after, p99: 0.250 s / 0.050 s, want ≤ 0.200 s"}
	if diff := cmp.Diff(want, s.missed()); diff != "" {
		t.Errorf("missed (-want +got):\n%s", diff)
	}
	const stored = "# Head\n<!-- checks: begin -->\nold\n<!-- checks: end -->\n<!-- cli: begin -->\nold\n<!-- cli: end -->\n"
	document, err := merged(stored, map[string]string{"checks": s.markdown("checks", "a machine", time.Second)})
	if err != nil {
		t.Fatal(err)
	}
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
