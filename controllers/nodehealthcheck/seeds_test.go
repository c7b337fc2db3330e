package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestConditionsOfANode(t *testing.T) {
	spec := &nhcv1.NodeHealthCheckSpec{UnhealthyConditions: []nhcv1.UnhealthyCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Duration: metav1.Duration{Duration: 5 * time.Minute}},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 2 * time.Minute}},
		{Type: "DiskBroken", Status: corev1.ConditionTrue, Duration: metav1.Duration{Duration: time.Minute}},
	}}
	ready := func(status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(-ago))}
	}
	disk := func(status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: "DiskBroken", Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(-ago))}
	}
	const bad, unknown, good = corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionTrue
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		want       health.State
		again      time.Duration
	}{
		"C82: none is met":                                        {[]corev1.NodeCondition{ready(good, time.Hour), disk(bad, time.Hour)}, health.Healthy, 0},
		"C82: one is met, and has not lasted":                     {[]corev1.NodeCondition{ready(bad, time.Minute), disk(bad, time.Hour)}, health.Pending, 4 * time.Minute},
		"C82: one has lasted":                                     {[]corev1.NodeCondition{ready(bad, 5*time.Minute), disk(bad, time.Hour)}, health.Unhealthy, 0},
		"C82: the first one has not lasted, the second one has":   {[]corev1.NodeCondition{ready(bad, time.Minute), disk(good, time.Minute)}, health.Unhealthy, 0},
		"seed 0.15: the other one alone is enough":                {[]corev1.NodeCondition{ready(good, time.Hour), disk(good, time.Hour)}, health.Unhealthy, 0},
		"seed 0.15: and where the first one alone is met":         {[]corev1.NodeCondition{ready(bad, time.Hour)}, health.Unhealthy, 0},
		"seed 1.9: three minutes are too few for one status":      {[]corev1.NodeCondition{ready(bad, 3*time.Minute)}, health.Pending, 2 * time.Minute},
		"seed 1.9: and enough for another one of the same type":   {[]corev1.NodeCondition{ready(unknown, 3*time.Minute)}, health.Unhealthy, 0},
		"a status that no condition of the check names is a good": {[]corev1.NodeCondition{ready(good, time.Hour), disk(unknown, time.Hour)}, health.Healthy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("n", nil)
			n.Status.Conditions = tc.conditions
			facts := FactsOf(&nhcv1.NodeHealthCheck{Spec: *spec}, epoch)
			facts.Nodes = []Node{{Name: n.Name, Object: n}}
			v := Decide(facts).Decisions[0].Verdict
			if v.State != tc.want {
				t.Errorf("%v, want %v", v.State, tc.want)
			}
			if tc.again > 0 && !v.Recheck.Equal(epoch.Add(tc.again)) {
				t.Errorf("looked at again at %v, want in %v", v.Recheck, tc.again)
			}
		})
	}
}
