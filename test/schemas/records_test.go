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
