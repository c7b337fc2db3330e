package page

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// evidence are stories of what is known of a machine, by which controller and since when.
func evidence() map[string]story {
	hostDead := condition("InfrastructureReady", metav1.ConditionFalse, "HostDead", 2*time.Hour)
	notReady := condition(clusterv1.MachineNodeReadyCondition, metav1.ConditionFalse, "NodeNotReady", 2*time.Hour)
	pausedFor := func(status metav1.ConditionStatus, ago time.Duration) func(*scene) {
		return func(s *scene) { s.said("w1", clusterv1.PausedCondition, status, "ItSays", "", ago) }
	}
	return map[string]story{
		"a machine that Cluster API has not reconciled since a pause":       {aScene(judgedBy("InfrastructureReady"), hostDead, pausedFor("True", time.Hour)), machine("w1")},
		"a machine that Cluster API looks at again since a pause":           {aScene(judgedBy("InfrastructureReady"), hostDead, pausedFor("False", 30*time.Second)), machine("w1")},
		"a machine of which Cluster API says what its node does not say":    {aScene(judgedBy(clusterv1.MachineNodeReadyCondition), notReady), machine("w1")},
		"a machine of a cluster that is paused and of what was said before": {aScene(judgedBy("InfrastructureReady"), hostDead, func(s *scene) { s.cluster.Spec.Paused = ptr.To(true) }), machine("w1")},
		"a machine whose first node was waited for in a pause":              {aScene(awaiting("w1"), pausedFor("False", time.Minute)), machine("w1")},
		"a machine whose first node is waited for since before a pause":     {aScene(awaiting("w1"), pausedFor("True", time.Minute)), machine("w1")},
		"a machine whose node was silent before an outage":                  {aScene(silent(6*time.Minute, "w1"), reachedAgain(2*time.Minute)), machine("w1")},
		"a machine that is updated in place":                                {aScene(silent(6*time.Minute, "w1"), condition(clusterv1.MachineUpdatingCondition, metav1.ConditionTrue, "InPlaceUpdating", time.Minute)), machine("w1")},
		"a machine that has failed for good":                                {aScene(failedForGood), machine("w1")},
		"a machine that its owner deletes and whose node is gone": {aScene(askedOwner("w1", "MachineDeleting", "Machine is deleting"), func(s *scene) {
			delete(s.nodes, "w1")
			s.machines["w1"].DeletionTimestamp, s.machines["w1"].Finalizers = ptr.To(at(time.Minute)), []string{"a/b"}
		}), machine("w1")},
	}
}

// judgedBy gives the check a rule about a condition of machines.
func judgedBy(kind string) func(*scene) {
	return func(s *scene) {
		s.check.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{{Type: kind, Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](300)}}
	}
}

func condition(kind string, status metav1.ConditionStatus, reason string, ago time.Duration) func(*scene) {
	return func(s *scene) {
		for i := range s.machines["w1"].Status.Conditions {
			if c := &s.machines["w1"].Status.Conditions[i]; c.Type == kind {
				c.Status, c.Reason, c.LastTransitionTime = status, reason, at(ago)
				return
			}
		}
		s.said("w1", kind, status, reason, "", ago)
	}
}

func reachedAgain(ago time.Duration) func(*scene) {
	return func(s *scene) {
		s.check.Status.Conditions = append(s.check.Status.Conditions, metav1.Condition{
			Type: mendv1.WorkloadClusterReachable, Status: metav1.ConditionTrue, Reason: mendv1.ReachableAgainReason, LastTransitionTime: at(ago),
		})
	}
}

func failedForGood(s *scene) {
	s.ready("w1", corev1.ConditionTrue, "KubeletReady", time.Hour)
	const status = `{"status":{"deprecated":{"v1beta1":{"failureReason":"CreateError","failureMessage":"no host is left"}}}}`
	if err := json.Unmarshal([]byte(status), s.machines["w1"]); err != nil {
		panic(err)
	}
}
