package v1alpha1

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"
)

// What `kubectl get rrec -o wide` shows is computed as the API server does it.
func TestColumnsOfARemediationRecord(t *testing.T) {
	begun := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	back := metav1.NewTime(begun.Add(time.Minute))
	spec := RemediationRecordSpec{
		Mode: RecordActive, Cause: "Ready=Unknown",
		Target:    RecordTarget{ClusterName: "c", Machine: &RecordRef{Name: "m"}, Node: &RecordRef{Name: "n"}, Host: &RecordRef{Name: "h"}},
		Requester: RecordRequester{Check: &RecordRef{Name: "check"}},
	}
	waited := RecordWait{Reason: "WaitingForRemediation", Seconds: 2}
	for name, tc := range map[string]struct {
		status RemediationRecordStatus
		want   []any
	}{
		"one that was not begun": {RemediationRecordStatus{}, []any{"r", "c", "m", "n", "h", "check", "Active", "Ready=Unknown", nil, nil, nil, nil}},
		"one that goes on says what is waited for now": {
			RemediationRecordStatus{Begun: &begun, Waits: []RecordWait{waited, {Reason: "NoHost", Since: &begun}}},
			[]any{"r", "c", "m", "n", "h", "check", "Active", "Ready=Unknown", nil, "NoHost", age(begun), nil},
		},
		"one that has ended waits for nothing": {
			RemediationRecordStatus{
				Begun: &begun, CapacityBack: &back, Ended: &back, Outcome: RecordReplaced, Waits: []RecordWait{waited},
				Conditions: []metav1.Condition{{Type: RecordCapacityBack, Status: metav1.ConditionTrue, Reason: "Replaced"}},
			},
			[]any{"r", "c", "m", "n", "h", "check", "Active", "Ready=Unknown", "Replaced", nil, age(begun), age(back)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := &RemediationRecord{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: spec, Status: tc.status}
			if diff := cmp.Diff(tc.want, cells(t, record)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// age is how the API server shows a moment. It has changed by the end of the test only if a day ends meanwhile.
func age(of metav1.Time) string { return duration.HumanDuration(clock.RealClock{}.Since(of.Time)) }

func cells(t *testing.T, record *RemediationRecord) []any {
	t.Helper()
	content, err := os.ReadFile("../../config/crd/bases/kubemend.io_remediationrecords.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, crd); err != nil {
		t.Fatal(err)
	}
	convertor, err := tableconvertor.New(crd.Spec.Versions[0].AdditionalPrinterColumns)
	if err != nil {
		t.Fatal(err)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(record)
	if err != nil {
		t.Fatal(err)
	}
	table, err := convertor.ConvertToTable(t.Context(), &unstructured.Unstructured{Object: object}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table.Rows[0].Cells
}
