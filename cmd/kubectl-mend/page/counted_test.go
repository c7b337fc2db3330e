package page

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/golden"
)

// counting is a scene of which w1 was read, and the status of its check, which counts that many machines and healthy ones.
func counting(expected, healthy int32, edits ...func(*scene)) *scene {
	s := aScene(silent(6*time.Minute, "w1"))
	s.only = "w1"
	s.check.Status.ExpectedMachines, s.check.Status.CurrentHealthy = ptr.To(expected), ptr.To(healthy)
	s.check.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubemend", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: ptr.To(at(12 * time.Second)),
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:currentHealthy":{}}}`)},
	}}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func unmanaged(s *scene) { s.check.ManagedFields = nil }

func TestOneMachineOfThousands(t *testing.T) {
	golden.StoriesIn(t, "testdata/counted", map[string]*scene{
		"it is healthy":              counting(5000, 4998, func(s *scene) { s.ready("w1", "True", "KubeletReady", time.Hour) }),
		"its remediation begins":     counting(5000, 4998),
		"too many are unhealthy":     counting(5000, 1000, tooManySaid),
		"there is a queue":           counting(5000, 4998, func(s *scene) { s.check.Annotations[mendv1.MaxInFlightAnnotation] = "1" }),
		"it is not known since when": counting(5000, 4998, unmanaged),
		"it waits for a spare host":  counting(5000, 4998, waitsForSpare(0), toldToWait("w1")),
	}, func(t *testing.T, s *scene) string {
		e, err := Machine(t.Context(), s.asker(t), client.ObjectKey{Namespace: "default", Name: "w1"})
		if _, queue := s.check.Annotations[mendv1.MaxInFlightAnnotation]; err == nil && e.QueueUnread() != queue {
			t.Errorf("all machines are needed: %t", e.QueueUnread())
		}
		return page80and200(t, e, err)
	})
}

func tooManySaid(s *scene) {
	s.check.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineHealthCheckTooManyUnhealthyReason, Message: "Remediation is not allowed, as the manager wrote",
	}}
}
