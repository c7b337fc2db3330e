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

// etcd is what is known of OpenShift's etcd.
type etcd struct {
	budgets []policyv1.PodDisruptionBudget
	// guards are the pods that the one budget is about; read only if it allows no disruption.
	guards []corev1.Pod
}

// observeEtcd returns why OpenShift's etcd cannot do without a node; with nothing if it can, or if there is none.
func (r *Reconciler) observeEtcd(ctx context.Context, w *observed) func(node string) string {
	says := func(why string) func(string) string { return func(string) string { return why } }
	if w.members.unknown != "" {
		return says("") // no node must be disrupted in any case
	}
	there, err := r.installed(ctx, "clusterversions."+openshiftConfig)
	if err == nil && !there {
		return says("")
	}
	var is etcd
	if err == nil {
		is, err = r.readEtcd(ctx)
	}
	if err != nil {
		w.trouble = append(w.trouble, err)
		return says("OpenShift's etcd could not be asked")
	}
	return is.forbids
}

// RBAC for OpenShift's etcd. Its namespace is there on OpenShift alone, so no package can have a Role in it.
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list
// +kubebuilder:rbac:groups=core,resources=pods,verbs=list

// readEtcd reads live: what was true a moment ago is not enough.
func (r *Reconciler) readEtcd(ctx context.Context) (etcd, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := r.Live.List(ctx, budgets, client.InNamespace(etcdNamespace)); err != nil {
		return etcd{}, fmt.Errorf("list the PodDisruptionBudgets in %s: %w", etcdNamespace, err)
	}
	is := etcd{budgets: budgets.Items}
	if len(is.budgets) != 1 || is.budgets[0].Status.DisruptionsAllowed >= 1 {
		return is, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(is.budgets[0].Spec.Selector)
	if err != nil {
		return etcd{}, fmt.Errorf("read the selector of PodDisruptionBudget %s/%s: %w", etcdNamespace, is.budgets[0].Name, err)
	}
	guards := &corev1.PodList{}
	if err := r.Live.List(ctx, guards, client.InNamespace(etcdNamespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return etcd{}, fmt.Errorf("list the guard pods of etcd: %w", err)
	}
	is.guards = guards.Items
	return is, nil
}

// forbids says why etcd cannot do without the node; empty if it can. Its PodDisruptionBudget says so, or, if that allows nothing, whether the
// guard pod on the node is what it counts as lost already. (medik8s.)
func (is etcd) forbids(node string) string {
	if n := len(is.budgets); n != 1 {
		return fmt.Sprintf("there are %d PodDisruptionBudgets in %s instead of one", n, etcdNamespace)
	}
	pdb := &is.budgets[0]
	if pdb.Status.DisruptionsAllowed >= 1 {
		return ""
	}
	for i := range is.guards {
		if pod := &is.guards[i]; pod.Spec.NodeName == node && maybeReady(pod) {
			return fmt.Sprintf("PodDisruptionBudget %s/%s allows no disruption, and guard pod %s is ready", etcdNamespace, pdb.Name, pod.Name)
		}
	}
	return ""
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
