package nodehealthcheck

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

// The groups of OpenShift's kinds.
const (
	ConfigGroup  = "config.openshift.io"
	machineGroup = "machine.openshift.io"
)

// The kinds of OpenShift that are read.
var (
	ClusterVersions     = schema.GroupVersionKind{Group: ConfigGroup, Version: "v1", Kind: "ClusterVersion"}
	MachineHealthChecks = schema.GroupVersionKind{Group: machineGroup, Version: "v1beta1", Kind: "MachineHealthCheck"}
	OpenShiftMachines   = schema.GroupVersionKind{Group: machineGroup, Version: "v1beta1", Kind: "Machine"}
)

// RBAC for what is OpenShift's.
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusterversions,verbs=list;watch
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machinehealthchecks,verbs=list;watch
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get

// openshiftObjects returns the objects of a kind of OpenShift; none if it is not installed. It is false if they were not read yet.
func (r *Reconciler) openshiftObjects(ctx context.Context, crd string, kind schema.GroupVersionKind) (
	[]unstructured.Unstructured, bool, error,
) {
	if there, err := r.installed(ctx, crd); err != nil || !there {
		return nil, true, err
	}
	ready, err := r.Kinds.Readable(ctx, kind)
	if err != nil || !ready {
		return nil, ready, err
	}
	list, err := r.list(ctx, kind)
	return list, true, err
}

func (r *Reconciler) installed(ctx context.Context, crd string) (bool, error) {
	if r.Installed == nil {
		return false, nil
	}
	return r.Installed(ctx, crd)
}

// observeConflict looks for MachineHealthChecks of OpenShift. The one that it brings along is left its nodes; any other one disables the
// check, since it may act on the same nodes. (medik8s; seed 001.)
func (r *Reconciler) observeConflict(ctx context.Context, state *observed) error {
	checks, ready, err := r.openshiftObjects(ctx, "machinehealthchecks."+machineGroup, MachineHealthChecks)
	if err != nil {
		return fmt.Errorf("look for conflicting MachineHealthChecks: %w", err)
	}
	state.awaits(MachineHealthChecks, ready)
	state.facts.TerminatingLeft = len(checks) == 1 && endsTerminatingNodes(&checks[0])
	if len(checks) > 0 && !state.facts.TerminatingLeft {
		state.facts.Disabled = Disabled{Reason: nhcv1.ConflictReason, Message: ConflictMessage}
	}
	return nil
}

// endsTerminatingNodes reports whether check acts on no nodes but those with the condition Terminating, as the one does that OpenShift
// brings along (machine-api-operator, install/0000_30_machine-api-operator_13_machinehealthcheck.yaml): these are left to it.
func endsTerminatingNodes(check *unstructured.Unstructured) bool {
	conditions, _, err := unstructured.NestedSlice(check.Object, "spec", "unhealthyConditions")
	if err != nil || len(conditions) != 1 {
		return false
	}
	cond, _ := conditions[0].(map[string]any)
	return cond["type"] == "Terminating" && cond["status"] == string(corev1.ConditionTrue)
}

// observeUpgrade finds out whether OpenShift is upgrading the cluster. It is asked only if there may be a remediation to start.
func (r *Reconciler) observeUpgrade(ctx context.Context, state *observed) {
	if !slices.ContainsFunc(state.facts.Nodes, func(n Node) bool { return state.facts.Concerns(&n) }) {
		return
	}
	versions, ready, err := r.openshiftObjects(ctx, "clusterversions."+ConfigGroup, ClusterVersions)
	if err != nil {
		state.trouble, state.facts.Upgrade.Unread = append(state.trouble, err), true
		return
	}
	state.awaits(ClusterVersions, ready)
	for i := range versions {
		if escalation.Condition(&versions[i], "Progressing")["status"] == string(metav1.ConditionTrue) {
			state.facts.Upgrade.Progressing = versions[i].GetName()
		}
	}
}

// openshiftOwner is the Machine of OpenShift that n names, as the owner of a request.
func (r *Reconciler) openshiftOwner(ctx context.Context, n *Node) (*metav1.OwnerReference, error) {
	ref := n.OpenShift()
	key, obj := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(OpenShiftMachines)
	if err := r.Live.Get(ctx, key, obj); err != nil {
		return nil, fmt.Errorf("read Machine %s of node %s: %w", key, n.Name, err)
	}
	return &metav1.OwnerReference{
		APIVersion: OpenShiftMachines.GroupVersion().String(), Kind: OpenShiftMachines.Kind, Name: key.Name, UID: obj.UID,
	}, nil
}

// EtcdNamespace is where OpenShift runs etcd.
const EtcdNamespace = "openshift-etcd"

// RBAC for OpenShift's etcd. Its namespace is there on OpenShift alone, so no package can have a Role in it.
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list
// +kubebuilder:rbac:groups=core,resources=pods,verbs=list

// observeEtcd reads what there is of OpenShift's etcd, live: what was true a moment ago is not enough.
func (r *Reconciler) observeEtcd(ctx context.Context) (Etcd, error) {
	there, err := r.installed(ctx, "clusterversions."+ConfigGroup)
	if err != nil || !there {
		return Etcd{There: err != nil, Unread: err != nil}, err
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := r.Live.List(ctx, budgets, client.InNamespace(EtcdNamespace)); err != nil {
		return Etcd{There: true, Unread: true}, fmt.Errorf("list the PodDisruptionBudgets in %s: %w", EtcdNamespace, err)
	}
	etcd := Etcd{There: true, Budgets: len(budgets.Items)}
	if etcd.Budgets != 1 {
		return etcd, nil
	}
	budget := &budgets.Items[0]
	etcd.Budget, etcd.Allows = EtcdNamespace+"/"+budget.Name, budget.Status.DisruptionsAllowed >= 1
	if etcd.Allows {
		return etcd, nil
	}
	guards := &corev1.PodList{}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err == nil {
		err = r.Live.List(ctx, guards, client.InNamespace(EtcdNamespace), client.MatchingLabelsSelector{Selector: selector})
	}
	if err != nil {
		return Etcd{There: true, Unread: true}, fmt.Errorf("list the guard pods of PodDisruptionBudget %s: %w", etcd.Budget, err)
	}
	etcd.Guards = map[string]string{}
	for i := range guards.Items {
		pod := &guards.Items[i]
		notFalse := func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status != corev1.ConditionFalse
		}
		if slices.ContainsFunc(pod.Status.Conditions, notFalse) {
			etcd.Guards[pod.Spec.NodeName] = pod.Name
		}
	}
	return etcd, nil
}
