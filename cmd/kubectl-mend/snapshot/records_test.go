package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	fastjson "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// recordOf is a record of a machine of a cluster, made so many seconds after noon.
func recordOf(machine, cluster string, seconds int) *mendv1.RemediationRecord {
	at := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, seconds, 0, time.UTC))
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: machine + "-1", CreationTimestamp: at, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
	}}
	r.Spec = mendv1.RemediationRecordSpec{
		Mode: mendv1.RecordObserved, Remediator: mendv1.RemediatedByOwner, Cause: "Ready=Unknown", UnhealthySince: &at, Due: &at, Decided: at, BlockedBy: "Pending",
		Target:    mendv1.RecordTarget{ClusterName: cluster, Machine: &mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: machine}, HostModel: "ACME"},
		Requester: mendv1.RecordRequester{User: "alice"}, Evidence: []mendv1.RecordEvidence{{Type: "Ready"}, {Type: "DiskPressure"}},
	}
	r.Status = mendv1.RemediationRecordStatus{
		Begun: &at, BegunBy: "manager", CapacityBack: &at, Ended: &at, Outcome: mendv1.RecordReplaced,
		Replacement: &mendv1.RecordReplacement{Machine: mendv1.RecordRef{Kind: "Machine", Name: "new"}}, Steps: []mendv1.RecordStep{{Time: at, Reason: "Replaced"}},
	}
	return r
}

func TestOnlyTheNewestRecordsAreRecorded(t *testing.T) {
	r := &reading{snapshot: New()}
	kept := r.newest(task{gvk: recordGVK, most: 2}, []client.Object{recordOf("a", "prod", 1), recordOf("b", "prod", 3), recordOf("c", "prod", 2)})
	if len(kept) != 2 || kept[0].GetName() != "b-1" || kept[1].GetName() != "c-1" {
		t.Errorf("kept are %v", kept)
	}
	want := []Missing{{"RemediationRecords", "only the newest 2 of 3 are kept"}}
	if diff := cmp.Diff(want, r.snapshot.Missing()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if kept := r.newest(task{most: 2}, kept); len(kept) != 2 || len(r.snapshot.Missing()) != 1 {
		t.Errorf("of no more than that: %v", kept)
	}
}

func TestWhatIsNoListOfRecordsIsAnError(t *testing.T) {
	answers := func(code int, content string) *rest.Config {
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Type", "application/json")
			out.WriteHeader(code)
			_, _ = out.Write([]byte(content))
		}))
		t.Cleanup(server.Close)
		return &rest.Config{Host: server.URL}
	}
	forbidden, err := json.Marshal(apierrors.NewForbidden(mendv1.GroupVersion.WithResource("remediationrecords").GroupResource(), "", errors.New("not you")).Status())
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("it cannot be taken")
	for name, tc := range map[string]struct {
		from *rest.Config
		is   func(error) bool
	}{
		"not installed":      {answers(http.StatusNotFound, "404 page not found"), apierrors.IsNotFound},
		"forbidden":          {answers(http.StatusForbidden, string(forbidden)), apierrors.IsForbidden},
		"cut off":            {answers(http.StatusOK, `{"items":[{"metadata":{}}`), func(err error) bool { return errors.Is(err, errCut) }},
		"no object of it":    {answers(http.StatusOK, `{"items":[{"metadata":7}]}`), func(err error) bool { return err != nil && strings.Contains(err.Error(), "metadata") }},
		"braces that do not": {answers(http.StatusOK, `{"items":[{"metadata":]}]}`), func(err error) bool { return err != nil && strings.Contains(err.Error(), "invalid character") }},
		"one not taken":      {answers(http.StatusOK, `{"items":[{}]}`), func(err error) bool { return errors.Is(err, broken) }},
	} {
		t.Run(name, func(t *testing.T) {
			if err := EachRecord(t.Context(), tc.from, "", func(Brief) error { return broken }); !tc.is(err) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := EachRecord(ctx, answers(http.StatusOK, `{"items":[]}`), "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := (Brief{RemediationRecord: recordOf("a", "prod", 1), raw: []byte("{")}).Whole(); err == nil {
		t.Error("what cannot be parsed is a record")
	}
}

func TestRecordsAreReadWhereTheyAre(t *testing.T) {
	open := func(name, namespace string) *mendv1.RemediationRecord {
		r := recordOf(name, "prod", 1)
		r.Namespace, r.Labels, r.Status = namespace, map[string]string{mendv1.RecordOpenLabel: "true"}, mendv1.RemediationRecordStatus{}
		return r
	}
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}
	check.Spec.RemediationTemplate = &corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "templates", Name: "reboot"}
	w := New()
	put(t, w, open("a", "metal"), recordOf("b", "test", 3), open("c", "templates"), open("d", "other"), check)
	for name, tc := range map[string]struct {
		scope Scope
		want  string
	}{
		"all":                                   {Scope{Records: true}, "a b c d"},
		"those of one cluster":                  {Scope{Records: true, Cluster: "test"}, "b"},
		"those of all namespaces that are open": {Scope{OpenRecords: true}, "a c d"},
		"those of a namespace, and of the checks of nodes":        {Scope{OpenRecords: true, Namespace: "metal"}, "a c"},
		"the same of clusters where something is to be looked at": {Scope{OpenRecords: true, Namespace: "metal", Restless: true}, "a c"},
		"if asked for": {Scope{Restless: true}, ""},
		"closed ones too where all are asked for": {Scope{OpenRecords: true, Records: true, Namespace: "metal"}, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := recorded(t, w, tc.scope); got != tc.want {
				t.Errorf("it has %q, want %q", got, tc.want)
			}
		})
	}
}

