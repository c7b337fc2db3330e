package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// recorded is a management cluster from which all may be read, with a record of a machine that is gone, and a command line for it.
func recorded(t *testing.T, edit func(map[string]string, map[right]string)) func(line string) (int, string, string) {
	t.Helper()
	t.Setenv("COLUMNS", "")
	rights := granted(t)
	w, _ := guarded(t, rights)
	now := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	ref := func(kind, name string) *mendv1.RecordRef {
		return &mendv1.RecordRef{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Namespace: "x", Name: name, UID: name}
	}
	record := mendv1.RemediationRecord{
		TypeMeta: metav1.TypeMeta{APIVersion: mendv1.GroupVersion.String(), Kind: "RemediationRecord"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "gone-1", UID: "1", CreationTimestamp: now,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubemend", Operation: metav1.ManagedFieldsOperationUpdate}}},
		Spec: mendv1.RemediationRecordSpec{
			Mode: mendv1.RecordActive, Remediator: mendv1.RemediatedByOwner, Cause: "Ready=Unknown", UnhealthySince: &now, Due: &now, Decided: now,
			Target:    mendv1.RecordTarget{ClusterName: "x", Machine: ref("Machine", "gone"), Owner: ref("MachineSet", "x-md-0"), Node: ref("Node", "node-of-gone")},
			Requester: mendv1.RecordRequester{Check: ref("MachineHealthCheck", "c1-workers")},
		},
		Status: mendv1.RemediationRecordStatus{
			Attempted: &now, Begun: &now, BegunBy: "kubemend", CapacityBack: &now, Ended: &now, Outcome: mendv1.RecordReplaced,
			Replacement: &mendv1.RecordReplacement{Machine: *ref("Machine", "new")},
			Steps:       []mendv1.RecordStep{{Time: now, Reason: "WaitingForVolumeDetach", Message: "waited"}, {Time: now, Reason: "Replaced", Message: "replaced"}},
		},
	}
	content, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	w.objects["kubemend.io/v1alpha1/remediationrecords"] = string(content)
	edit(w.objects, rights)
	server := w.serve(t)
	return func(line string) (int, string, string) {
		var out, problems bytes.Buffer
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &problems}
		root := New(streams, "kubectl mend", "dev")
		root.SetArgs(append(strings.Fields(line), "--server="+server, "--cache-dir="+t.TempDir()))
		return Run(t.Context(), root, streams), out.String(), problems.String()
	}
}

func TestAReportIsOfTheRecordsThatCanBeRead(t *testing.T) {
	all := func(map[string]string, map[right]string) {}
	without := func(group, resource string) func(map[string]string, map[right]string) {
		return func(_ map[string]string, rights map[right]string) { delete(rights, right{"list", group, resource}) }
	}
	for name, tc := range map[string]struct {
		edit              func(map[string]string, map[right]string)
		line              string
		code              int
		prints, complains string
	}{
		"one record":                     {all, "report -n x -o jsonpath={.total.remediations}{.items[*].cluster.name}", Done, "1x", ""},
		"of all namespaces":              {all, "report -A -o csv --by cause", Done, "Ready=Unknown,1,", ""},
		"of another cluster":             {all, "report -n x --cluster y -o jsonpath={.total.remediations}", Done, "0", ""},
		"from before":                    {all, "report -n x --since 10m -o jsonpath={.total.remediations}", Done, "0", ""},
		"a shadow":                       {all, "report shadow -n x", Done, "Left out: 1 that kubemend decided itself", ""},
		"records that may not be read":   {without("kubemend.io", "remediationrecords"), "report -n x", Failed, "", "cannot list resource \"remediationrecords\""},
		"checks that may not be read":    {without("cluster.x-k8s.io", "machinehealthchecks"), "report -n x", Done, "Remediations since", "done without: MachineHealthChecks: "},
		"events that may not be read":    {without("events.k8s.io", "events"), "report -n x", Done, "Remediations since", "done without: events: "},
		"a shadow needs no events":       {without("events.k8s.io", "events"), "report shadow -n x", Done, "Failures since", ""},
		"records that are not installed": {func(o map[string]string, _ map[right]string) { delete(o, "kubemend.io/v1alpha1/remediationrecords") }, "report -n x", Done, "RemediationRecords are not installed, so no remediation was recorded.\n", ""},
		"the same for programs":          {func(o map[string]string, _ map[right]string) { delete(o, "kubemend.io/v1alpha1/remediationrecords") }, "report -n x -o csv", Done, "", "RemediationRecords are not installed"},
		"the same of a shadow":           {func(o map[string]string, _ map[right]string) { delete(o, "kubemend.io/v1alpha1/remediationrecords") }, "report shadow -n x", Done, "RemediationRecords are not installed, so no remediation was recorded.\n", ""},
		"a history of what is gone":      {all, "history machine/gone -n x", Done, "remediation decided for MachineHealthCheck c1-workers: Ready=Unknown", ""},
		"a history of another machine":   {all, "history machine/other -n x", Done, "", "condition tells of Machine other in namespace x"},
		"a history by its node":          {all, "history node node-of-gone -n x", Done, "RemediationDecided", ""},
		"a history from before":          {all, "history machine/gone -n x --since 10m", Done, "", "condition tells of Machine gone in namespace x since "},
		"a history without records":      {without("kubemend.io", "remediationrecords"), "history -n x --since 0", Done, "Machine/x", "done without: RemediationRecords: "},
		"a history, where none can be":   {func(o map[string]string, _ map[right]string) { delete(o, "kubemend.io/v1alpha1/remediationrecords") }, "history -n x --since 0", Done, "Machine/x", ""},
		"a history for programs":         {all, `history machine/gone -n x -o jsonpath={.items[0].source}={.items[0].record.name}`, Done, "Record=gone-1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, problems := recorded(t, tc.edit)(tc.line)
			problems = strings.Join(strings.Fields(problems), " ")
			if code != tc.code || !strings.Contains(out, tc.prints) || !strings.Contains(problems, tc.complains) || tc.complains == "" && problems != "" {
				t.Errorf("code %d, printed\n%s%s", code, out, problems)
			}
		})
	}
}

