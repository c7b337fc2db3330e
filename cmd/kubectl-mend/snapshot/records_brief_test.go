package snapshot

import (
	"encoding/json"
	"fmt"
	"testing"

	fastjson "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"
	"sigs.k8s.io/randfill"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

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
