package command

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// How long reports and histories take of 30,000 records and, histories, 2,000 events. As with BenchmarkLarge, the server is in the same process and sends what was marshalled before.
// The processor time of both, which a busy machine changes less than the time, is cpu-s/op.
func BenchmarkRecords(b *testing.B) {
	server := withRecords(b, 30_000)
	for _, question := range []string{
		"report --since 0 --by cluster,check,cause,host-model", "report --since 0 --disable-compression", "report shadow --since 0", "history machine/c7-m5 --since 0",
		"history cluster/c7 --since 0", "history --since 0",
	} {
		b.Run(question, func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				var out, errOut strings.Builder
				streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
				root := New(streams, "kubectl mend", "dev")
				root.SetArgs(append(strings.Fields(question), "-n", "ns", "--server="+server, "--insecure-skip-tls-verify", "--cache-dir="+b.TempDir()))
				if code := Run(b.Context(), root, streams); code != Done || errOut.Len() > 0 || !strings.Contains(out.String(), "3") {
					b.Fatalf("exit code %d: %s%s", code, &errOut, &out)
				}
			}
			b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// processorTime is that of this process so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The figures of the benchmark are of reports that count what there is.
func TestManyRecordsAreCounted(t *testing.T) {
	server := withRecords(t, 2000)
	var out, errOut strings.Builder
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	root := New(streams, "kubectl mend", "dev")
	root.SetArgs([]string{"report", "--since=0", "--by=", "-n=ns", "-o=jsonpath={.total.remediations} {.total.open} {.observed}", "--server=" + server,
		"--insecure-skip-tls-verify", "--cache-dir=" + t.TempDir()})
	if code := Run(t.Context(), root, streams); code != Done || errOut.Len() > 0 || out.String() != "1800 20 200" {
		t.Errorf("exit code %d: %s%s", code, &errOut, &out)
	}
}

// withRecords is a management cluster with records; the result is its address.
func withRecords(b testing.TB, n int) string {
	b.Helper()
	answers := map[string][]byte{}
	set := func(path string, of any) {
		data, err := json.Marshal(of)
		if err != nil {
			b.Fatal(err)
		}
		answers[path] = data
	}
	list := func(apiVersion, kind string, items any) map[string]any {
		return map[string]any{"apiVersion": apiVersion, "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "7"}, "items": items}
	}
	serveDiscovery(set)
	set("/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/machines", list(clusterv1.GroupVersion.String(), "Machine", []any{}))
	set("/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/machinehealthchecks", list(clusterv1.GroupVersion.String(), "MachineHealthCheck", []any{}))
	served := []metav1.APIResource{{Name: "events", Kind: "Event", Namespaced: true, Verbs: metav1.Verbs{"list"}}}
	set("/apis/events.k8s.io/v1", &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "events.k8s.io/v1", APIResources: served})
	version := metav1.GroupVersionForDiscovery{GroupVersion: "events.k8s.io/v1", Version: "v1"}
	set("/apis", &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
		{Name: "events.k8s.io", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
		{Name: clusterv1.GroupVersion.Group, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: clusterv1.GroupVersion.String(), Version: "v1beta2"}},
			PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: clusterv1.GroupVersion.String(), Version: "v1beta2"}},
	}})
	set("/apis/events.k8s.io/v1/namespaces/ns/events", list("events.k8s.io/v1", "Event", eventsOfFleet(2000)))
	set("/apis/events.k8s.io/v1/namespaces/default/events", list("events.k8s.io/v1", "Event", []any{}))
	records := make([]mendv1.RemediationRecord, 0, n)
	for i := range n {
		records = append(records, recordInFleet(i))
	}
	const path = "/apis/kubemend.io/v1alpha1/namespaces/ns/remediationrecords"
	set(path, list(mendv1.GroupVersion.String(), "RemediationRecord", records))
	b.Logf("%d records are %.1f MB as JSON", n, float64(len(answers[path]))/1e6)
	var packed bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // as an API server does
	_, _ = writer.Write(answers[path])
	_ = writer.Close()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		answer, found := answers[in.URL.Path]
		if !found {
			http.NotFound(out, in)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		if in.URL.Path == path && strings.Contains(in.Header.Get("Accept-Encoding"), "gzip") {
			out.Header().Set("Content-Encoding", "gzip")
			answer = packed.Bytes()
		}
		_, _ = out.Write(answer)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	return server.URL
}

// eventsOfFleet are events of the same fleet: what machines wait for whose records say it in other words.
func eventsOfFleet(n int) []eventsv1.Event {
	all := make([]eventsv1.Event, 0, n)
	for i := range n {
		e := eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("e%d", i)}, Reason: mendv1.EventCapacityAwaited, Type: corev1.EventTypeNormal,
			EventTime: metav1.NewMicroTime(long.Add(time.Duration(7*i) * time.Minute)), ReportingController: "kubemend", Action: "Remediate",
			Regarding: corev1.ObjectReference{Kind: "MachineHealthCheck", Namespace: "ns", Name: fmt.Sprintf("c%d-workers", i%100)},
			Note:      fmt.Sprintf("The capacity of Machine c%d-m%d is not back: it waits for a host that fits. To do: add one, or wait until one is free", i%100, i/100),
		}
		e.APIVersion, e.Kind = eventsv1.SchemeGroupVersion.String(), "Event"
		all = append(all, e)
	}
	return all
}

