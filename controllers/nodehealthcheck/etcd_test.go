package nodehealthcheck

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

func TestWhetherEtcdCanDoWithoutANode(t *testing.T) {
	budget := func(allowed int32) []policyv1.PodDisruptionBudget {
		return []policyv1.PodDisruptionBudget{{Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed}}}
	}
	guard := func(node string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	for name, tc := range map[string]struct {
		etcd etcd
		can  bool
	}{
		"its budget allows a disruption":                {etcd{budgets: budget(1)}, true},
		"the guard on the node is the one that is lost": {etcd{budget(0), []corev1.Pod{guard("n", corev1.ConditionFalse)}}, true},
		"there is no guard on the node":                 {etcd{budget(0), []corev1.Pod{guard("other", corev1.ConditionTrue)}}, true},
		"another guard is lost, and that on the node is not": {
			etcd{budget(0), []corev1.Pod{guard("other", corev1.ConditionFalse), guard("n", corev1.ConditionTrue)}}, false,
		},
		"nobody knows how the guard on the node is":         {etcd{budget(0), []corev1.Pod{guard("n", corev1.ConditionUnknown)}}, false},
		"it has no budget":                                  {etcd{}, false},
		"it has two budgets, and nobody knows which counts": {etcd{budgets: append(budget(1), budget(1)...)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if why := tc.etcd.forbids("n"); (why == "") != tc.can {
				t.Errorf("forbids() = %q, want that it can do without: %t", why, tc.can)
			}
		})
	}
}
