package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Nodes were seen to be healthy a minute ago. What a condition says of its own age, or that it is missing, gets no node remediated before its
// timeout, nor later.
func TestANodeIsRemediatedByWhatWasSeenOfIt(t *testing.T) {
	for name, conditions := range map[string]func(now time.Time) []corev1.NodeCondition{
		"the list of conditions was replaced": func(time.Time) []corev1.NodeCondition { return nil },
		"a reporter that writes no transition": func(now time.Time) []corev1.NodeCondition {
			return []corev1.NodeCondition{
				{Type: "Ready", Status: "True", LastTransitionTime: metav1.NewTime(now)}, {Type: "GPUReady", Status: "False"},
			}
		},
		"a kubelet whose clock is ahead": func(now time.Time) []corev1.NodeCondition {
			return []corev1.NodeCondition{{Type: "Ready", Status: "False", LastTransitionTime: metav1.NewTime(now.Add(6 * time.Hour))}}
		},
		"one whose clock is behind": func(now time.Time) []corev1.NodeCondition {
			return []corev1.NodeCondition{{Type: "Ready", Status: "False", LastTransitionTime: metav1.NewTime(now.Add(-45 * time.Minute))}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			nhc := check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
				s.UnhealthyConditions = append(s.UnhealthyConditions, nhcv1.UnhealthyCondition{
					Type: "GPUReady", Status: "False", Duration: metav1.Duration{Duration: 5 * time.Minute},
				})
			})
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), nhc)...)
			k.settle("nhc")
			k.after(time.Minute)
			n := k.node("b")
			n.Status.Conditions = conditions(k.clock.Now())
			if err := k.client.Status().Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			k.settle("nhc")
			k.wants("its timeout has begun")
			k.minutes(4, "nhc")
			k.wants("its timeout has not expired")
			k.minutes(1, "nhc")
			k.wants("its timeout has expired", "Reboot/b")
		})
	}
}