// fieldsOfRecord are the managed fields of a record that one manager has written, as an API server keeps them.
func fieldsOfRecord() []metav1.ManagedFieldsEntry {
	var fields strings.Builder
	fields.WriteString(`{"f:metadata":{"f:labels":{".":{},"f:cluster.x-k8s.io/cluster-name":{},"f:kubemend.io/target-uid":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"5a0f2c1e-7d2b-4a55-9a39-4d3f5c0e7b11\"}":{}}},"f:spec":{".":{}`)
	for _, name := range []string{"cause", "counts", "decided", "due", "evidence", "mode", "remediator", "requester", "target", "unhealthySince"} {
		fields.WriteString(`,"f:` + name + `":{".":{},"f:name":{}}`)
	}
	fields.WriteString(`},"f:status":{".":{},"f:attempted":{},"f:begun":{},"f:begunBy":{},"f:capacityBack":{},"f:ended":{},"f:outcome":{},"f:steps":{}`)
	for _, name := range []string{"Begun", "CapacityBack", "Ended"} {
		fields.WriteString(`,"k:{\"type\":\"` + name + `\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}`)
	}
	fields.WriteString("}}")
	return []metav1.ManagedFieldsEntry{{
		Manager: "kubemend", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "kubemend.io/v1alpha1", Time: &long, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields.String()),
	}}
}

// recordInFleet is a record as a manager writes it, with all that it knows: 100 clusters, each tenth observed, each hundredth open.
func recordInFleet(i int) mendv1.RemediationRecord {
	at := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(long.Add(time.Duration(7*i)*time.Minute + time.Duration(seconds)*time.Second)))
	}
	ref := func(kind, name string) *mendv1.RecordRef {
		return &mendv1.RecordRef{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Namespace: "ns", Name: name, UID: "5a0f2c1e-7d2b-4a55-9a39-4d3f5c0e7b11"}
	}
	cluster := fmt.Sprintf("c%d", i%100)
	machine := fmt.Sprintf("%s-m%d", cluster, i/100)
	r := mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: fmt.Sprintf("%s-%010x", machine, i), UID: types.UID(strconv.Itoa(i)), ResourceVersion: "7", CreationTimestamp: *at(300), ManagedFields: fieldsOfRecord(),
		Labels:          map[string]string{mendv1.RecordTargetLabel: "5a0f2c1e-7d2b-4a55-9a39-4d3f5c0e7b11", clusterv1.ClusterNameLabel: cluster},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: types.UID(cluster)}},
	}}
	r.APIVersion, r.Kind = mendv1.GroupVersion.String(), "RemediationRecord"
	r.Spec = mendv1.RemediationRecordSpec{
		Mode: mendv1.RecordActive, Remediator: mendv1.RemediatedByOwner, Cause: "Ready=Unknown", UnhealthySince: at(0), Due: at(300), Decided: *at(300),
		Target: mendv1.RecordTarget{
			ClusterName: cluster, ClusterUID: "5a0f2c1e-7d2b-4a55-9a39-4d3f5c0e7b11", Machine: ref("Machine", machine), Owner: ref("MachineSet", cluster+"-md-0"),
			Node: ref("Node", "node-of-"+machine), Host: ref("BareMetalHost", fmt.Sprintf("rack%d-%02d", i%40, i%30)), HostModel: fmt.Sprintf("ACME R%d", 600+i%5),
		},
		Requester: mendv1.RecordRequester{Check: ref("MachineHealthCheck", cluster+"-workers")},
		Evidence:  []mendv1.RecordEvidence{{Type: "Ready", Status: "Unknown", Since: at(0), TimeoutSeconds: 300, Message: "NodeStatusUnknown"}},
		Counts:    &mendv1.RecordCounts{Targets: 50, Healthy: 49, Limit: "unhealthyLessThanOrEqualTo 40%"},
	}
	r.Status = mendv1.RemediationRecordStatus{
		Attempted: at(300), Begun: at(301), BegunBy: "kubemend", CapacityBack: at(1500 + i%600), Ended: at(1500 + i%600), Outcome: mendv1.RecordReplaced,
		Replacement: &mendv1.RecordReplacement{Machine: *ref("Machine", machine+"-new"), Node: ref("Node", "node-of-"+machine+"-new")},
	}
	for n, reason := range []string{"OwnerRequested", "TargetDeleting", "Draining", "WaitingForVolumeDetach", "ReplacementFound", "Provisioning", "Booting", "Replaced"} {
		r.Status.Steps = append(r.Status.Steps, mendv1.RecordStep{Time: *at(301 + 60*n), Reason: reason, Message: "what has happened then, in a sentence of some words"})
		r.Status.Waits = append(r.Status.Waits, mendv1.RecordWait{Reason: reason, Seconds: 60})
	}
	for _, kind := range []string{mendv1.RecordBegun, mendv1.RecordCapacityBack, mendv1.RecordEnded} {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: kind, Message: "what is so, in a sentence", LastTransitionTime: *at(1500),
		})
	}
	if i%10 == 9 {
		r.Spec.Mode = mendv1.RecordObserved
	}
	if i%100 == 0 {
		r.Status.Ended, r.Status.CapacityBack, r.Status.Outcome = nil, nil, ""
	}
	return r
}
