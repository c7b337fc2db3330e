package records

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestARecordSaysWhyItsTargetCountedAsUnhealthy(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(ago(d))) }
	ready := func(due, since time.Duration) health.Finding {
		return health.Finding{
			Reason: health.NodeCondition, Limit: 5 * time.Minute, Due: ago(due),
			Signal: health.Signal{Source: health.OnNode, Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown", Since: ago(since)},
		}
	}
	unknown := mendv1.RecordEvidence{Type: "Ready", Status: "Unknown", Since: at(6 * time.Minute), TimeoutSeconds: 300, Message: "NodeStatusUnknown"}
	for name, tc := range map[string]struct {
		findings []health.Finding
		want     mendv1.RemediationRecordSpec
	}{
		"a condition": {
			[]health.Finding{ready(time.Minute, 6*time.Minute)},
			mendv1.RemediationRecordSpec{Cause: "Ready=Unknown", Evidence: []mendv1.RecordEvidence{unknown}, UnhealthySince: at(6 * time.Minute), Due: at(time.Minute)},
		},
		"a second one that is not due is no evidence": {
			[]health.Finding{ready(time.Minute, 6*time.Minute), ready(-time.Minute, 4*time.Minute)},
			mendv1.RemediationRecordSpec{Cause: "Ready=Unknown", Evidence: []mendv1.RecordEvidence{unknown}, UnhealthySince: at(6 * time.Minute), Due: at(time.Minute)},
		},
		"a machine that has failed, since when is not known, and a condition": {
			[]health.Finding{{Reason: health.MachineFailed, Failure: "the disk is gone"}, ready(time.Minute, 6*time.Minute)},
			mendv1.RemediationRecordSpec{
				Cause: "MachineFailed", Evidence: []mendv1.RecordEvidence{{Type: "MachineFailed", Message: "the disk is gone"}, unknown},
				UnhealthySince: at(6 * time.Minute), Due: at(time.Minute),
			},
		},
		"a person's mark alone": {
			[]health.Finding{{Reason: health.MarkedByHand}},
			mendv1.RemediationRecordSpec{Cause: "MarkedByHand", Evidence: []mendv1.RecordEvidence{{Type: "MarkedByHand"}}},
		},
	} {
		got := mendv1.RemediationRecordSpec{}
		Judged(&got, health.Verdict{State: health.Unhealthy, Findings: tc.findings}, noon)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestARecordHasTheNumbersOfTheCheck(t *testing.T) {
	p := budget.Population{Healthy: 5, Unhealthy: 2, Pending: 1, InFlight: 1}
	want := &mendv1.RecordCounts{Targets: 8, Healthy: 5, InFlight: 1, Limit: "40%"}
	if diff := cmp.Diff(want, CountsOf(p, budget.Limits{InFlight: budget.Unlimited}, "40%")); diff != "" {
		t.Errorf("without a limit of those in flight (-want +got):\n%s", diff)
	}
	want.MaxInFlight = new(int32(3))
	if diff := cmp.Diff(want, CountsOf(p, budget.Limits{InFlight: 3}, "40%")); diff != "" {
		t.Errorf("with one (-want +got):\n%s", diff)
	}
}