// A recording has the records, and a report of it is one of the moment at which it was made.
func TestAReportIsOfARecording(t *testing.T) {
	mend := recorded(t, func(map[string]string, map[right]string) {})
	file := filepath.Join(t.TempDir(), "fleet.gz")
	if code, _, problems := mend("record -n x -o " + file); code != Done {
		t.Fatal(problems)
	}
	content, err := os.ReadFile(file)
	if err != nil || bytes.Contains(content, []byte("managedFields")) {
		t.Fatal(err, "or managed fields")
	}
	var got cliv1.Report
	code, out, problems := mend("report -A -o json --from " + file)
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != Done || got.Total.Remediations != 1 || got.Items[0].TimeToCapacityBack == nil {
		t.Errorf("code %d, %v, printed\n%s%s", code, err, out, problems)
	}
	if code, out, problems := mend("history machine/gone --from " + file); code != Done || !strings.Contains(out, "RemediationDecided") || !strings.Contains(out, "WaitingForVolumeDetach") {
		t.Errorf("code %d, printed\n%s%s", code, out, problems)
	}
	w := snapshot.New() // one from before there were records
	saved := filepath.Join(t.TempDir(), "old.gz")
	old, err := os.Create(saved)
	if err == nil {
		err = w.Save(old)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = old.Close()
	if code, out, problems := mend("report -A --from " + saved); code != Done || !strings.HasPrefix(out, "RemediationRecords are not installed") || strings.Contains(out+problems, "Remediations since") {
		t.Errorf("code %d, printed\n%s%s", code, out, problems)
	}
}

// A NodeHealthCheck is in no namespace, and its events are in the namespace default.
func TestEventsAboutChecksOfNodesAreReadForAReportOfANamespace(t *testing.T) {
	event := func(namespace, name string) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Reason: mendv1.EventRemediationRestricted,
			Regarding: corev1.ObjectReference{Kind: "NodeHealthCheck", Name: "nodes"},
		}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clusterv1.AddToScheme(scheme), nhcv1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		objects []client.Object
		want    int
	}{
		"with such a check":    {[]client.Object{&nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}, event("default", "a"), event("other", "b")}, 1},
		"without one":          {[]client.Object{event("default", "a")}, 0},
		"and in the namespace": {[]client.Object{event("x", "a"), event("default", "b")}, 1},
	} {
		is := &reportInput{}
		is.readChecks(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.objects...).Build(), "x", false)
		if len(is.events) != tc.want || len(is.trouble) > 0 {
			t.Errorf("%s: %d events, %v", name, len(is.events), is.trouble)
		}
	}
}
