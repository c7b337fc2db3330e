package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestSizesAreReadFromTheCommandLine(t *testing.T) {
	for list, want := range map[string][]size{
		"100":            {{100, 1}},
		"100/1,1000/50":  {{100, 1}, {1000, 50}},
		"100/":           {{100, 1}},
		"ten":            nil,
		"100/no":         nil,
		"100/3":          nil,
		"100/0":          nil,
		"10/1":           nil,
		"100/1,,1000/50": nil,
	} {
		t.Run(list, func(t *testing.T) {
			got, err := parseSizes(list)
			if (err != nil) != (want == nil) {
				t.Errorf("error: %v", err)
			}
			if !slices.Equal(got, want) && want != nil {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestEverySizeHasEnoughMachinesForItsChanges(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, w := range []size{{100, 1}, {200, 4}, {1000, 1}, {1000, 50}, {5000, 1}} {
			if s := scaleOf(w, quick); max(s.alone, s.isolate)+s.spread+s.mass > w.machines {
				t.Errorf("%s, quick %t: %+v", w, quick, s)
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
go_memstats_mallocs_total 1000
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
	got, err := parseReading(page, contenders()[0], "here:1", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := reading{
		cpu: 1.5, mallocs: 1000, resident: 2 * mebibyte, reconciles: 5, took: 0.25, otherReconciles: 7,
		reads: 5, patches: 4, creates: 2, others: 1, workloadCalls: 2,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(reading{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := parseReading("nothing 1\n", contenders()[0], "here:1", time.Time{}); err == nil {
		t.Error("a page without the metrics was read")
	}
}

func TestAChangeOfAConditionIsSeen(t *testing.T) {
	machines := func(status string) string {
		return `{"type":"MODIFIED","object":{"metadata":{"name":"m"},"status":{"conditions":[{"type":"HealthCheckSucceeded","status":"` + status + `"}]}}}`
	}
	stream, events := io.Pipe()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		buffer := make([]byte, 4096)
		for {
			n, err := stream.Read(buffer)
			if err != nil {
				return
			}
			_, _ = w.Write(buffer[:n])
			w.(http.Flusher).Flush()
		}
	}))
	defer server.Close()
	l, err := watchStatuses(t.Context(), &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	nodeFailed, all := l.becomes("m", failed), l.all(1, failed)
	for _, status := range []string{succeeded, succeeded, failed} {
		if _, err := io.WriteString(events, machines(status)); err != nil {
			t.Fatal(err)
		}
	}
	for _, moment := range []<-chan time.Time{nodeFailed, all} {
		if _, err := l.await(t.Context(), moment); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.await(t.Context(), l.all(1, failed)); err != nil {
		t.Errorf("what is so already: %v", err)
	}
	_ = events.Close()
	if _, err := l.await(t.Context(), l.becomes("m", succeeded)); err == nil {
		t.Error("the end of the watch went unnoticed")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.await(ended, nil); err == nil {
		t.Error("the end of the context went unnoticed")
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
	for name, secure := range map[string]bool{"in clear text": false, "over TLS": true} {
		w, err := startNodeProxy(&rest.Config{Host: server.URL}, "cluster=a", secure)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.close)
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
			"/":                        "/",
		} {
			response, err := client.Get(config.Host + asked)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || string(got) != want {
				t.Errorf("%s: %s became %s (%v), want %s", name, asked, got, err, want)
			}
			if secure != (response.ProtoMajor == 2) {
				t.Errorf("%s: %s was asked by %s", name, asked, response.Proto)
			}
		}
	}
}

func TestTheReportSaysWhatIsMetAndWhatIsMissed(t *testing.T) {
	all := contenders()
	results := sizeResults{size: size{1000, 1}, contenders: []contenderResults{
		{all[0], figures{firstFullPass: 2, firstPassRatio: 1.15, aloneWorst: 0.25, beatReconciles: 0}},
		{all[1], figures{firstFullPass: 25, firstPassRatio: 2.5, aloneWorst: 0.05, beatReconciles: 2}},
	}}
	table := results.table()
	for _, line := range []string{
		"| measured | kubemend | Cluster API | ratio | aim |",
		"| First full pass after the start | 2.000 s | 25.0 s | 12 |  |",
		"| First full pass: times what the bare client needs | 1.15 | 2.50 | 2.2 | ≤ 1.15: met |",
		"| One change alone: marked after, p99 | 0.250 s | 0.050 s | 0.2 | ≤ 0.200 s: **missed** |",
		"| 1000 heartbeats: reconciles | 0 | 2 | ∞ | ≤ 0: met |",
		"| 1000 heartbeats: processor time | – | – |  | ≤ 0.300 s: **missed** |",
	} {
		if !strings.Contains(table, line+"\n") {
			t.Errorf("there is no line\n%s\nin\n%s", line, table)
		}
	}
}

func TestAPartThatWasNotMeasuredIsLeftAsItIs(t *testing.T) {
	marked := func(name, text string) string {
		return "\n<!-- " + name + ": begin -->\n" + text + "<!-- " + name + ": end -->\n"
	}
	type sections map[string]string
	for name, row := range map[string]struct {
		was      string
		measured sections
		want     string
	}{
		"all of a new document": {
			"", sections{checksPart: "# Checks\n", cyclesPart: "## Cycles\n"}, "# Checks\n" + marked("power-cycles", "## Cycles\n"),
		},
		"checks alone, in a document without more": {"# Old\n", sections{checksPart: "# Checks\n"}, "# Checks\n"},
		"cycles alone, in a document without them": {
			"# Old\n", sections{cyclesPart: "## Cycles\n"}, "# Old\n" + marked("power-cycles", "## Cycles\n"),
		},
		"checks alone": {
			"# Old\n" + marked("power-cycles", "## Old cycles\n"), sections{checksPart: "# Checks\n"},
			"# Checks\n" + marked("power-cycles", "## Old cycles\n"),
		},
		"cycles alone": {
			"# Old\n" + marked("power-cycles", "## Old cycles\n"), sections{cyclesPart: "## Cycles\n"},
			"# Old\n" + marked("power-cycles", "## Cycles\n"),
		},
		"cycles alone, before nodes": {
			"# Old\n" + marked("node-checks", "## Old nodes\n"), sections{cyclesPart: "## Cycles\n"},
			"# Old\n" + marked("power-cycles", "## Cycles\n") + marked("node-checks", "## Old nodes\n"),
		},
		"nodes alone, after cycles": {
			"# Old\n" + marked("power-cycles", "## Old cycles\n"), sections{nodesPart: "## Nodes\n"},
			"# Old\n" + marked("power-cycles", "## Old cycles\n") + marked("node-checks", "## Nodes\n"),
		},
		"a fleet alone, and again": {
			"# Old\n" + marked("node-checks", "## Old nodes\n") + marked("fleet", "## Old fleet\n"), sections{fleetPart: "## Fleet\n"},
			"# Old\n" + marked("node-checks", "## Old nodes\n") + marked("fleet", "## Fleet\n"),
		},
		"the command line comes last": {
			"# Old\n" + marked("fleet", "## Old fleet\n"), sections{cliPart: "## New\n"},
			"# Old\n" + marked("fleet", "## Old fleet\n") + marked("cli", "## New\n"),
		},
		"nothing": {
			"# Old\n" + marked("fleet", "## Old fleet\n") + marked("cli", "## Old\n"), nil,
			"# Old\n" + marked("fleet", "## Old fleet\n") + marked("cli", "## Old\n"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, merged(row.was, row.measured)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTheWorstRunOfACommandIsHeldAgainstItsAim(t *testing.T) {
	const s = time.Second
	all := cliCommands(size{5000, 1})
	status, check := all[0], all[len(all)-1]
	r := report{cli: []cliResults{{size{5000, 1}, []cliFigures{
		{cliCommand: status, cold: 3 * s, took: []time.Duration{s, s, 2 * s}, cpu: []time.Duration{s, s, s}, resident: 100 * mebibyte},
		{cliCommand: check, cold: 3 * s, took: []time.Duration{s, s, 2 * s}, cpu: []time.Duration{s, s, s}, resident: 100 * mebibyte},
	}}}}
	for _, line := range []string{
		"| status | 3.000 s | 1.000 s | 2.000 s | 1.000 s | 100 MiB | ≤ 2s: met |",
		"| explain mhc | 3.000 s | 1.000 s | 2.000 s | 1.000 s | 100 MiB | ≤ 1s: **missed** |",
	} {
		if table := r.cliSection(); !strings.Contains(table, line+"\n") {
			t.Errorf("there is no line\n%s\nin\n%s", line, table)
		}
	}
	if (&report{}).cliSection() != "" {
		t.Error("there is a part although nothing was measured")
	}
}

func TestACycleIsCompleteWithItsLastMilestone(t *testing.T) {
	const name = "edge-000-md-0"
	w := &witness{awaited: map[string]cycle{}, complete: map[string]chan cycle{}}
	complete := w.await(name)
	meta := metav1.ObjectMeta{Name: name}
	powered := bmov1alpha1.BareMetalHostStatus{PoweredOn: true}
	held := metav1.ObjectMeta{Name: name, Annotations: map[string]string{infrav1.PowerOffAnnotationPrefix + "uid": infrav1.PowerOffAnnotationValue}}
	node := func(boot string, status corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
		n := &corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Taints: taints}}
		n.Status.NodeInfo.BootID = boot
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		return n
	}
	fence := corev1.Taint{Key: infrav1.OutOfServiceTaintKey}
	var at time.Time
	for _, e := range []watch.Event{
		{Type: watch.Modified, Object: &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "another"}}},
		{Type: watch.Added, Object: &bmov1alpha1.BareMetalHost{ObjectMeta: meta, Status: powered}},
		{Type: watch.Added, Object: node(name, corev1.ConditionTrue)}, // as it was before
		{Type: watch.Added, Object: &mendv1.HostRemediation{ObjectMeta: meta}},
		{Type: watch.Modified, Object: &bmov1alpha1.BareMetalHost{ObjectMeta: held, Status: powered}},
		{Type: watch.Modified, Object: &bmov1alpha1.BareMetalHost{ObjectMeta: held}},
		{Type: watch.Modified, Object: node(name, corev1.ConditionUnknown, fence)},
		{Type: watch.Modified, Object: &bmov1alpha1.BareMetalHost{ObjectMeta: meta}},
		{Type: watch.Modified, Object: &bmov1alpha1.BareMetalHost{ObjectMeta: meta, Status: powered}},
		{Type: watch.Modified, Object: node("next", corev1.ConditionTrue, fence)},
		{Type: watch.Modified, Object: node("next", corev1.ConditionTrue)},
		{Type: watch.Deleted, Object: &mendv1.HostRemediation{ObjectMeta: meta}},
	} {
		at = at.Add(time.Second)
		w.see(e, time.Unix(0, 0).Add(at.Sub(time.Time{})))
	}
	select {
	case c := <-complete:
		got := map[milestone]float64{}
		for m, at := range c {
			got[m] = at.Sub(time.Unix(0, 0)).Seconds()
		}
		want := map[milestone]float64{requested: 4, askedOff: 5, off: 6, fenced: 7, askedOn: 8, on: 9, nodeReady: 10, unfenced: 11, ended: 12}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	default:
		t.Fatalf("it is not complete: %v", w.awaited[name])
	}
}