// recorded are the machines of the records that are read of w within a scope, in order.
func recorded(t *testing.T, w *Snapshot, scope Scope) string {
	t.Helper()
	read, err := Read(t.Context(), Source{Config: serve(t, w)}, scope)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range All[mendv1.RemediationRecord](read, "") {
		names = append(names, r.Spec.Target.Machine.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// shortened is what is brief of a record that was read whole.
func shortened(whole *mendv1.RemediationRecord) *mendv1.RemediationRecord {
	is := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: whole.Namespace, Name: whole.Name}}
	whole.Spec.DeepCopyInto(&is.Spec)
	whole.Status.DeepCopyInto(&is.Status)
	is.Spec.Remediator, is.Spec.Counts, is.Spec.Evidence = "", nil, make([]mendv1.RecordEvidence, len(whole.Spec.Evidence))
	is.Status.Attempted, is.Status.EndedBy, is.Status.Requests, is.Status.Steps, is.Status.Waits, is.Status.Conditions = nil, "", nil, nil, nil, nil
	return is
}

// anyRecord is a record with any of its fields, as an API server sends it.
func anyRecord(t *rapid.T) []byte {
	fill := randfill.NewWithSeed(rapid.Int64().Draw(t, "seed")).NilChance(0.3).NumElements(0, 3).Funcs(func(at *metav1.Time, random randfill.Continue) {
		*at = metav1.Unix(random.Int63n(1<<35), 0)
	})
	r := &mendv1.RemediationRecord{}
	fill.Fill(&r.Name)
	fill.Fill(&r.Labels)
	fill.Fill(&r.Spec)
	fill.Fill(&r.Status)
	r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubemend", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"k:{\"type\":\"Ready\"}":{".":{}}}}`)}}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestARecordIsBrieflyWhatItIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		is, err := briefly(anyRecord(t))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := is.Whole()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(shortened(whole), is.RemediationRecord); diff != "" {
			t.Errorf("(-whole +brief):\n%s", diff)
		}
	})
}

// UnmarshalJSON makes the libraries go over what is not read, too.
func (*unread) UnmarshalJSON([]byte) error { return nil }

// Two parsers read records: a fast one here, and that of the libraries everywhere else. What one refuses, the other does.
func TestABrokenRecordIsReadOrRefusedAsByTheLibraries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := anyRecord(t)
		at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
		part := rapid.SampledFrom([]string{"", " ", `"`, `\`, "{", "}", "[", "]", ",", ":", "0", "-", "null", "{}", "\x00", "\n", "\xff", `\ud800`, `"due":null,`}).Draw(t, "part")
		data = fmt.Appendf(data[:at:at], "%s%s", part, data[min(at+rapid.IntRange(0, 2).Draw(t, "for"), len(data)):])
		asByTheLibraries(t, data)
	})
	for _, data := range []string{
		"{\"metadata\":{\"name\":\"a\xff\"}}", `{"metadata":{"name":"\ud800"}}`, `{"metadata":{"name":"a","name":"b","Name":"c"}}`, `{"spec":{"cause":"a"},"spec":{"due":null}}`,
		`{"spec":{"evidence":[null,{}]}}`, `{"spec":{"evidence":[7]}}`, `{"spec":{"decided":null,"due":"soon"}}`, `{"status":{"steps":[}}`, `{"status":{"steps":[01]}}`, `null`, `[]`, `{}{}`,
	} {
		asByTheLibraries(t, []byte(data))
	}
}

func asByTheLibraries(t interface{ Errorf(string, ...any) }, data []byte) {
	var want, got brief
	wanted := utiljson.Unmarshal(data, &want)
	_, err := briefly(data)
	if (wanted == nil) != (err == nil) {
		t.Errorf("%s is read with %v, and by the libraries with %v", data, err, wanted)
	} else if err = fastjson.Unmarshal(data, &got, lax); err == nil && !cmp.Equal(want, got) {
		t.Errorf("%s is (-by the libraries +here):\n%s", data, cmp.Diff(want, got))
	}
}
