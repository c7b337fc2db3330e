package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRequestsAreSortedByClusterAndMethod(t *testing.T) {
	const page = `process_cpu_seconds_total 1.5
process_resident_memory_bytes 2.097152e+06
rest_client_requests_total{code="200",host="here:1",method="GET"} 5
rest_client_requests_total{code="200",host="here:1",method="PATCH"} 3
rest_client_requests_total{code="409",host="here:1",method="PATCH"} 1
rest_client_requests_total{code="201",host="here:1",method="POST"} 2
rest_client_requests_total{code="200",host="here:1",method="DELETE"} 1
rest_client_requests_total{code="200",host="there:1",method="GET"} 12
capi_cluster_cache_healthchecks_total{cluster_name="a",status="success"} 10
controller_runtime_reconcile_total{controller="machinehealthcheck",result="success"} 4
controller_runtime_reconcile_total{controller="machinehealthcheck",result="error"} 1
controller_runtime_reconcile_total{controller="machinehealthcheck-release",result="success"} 7
controller_runtime_reconcile_total{controller="clustercache",result="success"} 100
# TYPE controller_runtime_reconcile_time_seconds histogram
controller_runtime_reconcile_time_seconds_sum{controller="machinehealthcheck"} 0.25
controller_runtime_reconcile_time_seconds_count{controller="machinehealthcheck"} 5
`
	got, err := parseReading(page, checkController, "here:1", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := reading{
		cpu: 1.5, resident: 2 * mebibyte, reconciles: 5, took: 0.25, otherReconciles: 7,
		reads: 5, patches: 4, creates: 2, others: 1, workloadCalls: 2,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(reading{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := parseReading("nothing 1\n", checkController, "here:1", time.Time{}); err == nil {
		t.Error("a page without the metrics was read")
	}
}

func TestAnAimThatIsMissedIsNamed(t *testing.T) {
	s := section{title: "Checks"}
	for column, delay := range []time.Duration{250 * time.Millisecond, 50 * time.Millisecond} {
		var of figures
		of.addDelays("Marked after", []time.Duration{delay, 25400 * time.Microsecond, time.Millisecond}, 0.025, 0.2)
		of.add("Heartbeats", 0, count, 0)
		if err := s.add([]string{"few", "many"}[column], of); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"- Checks, Marked after, p99: 0.250 s / 0.050 s, want ≤ 0.200 s"}
	if diff := cmp.Diff(want, s.missed()); diff != "" {
		t.Errorf("missed (-want +got):\n%s", diff)
	}
	const was = "# Head\n<!-- checks: begin -->\nold\n<!-- checks: end -->\n<!-- cli: begin -->\nold\n<!-- cli: end -->\n"
	is, err := merged(was, map[string]string{"checks": s.markdown("checks", "a machine", time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []string{
		"| measured | few | many | aim |\n|---|---:|---:|---|",
		"| Marked after, p50 | 0.025 s | 0.025 s | ≤ 0.025 s: met |",
		"| Marked after, p99 | 0.250 s | 0.050 s | ≤ 0.200 s: **missed** |",
		"<!-- checks: end -->\n<!-- cli: begin -->\nold",
	} {
		if !strings.Contains(is, l+"\n") {
			t.Errorf("there is no line\n%s\nin\n%s", l, is)
		}
	}
	if err := s.add("other", figures{{name: "Other", show: count}}); err == nil {
		t.Error("a figure came into the row of another one")
	}
}
