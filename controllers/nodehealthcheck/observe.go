package nodehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/explain"
)

// observed has the facts of one check, and the objects that they were read from.
type observed struct {
	facts  Facts
	check  *nhcv1.NodeHealthCheck
	nodes  map[string]*Node                         // all nodes about which anything is known, by name
	listed map[types.UID]*listed                    // the requests in the check's status
	byName map[objectKey]*unstructured.Unstructured // all requests
	others []*unstructured.Unstructured             // the requests that the check did not create
	// namespaces are the namespaces of the check's templates and requests.
	namespaces map[string]bool
	// read and unreadable are kinds of requests. The status entries of requests of an unreadable kind stay as they are.
	read, unreadable map[schema.GroupKind]bool
	leases           map[string]*coordinationv1.Lease // by name
	// released says that the check is gone, so requests of all kinds may belong to it.
	released bool
}

func newObserved(check *nhcv1.NodeHealthCheck, facts Facts) *observed {
	return &observed{
		facts: facts, check: check, nodes: map[string]*Node{}, listed: statusByUID(check),
		byName:     map[objectKey]*unstructured.Unstructured{},
		namespaces: namespacesOf(check), read: map[schema.GroupKind]bool{}, unreadable: map[schema.GroupKind]bool{},
	}
}

// node returns the node called name, and adds it if necessary.
func (state *observed) node(name string) *Node {
	if state.nodes[name] == nil {
		state.nodes[name] = &Node{Name: name}
	}
	return state.nodes[name]
}

// observe reads all that the decision about a check depends on.
func (r *Reconciler) observe(ctx context.Context, check *nhcv1.NodeHealthCheck, now time.Time) (*observed, error) {
	state := newObserved(check, r.facts(check, now))
	r.observeTemplates(ctx, state)
	if err := r.observeConflict(ctx, state); err != nil || len(state.facts.Awaited) > 0 {
		return state, err
	}
	for _, observe := range []func(context.Context, *observed) error{r.observeRequests, r.observeLeases, r.observeNodes} {
		if err := observe(ctx, state); err != nil {
			return state, err
		}
	}
	r.observeMachines(ctx, state)
	r.observeUpgrade(ctx, state)
	r.observeControlPlane(ctx, state)
	return state, nil
}

func (state *observed) disable(why Disabled) {
	if !state.facts.Disabled.Is() {
		state.facts.Disabled = why
	}
}

func (state *observed) awaits(kind schema.GroupVersionKind, ready bool) {
	if !ready && !slices.Contains(state.facts.Awaited, kind) {
		state.facts.Awaited = append(state.facts.Awaited, kind)
	}
}

// readRetry is how soon a missing template (as in medik8s), and objects that are not watched, are read again. A template that is created
// later shows in a watch, but a kind that is installed later does not.
const readRetry = 15 * time.Second

func (state *observed) retry() { state.facts.Retry = state.facts.Now.Add(readRetry) }

// observeNodes reads the nodes that the check selects, or has to finish. A selector that cannot be parsed selects nothing.
func (r *Reconciler) observeNodes(ctx context.Context, state *observed) error {
	selector, err := metav1.LabelSelectorAsSelector(&state.check.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
		state.disable(SelectorInvalid(err))
	}
	list := &corev1.NodeList{}
	if err := r.Client.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range list.Items {
		n := state.node(list.Items[i].Name)
		n.Object, n.Selected = &list.Items[i], true
	}
	return r.observeUnfinished(ctx, state)
}

