package v1alpha1

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/test/golden"
	"github.com/kubemend/kubemend/test/must"
)

// The columns of `kubectl get rrec -o wide` are computed as in the API server.
func TestColumnsOfARemediationRecord(t *testing.T) {
	begun := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	back := metav1.NewTime(begun.Add(time.Minute))
	spec := RemediationRecordSpec{
		Cause:     "Ready=Unknown",
		Target:    RecordTarget{ClusterName: "c", Machine: &RecordRef{Name: "m"}, Node: &RecordRef{Name: "n"}, Host: &RecordRef{Name: "h"}},
		Requester: RecordRequester{Check: &RecordRef{Name: "check"}},
	}
	capacity := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: RecordBegun, Reason: "OwnerRequested"}, {Type: RecordCapacityBack, Status: status, Reason: reason}}
	}
	for name, tc := range map[string]struct {
		status RemediationRecordStatus
		want   []any
	}{
		"one that was not begun": {RemediationRecordStatus{}, []any{"r", "c", "m", "n", "h", "check", "Ready=Unknown", nil, nil, nil, nil}},
		"one that goes on says what is waited for now": {
			RemediationRecordStatus{Begun: &begun, Conditions: capacity(metav1.ConditionFalse, "NoHost")},
			[]any{"r", "c", "m", "n", "h", "check", "Ready=Unknown", nil, "NoHost", age(begun), nil},
		},
		"one that has ended says how": {
			RemediationRecordStatus{
				Begun: &begun, CapacityBack: &back, Ended: &back, Outcome: RecordReplaced, Conditions: capacity(metav1.ConditionTrue, "Replaced"),
			},
			[]any{"r", "c", "m", "n", "h", "check", "Ready=Unknown", "Replaced", "Replaced", age(begun), age(back)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := &RemediationRecord{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: spec, Status: tc.status}
			must.Equal(t, tc.want, cells(t, record))
		})
	}
}

// age returns a time in the form of the API server. The result could change during the test only if a day ends.
func age(of metav1.Time) string { return duration.HumanDuration(clock.RealClock{}.Since(of.Time)) }

func cells(t *testing.T, record *RemediationRecord) []any {
	t.Helper()
	convertor, err := tableconvertor.New(installed(t, "remediationrecords").Spec.Versions[0].AdditionalPrinterColumns)
	must.Do(t, err)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(record)
	must.Do(t, err)
	table, err := convertor.ConvertToTable(t.Context(), &unstructured.Unstructured{Object: object}, nil)
	must.Do(t, err)
	return table.Rows[0].Cells
}

func installed(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	content, err := os.ReadFile("../../config/crd/bases/kubemend.io_" + kind + ".yaml")
	must.Do(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must.Do(t, yaml.UnmarshalStrict(content, crd))
	return crd
}

// The columns of `kubectl get` after the name; columns in parentheses are only in -o wide.
func TestColumnsOfHostRemediations(t *testing.T) {
	for kind, want := range map[string]string{
		"hostremediations":         "Host Phase Step Attempt (Retry limit) Started (Deadline) Age (Message)",
		"hostremediationtemplates": "Strategy Retry limit Timeout Age",
	} {
		var names []string
		for _, column := range installed(t, kind).Spec.Versions[0].AdditionalPrinterColumns {
			name := column.Name
			if column.Priority > 0 {
				name = "(" + name + ")"
			}
			names = append(names, name)
		}
		must.Is(t, want, strings.Join(names, " "), "%s:", kind)
	}
}

// clusterctl moves kinds with this label by creating the objects anew. The API server would then drop a status that is a subresource.
func TestClusterctlMovesARecordWithItsStatus(t *testing.T) {
	crd := installed(t, "remediationrecords")
	if _, moves := crd.Labels["clusterctl.cluster.x-k8s.io"]; !moves {
		t.Errorf("clusterctl does not discover the kind: its labels are %v", crd.Labels)
	}
	for _, v := range crd.Spec.Versions {
		if v.Subresources != nil && v.Subresources.Status != nil {
			t.Errorf("the status of %s is a subresource", v.Name)
		}
	}
}

// Users look up reasons to learn what a condition or an event means.
func TestReasonsAndEventsAreDocumented(t *testing.T) {
	conditions, events := "| condition | reason | meaning |\n|---|---|---|\n", "| on | reason | type | when |\n|---|---|---|---|\n"
	for _, constant := range golden.Constants(t, "doc.go") {
		event := strings.HasPrefix(constant.Name, "Event")
		if !event && !strings.HasSuffix(constant.Name, "Reason") {
			continue
		}
		before, meaning, _ := strings.Cut(constant.Comment, ": ")
		kind, on, _ := strings.Cut(before, " on ")
		switch {
		case meaning == "" || event && on == "":
			t.Errorf("the comment of %s does not say what it is on, and what it means", constant.Name)
		case event:
			events += fmt.Sprintf("| %s | `%s` | %s | %s |\n", on, constant.Value, kind, meaning)
		default:
			conditions += fmt.Sprintf("| `%s` | `%s` | %s |\n", before, constant.Value, meaning)
		}
	}
	golden.Section(t, "../../docs/reference/conditions.md", "reasons of MachineHealthChecks", conditions)
	golden.Section(t, "../../docs/reference/events.md", "events of MachineHealthChecks", events)
}

// Stored records may have steps with whole seconds. If one of them could not be decoded, the list could not be read and the controller
// would not start.
func TestStepsOfWholeSecondsAreRead(t *testing.T) {
	const step = `{"metadata":{"name":"w1"},"status":{"steps":[{"time":"%","reason":"RequestCreated","object":{"kind":"Machine","name":"w1"}}]}}`
	for moment, want := range map[string]time.Time{
		"2026-01-01T12:00:00Z":             time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		"2026-01-01T12:00:00+01:00":        time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC),
		"2026-01-01T12:00:00.5Z":           time.Date(2026, 1, 1, 12, 0, 0, 500_000_000, time.UTC),
		"2026-01-01T12:00:00.123456Z":      time.Date(2026, 1, 1, 12, 0, 0, 123_456_000, time.UTC),
		"2026-01-01T12:00:00.123456+00:00": time.Date(2026, 1, 1, 12, 0, 0, 123_456_000, time.UTC),
	} {
		list := RemediationRecordList{}
		if err := json.Unmarshal([]byte(`{"items":[`+strings.Replace(step, "%", moment, 1)+`]}`), &list); err != nil {
			t.Fatalf("%s: %v", moment, err)
		}
		if got := list.Items[0].Status.Steps[0]; !got.Time.Time.Equal(want) || got.Reason != "RequestCreated" || got.Object == nil || got.Object.Name != "w1" {
			t.Errorf("%s is read as %+v, want %s", moment, got, want)
		}
	}
}
