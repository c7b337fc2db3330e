package schemas

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/records"
	"github.com/kubemend/kubemend/test/crd"
)

// mostOfRecord is how large a record is at most, as JSON, far more than what nodes and hosts say really takes. An object of the API server may have 1.5 MiB.
const mostOfRecord = 600 << 10

// hugeRecord is a record in which all that comes from others is longer than anything may be, in characters of four bytes.
func hugeRecord() *mendv1.RemediationRecord {
	long, now := strings.Repeat("🖥", 40000), metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	ref := func() *mendv1.RecordRef {
		return &mendv1.RecordRef{APIVersion: long, Kind: long, Namespace: long, Name: long, UID: long}
	}
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}}
	r.Spec = mendv1.RemediationRecordSpec{
		Mode: mendv1.RecordActive, Remediator: mendv1.RemediatedByOwner, Cause: long, Decided: now, BlockedBy: long,
		Target: mendv1.RecordTarget{
			ClusterName: long, ClusterUID: long, Machine: ref(), Owner: ref(), Node: ref(), Host: ref(), HostModel: long, FailureDomain: long,
		},
		Requester: mendv1.RecordRequester{Check: ref(), User: long, Reason: long}, Counts: &mendv1.RecordCounts{Limit: long},
	}
	r.Status = mendv1.RemediationRecordStatus{
		BegunBy: long, EndedBy: long, Replacement: &mendv1.RecordReplacement{Machine: *ref(), Node: ref(), Host: ref()},
	}
	for range 100 {
		r.Spec.Evidence = append(r.Spec.Evidence, mendv1.RecordEvidence{Type: long, Status: long, Message: long, Since: &now})
		r.Status.Steps = append(r.Status.Steps, mendv1.RecordStep{Time: now, Reason: strings.Repeat("R", 64), Message: long, Object: ref()})
	}
	for i := range 16 {
		r.Status.Requests = append(r.Status.Requests, *ref())
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{
			Type: fmt.Sprintf("Type%d", i), Status: metav1.ConditionTrue, Reason: "Reason", Message: long, LastTransitionTime: now,
		})
	}
	for i := range 32 {
		r.Status.Waits = append(r.Status.Waits, mendv1.RecordWait{Reason: fmt.Sprintf("Reason%d", i), Since: &now})
	}
	return r
}

// A record that the API server refuses is missed, or stays open for ever.
func TestARecordIsTakenHoweverLongWhatItQuotesIs(t *testing.T) {
	server, err := crd.FromFolder("../../config/crd/bases")
	if err != nil {
		t.Fatal(err)
	}
	create := func(r *mendv1.RemediationRecord) (*unstructured.Unstructured, error) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{Object: content}
		o.SetGroupVersionKind(mendv1.GroupVersion.WithKind("RemediationRecord"))
		return server.Create(t.Context(), o)
	}
	r := hugeRecord()
	if _, err := create(r); err == nil {
		t.Fatal("nothing in it is too long for the API server")
	}
	records.Bound(r)
	stored, err := create(r)
	if err != nil {
		t.Fatalf("it is refused: %v", err)
	}
	content, err := stored.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if len(content) > mostOfRecord {
		t.Errorf("it has %d KiB, want %d at most", len(content)>>10, mostOfRecord>>10)
	}
}

// Reports and lemons are counted from how remediations have ended: no user writes another end over it.
func TestTheStatusOfARecordChangesUntilItHasEnded(t *testing.T) {
	server, err := crd.FromFolder("../../config/crd/bases")
	if err != nil {
		t.Fatal(err)
	}
	const (
		none  = ""
		open  = `{"begun":"2026-01-01T12:00:00Z","begunBy":"kubemend"}`
		waits = `{"begun":"2026-01-01T12:00:00Z","begunBy":"kubemend","waits":[{"reason":"DrainingNode","seconds":60}]}`
		ended = `{"begun":"2026-01-01T12:00:00Z","begunBy":"kubemend","ended":"2026-01-01T12:10:00Z","outcome":"GivenUp"}`
		other = `{"begun":"2026-01-01T12:00:00Z","begunBy":"kubemend","ended":"2026-01-01T12:10:00Z","outcome":"Healed"}`
		later = `{"begun":"2026-01-01T12:00:00Z","begunBy":"kubemend","ended":"2026-01-01T12:11:00Z","outcome":"GivenUp"}`
	)
	record := func(status string, labels map[string]string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": JSON(`{"mode":"Active","remediator":"Owner","target":{},"decided":"2026-01-01T12:00:00Z"}`)}}
		o.SetGroupVersionKind(mendv1.GroupVersion.WithKind("RemediationRecord"))
		o.SetNamespace("ns")
		o.SetName("r")
		o.SetLabels(labels)
		if status != none {
			o.Object["status"] = JSON(status)
		}
		return o
	}
	for name, row := range map[string]struct {
		from, to string
		labels   map[string]string
		refused  bool
	}{
		"a record without a status begins":                      {from: none, to: open},
		"an open one changes":                                   {from: open, to: waits},
		"an open one ends":                                      {from: waits, to: ended},
		"one that has ended gets another label":                 {from: ended, to: ended, labels: map[string]string{"a": "b"}},
		"one that has ended does not end otherwise":             {from: ended, to: other, refused: true},
		"one that has ended does not end at another time":       {from: ended, to: later, refused: true},
		"one that has ended does not open again":                {from: ended, to: open, refused: true},
		"one that has ended keeps its status":                   {from: ended, to: none, refused: true},
		"one that has ended does not change beside a new label": {from: ended, to: other, labels: map[string]string{"a": "b"}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			was, err := server.Create(t.Context(), record(row.from, nil))
			if err != nil {
				t.Fatal(err)
			}
			_, err = server.Update(t.Context(), was, record(row.to, row.labels))
			switch {
			case row.refused && (err == nil || !strings.Contains(err.Error(), "status: Invalid value") || !strings.Contains(err.Error(), "never changes")):
				t.Errorf("want it refused for its status, got: %v", err)
			case !row.refused && err != nil:
				t.Errorf("want it taken, got: %v", err)
			}
		})
	}
}
