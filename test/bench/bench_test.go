package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestEverySizeHasEnoughMachinesForItsChanges(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, n := range checkSizes(quick) {
			if s := scaleOf(n, quick); s.alone+s.spread+s.mass > n.machines {
				t.Errorf("%s, quick %t: %+v", n, quick, s)
			}
		}
		for _, hosts := range cycleSizes(quick) {
			if s := scaleOf(size{hosts, 1}, quick); 2*s.alone+s.mass > hosts {
				t.Errorf("%d hosts, quick %t: %+v", hosts, quick, s)
			}
		}
	}
}

func TestPercentiles(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for name, row := range map[string]struct {
		of      []time.Duration
		percent int
		want    time.Duration
	}{
		"none":                                   {nil, 99, 0},
		"the only one":                           {[]time.Duration{7}, 50, 7},
		"the lower of two is the median":         {[]time.Duration{7, 8}, 50, 7},
		"the 99th percentile of few is the last": {[]time.Duration{7, 8, 9}, 99, 9},
		"the 99th percentile of a hundred":       {hundred, 99, 99},
		"the median of a hundred":                {hundred, 50, 50},
	} {
		t.Run(name, func(t *testing.T) {
			if got := percentile(row.of, row.percent); got != row.want {
				t.Errorf("got %d, want %d", got, row.want)
			}
		})
	}
}

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

func TestAWatchThatIsCutOffIsMadeAgain(t *testing.T) {
	statuses := make(chan string, 2)
	statuses <- succeeded
	statuses <- failed
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"m"},"status":{"conditions":[{"type":"HealthCheckSucceeded","status":"`+<-statuses+`"}]}}}`)
	}))
	defer server.Close()
	defer close(statuses)
	l, err := watchStatuses(t.Context(), &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if _, err := l.await(t.Context(), l.all(1, failed)); err != nil {
		t.Error(err)
	}
}

func TestAProxyShowsTheNodesOfOneCluster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.String())
	}))
	defer server.Close()
	w, err := startNodeProxy(&rest.Config{Host: server.URL}, "cluster=a")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	kubeconfig, err := w.kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]string{
		"/api/v1/nodes?watch=true": "/api/v1/nodes?labelSelector=cluster%3Da&watch=true",
		"/api/v1/nodes/n":          "/api/v1/nodes/n",
	} {
		response, err := client.Get(config.Host + asked)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(got) != want || response.ProtoMajor != 2 {
			t.Errorf("%s became %s by %s (%v), want %s", asked, got, response.Proto, err, want)
		}
	}
}

func TestAnAimThatIsMissedIsNamed(t *testing.T) {
	rows := []row{
		{firstFullPass, seconds, noAim}, {aloneMedian, seconds, 0.025}, {aloneWorst, seconds, 0.2},
		{beatReconciles, count, 0}, {beatCPU, seconds, 0.5},
	}
	few := figures{firstFullPass: 2, aloneMedian: 0.0254, aloneWorst: 0.25, beatReconciles: 0}
	many := figures{firstFullPass: 25, aloneMedian: 0.011, aloneWorst: 0.05, beatReconciles: 0, beatCPU: 0.4}
	s := section{title: "Checks", tables: []table{tableOf(rows, []string{"few", "many"}, few, many)}}
	want := []string{
		"- Checks, One change alone: marked after, p99: 0.250 s / 0.050 s, want ≤ 0.200 s",
		"- Checks, 1000 heartbeats: processor time: – / 0.400 s, want ≤ 0.500 s",
	}
	if diff := cmp.Diff(want, s.missed()); diff != "" {
		t.Errorf("missed (-want +got):\n%s", diff)
	}
	for _, l := range []string{
		"| measured | few | many | aim |\n|---|---:|---:|---|",
		"| First full pass after the start | 2.000 s | 25.0 s |  |",
		"| One change alone: marked after, p50 | 0.025 s | 0.011 s | ≤ 0.025 s: met |",
		"| One change alone: marked after, p99 | 0.250 s | 0.050 s | ≤ 0.200 s: **missed** |",
	} {
		if table := s.tables[0].markdown(); !strings.Contains(table, l+"\n") {
			t.Errorf("there is no line\n%s\nin\n%s", l, table)
		}
	}
	hostile := section{tables: []table{besideHostile(figures{spreadMedian: 1}, figures{spreadMedian: 1.6})}}
	if len(hostile.missed()) == 0 {
		t.Error("1.6 times what it is alone is no missed aim")
	}
}

func TestAPartThatWasNotMeasuredIsLeftAsItIs(t *testing.T) {
	const was = "# Head\n<!-- checks: begin -->\nold\n<!-- checks: end -->\n<!-- cli: begin -->\nold\n<!-- cli: end -->\n"
	const want = "# Head\n<!-- checks: begin -->\nold\n<!-- checks: end -->\n<!-- cli: begin -->\nnew\n<!-- cli: end -->\n"
	if is, err := merged(was, map[string]string{"cli": "new\n"}); err != nil || is != want {
		t.Errorf("got %q (%v), want %q", is, err, want)
	}
	if _, err := merged(was, map[string]string{"hostile": "new\n"}); err == nil {
		t.Error("a part without marks was lost")
	}
}
