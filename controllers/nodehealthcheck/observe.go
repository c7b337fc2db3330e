package nodehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/explain"
)

// observed are the facts of one check, and the objects that they were read from.
type observed struct {
	facts Facts
	check *nhcv1.NodeHealthCheck
	// pending are kinds that were not read yet. As long as there is one nothing may be decided: what was not read is not "none".
	pending []schema.GroupVersionKind
	nodes   map[string]*Node // of which anything is known, by name
	// listed is what the status says of requests, byName all requests that there are, and others those that the check did not make.
	listed map[types.UID]*listed
	byName map[objectKey]*unstructured.Unstructured
	others []*unstructured.Unstructured
	// namespaces are those in which the check makes requests, or made them.
	namespaces map[string]bool
	// unreadable are kinds of requests that could not be read. What is known of theirs stays as it is.
	read, unreadable map[schema.GroupKind]bool
	leases           map[string]*coordinationv1.Lease // by name
	// lagging says that what was written of a kind that is not the check's own is not shown yet.
	lagging bool
	// released says that the check is gone, and that the requests of all kinds may be its.
	released bool
	// trouble is what could not be observed, of what a reconcile can do without.
	trouble []error
}

func newObserved(check *nhcv1.NodeHealthCheck, facts Facts) *observed {
	return &observed{
		facts: facts, check: check, nodes: map[string]*Node{}, listed: statusByUID(check), byName: map[objectKey]*unstructured.Unstructured{},
		namespaces: namespacesOf(check), read: map[schema.GroupKind]bool{}, unreadable: map[schema.GroupKind]bool{},
	}
}

// node is what is known of the node called name.
func (state *observed) node(name string) *Node {
	if state.nodes[name] == nil {
		state.nodes[name] = &Node{Name: name}
	}
	return state.nodes[name]
}

// observe reads what the decision about a check depends on. With an error not all of it was read. Trouble has failed before, and is tried
// again.
func (r *Reconciler) observe(ctx context.Context, check *nhcv1.NodeHealthCheck, now time.Time, trouble ...error) (*observed, error) {
	state := newObserved(check, r.facts(check, now))
	for _, err := range trouble {
		if err != nil {
			state.trouble = append(state.trouble, err)
			state.retry()
		}
	}
	err := r.observeAll(ctx, state)
	for _, kind := range state.pending {
		state.facts.Awaited = append(state.facts.Awaited, kind.GroupKind().String())
	}
	for _, trouble := range state.trouble {
		state.facts.Trouble = append(state.facts.Trouble, trouble.Error())
	}
	return state, err
}

func (r *Reconciler) observeAll(ctx context.Context, state *observed) error {
	r.observeTemplates(ctx, state)
	if err := r.observeConflict(ctx, state); err != nil || len(state.pending) > 0 {
		return err
	}
	for _, observe := range []func(context.Context, *observed) error{r.observeRequests, r.observeLeases, r.observeNodes} {
		if err := observe(ctx, state); err != nil {
			return err
		}
	}
	r.observeMachines(ctx, state)
	r.observeUpgrade(ctx, state)
	r.observeControlPlane(ctx, state)
	return nil
}

func (state *observed) disable(why Disabled) {
	if !state.facts.Disabled.Is() {
		state.facts.Disabled = why
	}
}

func (state *observed) awaits(kind schema.GroupVersionKind, ready bool) {
	if !ready && !slices.Contains(state.pending, kind) {
		state.pending = append(state.pending, kind)
	}
}

// readRetry is how soon a template is looked for again that was not there (medik8s), and what is not watched is looked at.
// Templates that come later are watched; their kinds are not.
const readRetry = 15 * time.Second

func (state *observed) retry() {
	state.facts.Retry = health.Earliest(state.facts.Retry, state.facts.Now.Add(readRetry))
}

func (state *observed) recheck(at time.Time) {
	state.facts.Recheck = health.Earliest(state.facts.Recheck, at)
}

// observeNodes reads the nodes that the check selects, or has not done with. A selector that cannot be parsed selects nothing.
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

// observeUnfinished reads the nodes that the check does not select and has not done with: there are requests for them, of the check or of
// one of its name before it, or it holds their lease, or its status says of one that is gone that it was remediated.
func (r *Reconciler) observeUnfinished(ctx context.Context, state *observed) error {
	for i := range state.check.Status.UnhealthyNodes {
		listed := &state.check.Status.UnhealthyNodes[i]
		state.node(listed.Name).Listed = listed
	}
	for _, n := range state.nodes {
		lease := state.leases[leaseName(n.Name)]
		unfinished := n.Selected || n.Remediated() || len(n.Orphaned) > 0 || state.facts.leaseOn(nil, lease).own()
		if !unfinished && (n.Listed == nil || n.Listed.ConditionsHealthyTimestamp == nil && len(n.Listed.Remediations) == 0) {
			continue
		}
		if !n.Selected {
			node := &corev1.Node{}
			if err := r.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err == nil && !unfinished {
				continue // it is there, and nothing is to be done about it
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

// Explain is what a reconcile of the check called name would see and decide at now; nil if there is no such check. It only reads. Without
// the memory of reconciles a node whose condition turns between bad statuses may seem due later than it is, and never earlier.
//
// Whether kubemend serves the kind in a cluster, and whether it is there at all, the caller has to know.
func (r *Reconciler) Explain(ctx context.Context, name string, now time.Time) (*explain.Check, error) {
	check, err := r.read(ctx, name)
	if err != nil || check == nil || !check.DeletionTimestamp.IsZero() {
		return nil, err
	}
	state, err := r.observe(ctx, check, now)
	if err == nil && len(state.pending) > 0 { // kinds come into use when they are asked for; a reconcile would wait a moment as well
		state, err = r.observe(ctx, check, now)
	}
	if err != nil {
		return nil, err
	}
	plan := Decide(state.facts)
	c := NodeCheck(&state.facts, &plan)
	if r.idle.Load() {
		c.Mode, c.ModeMessage = explain.None, "another controller acts on NodeHealthChecks"
	}
	return c, nil
}