// observeUnfinished adds the nodes that the check has to finish, even if it does not select them: nodes with requests of the check or of a
// deleted check of the same name, nodes whose lease the check holds, and nodes that are gone after a remediation according to its status.
func (r *Reconciler) observeUnfinished(ctx context.Context, state *observed) error {
	for i := range state.check.Status.UnhealthyNodes {
		listed := &state.check.Status.UnhealthyNodes[i]
		state.node(listed.Name).Listed = listed
	}
	for _, n := range state.nodes {
		lease := state.leases[leaseName(n.Name)]
		unfinished := n.Selected || n.remediated() || len(n.Orphaned) > 0 || state.facts.leaseOn(nil, lease).own()
		if !unfinished && !n.remembered() {
			continue
		}
		if !n.Selected {
			node := &corev1.Node{}
			if err := r.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err == nil && !unfinished {
				continue // the node exists, and there is nothing to finish
			} else if err == nil {
				n.Object = node
			} else if !apierrors.IsNotFound(err) {
				return fmt.Errorf("read node %s: %w", n.Name, err)
			}
		}
		n.Lease = state.facts.leaseOn(n.Object, lease)
		if len(n.Gone) > 0 {
			n.LoopAwaited = r.Records.Awaited(ctx)
			n.Loop = repeats.Of(r.Records.Repeated(ctx, r.Client, n.Gone[0].Resource.Namespace, "Node", n.Name), state.facts.Now)
		}
		state.facts.Nodes = append(state.facts.Nodes, *n)
	}
	slices.SortFunc(state.facts.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// WhyNotSelected says which requirements of the selector fail on which labels of node; empty if check selects it.
func WhyNotSelected(check *nhcv1.NodeHealthCheck, node *corev1.Node) string {
	if _, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector); err != nil {
		return SelectorInvalid(err).Message
	}
	return explain.Unmatched(check.Spec.Selector, node.Labels)
}

// Explain returns what a reconcile of the check called name would see and decide at now; nil if there is no such check. It only reads.
// Without the memory of the manager, a node whose condition alternates between unhealthy statuses may seem due later than it is, but never
// earlier.
//
// The caller has to know whether the kind is installed and kubemend acts on it.
func (r *Reconciler) Explain(ctx context.Context, name string, now time.Time) (*explain.Check, error) {
	check, err := r.read(ctx, name)
	if err != nil || check == nil || !check.DeletionTimestamp.IsZero() {
		return nil, err
	}
	state, err := r.observe(ctx, check, now)
	if err == nil && len(state.facts.Awaited) > 0 { // the first attempt made the kinds known; a reconcile would be repeated too
		state, err = r.observe(ctx, check, now)
	}
	if err != nil {
		return nil, err
	}
	state.facts.Placeless = r.Ledger.Waiting(placesOf(name))
	plan := Decide(state.facts)
	c := NodeCheck(&state.facts, &plan)
	if r.idle.Load() {
		c.Mode, c.ModeMessage = cliv1.ModeNone, "another controller acts on NodeHealthChecks"
	}
	return c, nil
}

// API groups of OpenShift.
const (
	ConfigGroup  = "config.openshift.io"
	machineGroup = "machine.openshift.io"
)

// Kinds of OpenShift that the controller reads.
var (
	ClusterVersions     = schema.GroupVersionKind{Group: ConfigGroup, Version: "v1", Kind: "ClusterVersion"}
	MachineHealthChecks = schema.GroupVersionKind{Group: machineGroup, Version: "v1beta1", Kind: "MachineHealthCheck"}
	OpenShiftMachines   = schema.GroupVersionKind{Group: machineGroup, Version: "v1beta1", Kind: "Machine"}
)

// RBAC for objects of OpenShift.
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusterversions,verbs=list;watch
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machinehealthchecks,verbs=list;watch
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get

// openshiftObjects returns the objects of a kind of OpenShift; none if it is not installed. The bool is false if they are not read yet.
func (r *Reconciler) openshiftObjects(ctx context.Context, crd string, kind schema.GroupVersionKind) (
	[]unstructured.Unstructured, bool, error,
) {
	if there, err := r.Installed(ctx, crd); err != nil || !there {
		return nil, true, err
	}
	ready, err := r.Kinds.Readable(ctx, kind)
	if err != nil || !ready {
		return nil, ready, err
	}
	list, err := r.list(ctx, kind)
	return list, true, err
}

// observeConflict reads OpenShift's MachineHealthChecks. The one that OpenShift ships is left the nodes that it handles. Any other disables
// the check, because both could act on the same nodes. (medik8s; seed 001.)
func (r *Reconciler) observeConflict(ctx context.Context, state *observed) error {
	checks, ready, err := r.openshiftObjects(ctx, "machinehealthchecks."+machineGroup, MachineHealthChecks)
	if err != nil {
		return fmt.Errorf("look for conflicting MachineHealthChecks: %w", err)
	}
	state.awaits(MachineHealthChecks, ready)
	state.facts.TerminatingLeft = len(checks) == 1 && shipped(&checks[0])
	if len(checks) > 0 && !state.facts.TerminatingLeft {
		state.facts.Disabled = Disabled{Reason: nhcv1.ConflictReason, Message: ConflictMessage}
	}
	return nil
}

// shipped reports whether check is the MachineHealthCheck that OpenShift ships, and it still acts on terminating nodes alone.
// (machine-api-operator, install/0000_30_machine-api-operator_13_machinehealthcheck.yaml; medik8s accepts any MachineHealthCheck whose only
// condition has the type Terminating.)
func shipped(check *unstructured.Unstructured) bool {
	conditions, _, err := unstructured.NestedSlice(check.Object, "spec", "unhealthyConditions")
	if err != nil || len(conditions) != 1 || check.GetNamespace() != "openshift-machine-api" {
		return false
	}
	cond, _ := conditions[0].(map[string]any)
	return check.GetName() == "machine-api-termination-handler" && cond["type"] == "Terminating" &&
		cond["status"] == string(corev1.ConditionTrue)
}

// observeUpgrade finds out whether OpenShift is upgrading the cluster, but only if a remediation may have to start.
func (r *Reconciler) observeUpgrade(ctx context.Context, state *observed) {
	if !slices.ContainsFunc(state.facts.Nodes, func(n Node) bool { return state.facts.Concerns(&n) }) {
		return
	}
	versions, ready, err := r.openshiftObjects(ctx, "clusterversions."+ConfigGroup, ClusterVersions)
	if err != nil {
		state.facts.Trouble, state.facts.Upgrade.Unread = append(state.facts.Trouble, err), true
		return
	}
	state.awaits(ClusterVersions, ready)
	for i := range versions {
		if escalation.Condition(&versions[i], "Progressing")["status"] == string(metav1.ConditionTrue) {
			state.facts.Upgrade.Progressing = versions[i].GetName()
		}
	}
}

// EtcdNamespace is the namespace in which OpenShift runs etcd.
const EtcdNamespace = "openshift-etcd"

// RBAC for OpenShift's etcd. The packages cannot have a Role in its namespace, which exists only on OpenShift.
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list
// +kubebuilder:rbac:groups=core,resources=pods,verbs=list

// observeEtcd reads the state of OpenShift's etcd with live reads, because a cache may be out of date.
func (r *Reconciler) observeEtcd(ctx context.Context) (Etcd, error) {
	there, err := r.Installed(ctx, "clusterversions."+ConfigGroup)
	if err != nil || !there {
		return Etcd{Unread: err != nil}, err
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := r.Live.List(ctx, budgets, client.InNamespace(EtcdNamespace)); err != nil {
		return Etcd{Unread: true}, fmt.Errorf("list the PodDisruptionBudgets in %s: %w", EtcdNamespace, err)
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
		return Etcd{Unread: true}, fmt.Errorf("list the guard pods of PodDisruptionBudget %s: %w", etcd.Budget, err)
	}
	etcd.Guards = map[string]string{}
	for _, pod := range guards.Items {
		for _, cond := range pod.Status.Conditions {
			if cond.Type == corev1.PodReady && cond.Status != corev1.ConditionFalse {
				etcd.Guards[pod.Spec.NodeName] = pod.Name
			}
		}
	}
	return etcd, nil
}
