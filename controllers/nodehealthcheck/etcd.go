package nodehealthcheck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// etcdNamespace is where OpenShift runs etcd.
const etcdNamespace = "openshift-etcd"

// etcdForbids says why etcd cannot do without the node; empty if it can. It is asked live: what was true a moment ago is not enough.
func (r *Reconciler) etcdForbids(ctx context.Context, node string) (string, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := r.Live.List(ctx, budgets, client.InNamespace(etcdNamespace)); err != nil {
		return "", fmt.Errorf("list the PodDisruptionBudgets in %s: %w", etcdNamespace, err)
	}
	if n := len(budgets.Items); n != 1 {
		return fmt.Sprintf("there are %d PodDisruptionBudgets in %s instead of one", n, etcdNamespace), nil
	}
	pdb := &budgets.Items[0]
	if pdb.Status.DisruptionsAllowed >= 1 {
		return "", nil
	}
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		return "", fmt.Errorf("read the selector of PodDisruptionBudget %s/%s: %w", etcdNamespace, pdb.Name, err)
	}
	guards := &corev1.PodList{}
	if err := r.Live.List(ctx, guards, client.InNamespace(etcdNamespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return "", fmt.Errorf("list the guard pods of etcd: %w", err)
	}
	for i := range guards.Items {
		if pod := &guards.Items[i]; pod.Spec.NodeName == node && maybeReady(pod) {
			return fmt.Sprintf("PodDisruptionBudget %s/%s allows no disruption, and guard pod %s is ready", etcdNamespace, pdb.Name, pod.Name), nil
		}
	}
	return "", nil
}

// maybeReady reports whether the Ready condition of pod is True or Unknown.
func maybeReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status != corev1.ConditionFalse
		}
	}
	return false
}
