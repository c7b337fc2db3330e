package openshift

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// EtcdNamespace is where OpenShift runs etcd.
const EtcdNamespace = "openshift-etcd"

// Etcd finds out what there is of OpenShift's etcd.
func (c Cluster) Etcd(ctx context.Context) (nodes.Etcd, error) {
	there, err := c.installed(ctx, "clusterversions."+ConfigGroup)
	if err == nil && !there {
		return nodes.Etcd{}, nil
	}
	var etcd nodes.Etcd
	if err == nil {
		etcd, err = c.readEtcd(ctx)
	}
	if err != nil {
		return nodes.Etcd{There: true, Unread: true}, err
	}
	return etcd, nil
}

// RBAC for OpenShift's etcd. Its namespace is there on OpenShift alone, so no package can have a Role in it.
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list
// +kubebuilder:rbac:groups=core,resources=pods,verbs=list

// readEtcd reads live: what was true a moment ago is not enough.
func (c Cluster) readEtcd(ctx context.Context) (nodes.Etcd, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := c.Live.List(ctx, budgets, client.InNamespace(EtcdNamespace)); err != nil {
		return nodes.Etcd{}, fmt.Errorf("list the PodDisruptionBudgets in %s: %w", EtcdNamespace, err)
	}
	etcd := nodes.Etcd{There: true, Budgets: len(budgets.Items)}
	if etcd.Budgets != 1 {
		return etcd, nil
	}
	budget := &budgets.Items[0]
	etcd.Budget, etcd.Allows = EtcdNamespace+"/"+budget.Name, budget.Status.DisruptionsAllowed >= 1
	if etcd.Allows {
		return etcd, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return nodes.Etcd{}, fmt.Errorf("read the selector of PodDisruptionBudget %s: %w", etcd.Budget, err)
	}
	guards := &corev1.PodList{}
	if err := c.Live.List(ctx, guards, client.InNamespace(EtcdNamespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nodes.Etcd{}, fmt.Errorf("list the guard pods of etcd: %w", err)
	}
	etcd.Guards = map[string]string{}
	for i := range guards.Items {
		if pod := &guards.Items[i]; maybeReady(pod) {
			etcd.Guards[pod.Spec.NodeName] = pod.Name
		}
	}
	return etcd, nil
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
