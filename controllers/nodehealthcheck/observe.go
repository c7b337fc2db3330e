package nodehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	pending  []schema.GroupVersionKind
	requests requests
	// unreadable are kinds of requests that could not be read. What is known of theirs stays as it is.
	unreadable map[schema.GroupKind]bool
	leases     map[string]*coordinationv1.Lease // by name
	// lagging says that what was written of a kind that is not the check's own is not shown yet.
	lagging bool
	// released says that the check is gone, and that the requests of all kinds may be its.
	released bool
	// trouble is what could not be observed, of what a reconcile can do without.
	trouble []error
}

// observe reads what the decision about a check depends on. With an error not all of it was read.
func (r *Reconciler) observe(ctx context.Context, check *nhcv1.NodeHealthCheck, now time.Time) (*observed, error) {
	state := &observed{check: check, unreadable: map[schema.GroupKind]bool{}, facts: r.facts(check, now)}
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

func (r *Reconciler) openshift() openshiftCluster {
	return openshiftCluster{Live: r.Live, Installed: r.Installed, Readable: r.Kinds.Readable, List: r.list}
}

// observeConflict looks for MachineHealthChecks of OpenShift. The one that it brings along is left its nodes; any other one disables the
// check, since it may act on the same nodes. (medik8s; seed 001.)
func (r *Reconciler) observeConflict(ctx context.Context, state *observed) error {
	checks, ready, err := r.openshift().MachineChecks(ctx)
	if err != nil {
		return fmt.Errorf("look for conflicting MachineHealthChecks: %w", err)
	}
	state.awaits(MachineHealthChecks, ready)
	state.facts.TerminatingLeft = checks.Default
	if checks.Custom {
		state.facts.Disabled = Disabled{Reason: nhcv1.ConflictReason, Message: ConflictMessage}
	}
	return nil
}

// observeUpgrade finds out whether OpenShift is upgrading the cluster. It is asked only if there may be a remediation to start.
func (r *Reconciler) observeUpgrade(ctx context.Context, state *observed) {
	if !slices.ContainsFunc(state.facts.Nodes, func(n Node) bool { return state.facts.Concerns(&n) }) {
		return
	}
	upgrade, ready, err := r.openshift().Upgrade(ctx)
	if err != nil {
		state.trouble = append(state.trouble, err)
	} else {
		state.awaits(ClusterVersions, ready)
	}
	state.facts.Upgrade = upgrade
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
	known := make(map[string]bool, len(list.Items))
	state.facts.Nodes = make([]Node, 0, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		known[node.Name] = true
		state.facts.Nodes = append(state.facts.Nodes, Node{Name: node.Name, Object: node, Selected: true})
	}
	return r.observeUnfinished(ctx, state, known)
}

// observeUnfinished adds the nodes that the check has not done with, and attaches what is known of each node.
func (r *Reconciler) observeUnfinished(ctx context.Context, state *observed, known map[string]bool) error {
	unfinished := state.unfinished()
	for i, name := range slices.Concat(unfinished, state.listed()) {
		if known[name] {
			continue
		}
		node := &corev1.Node{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: name}, node)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read node %s: %w", name, err)
		}
		if err != nil {
			node = nil
		} else if i >= len(unfinished) {
			continue // it is there, and nothing is to be done about it
		}
		known[name] = true
		state.facts.Nodes = append(state.facts.Nodes, Node{Name: name, Object: node})
	}
	slices.SortFunc(state.facts.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	state.attach()
	for i := range state.facts.Nodes {
		if n := &state.facts.Nodes[i]; len(n.Gone) > 0 {
			n.LoopAwaited = r.Records.Awaited(ctx)
			n.Loop = repeats.Of(r.Records.Repeated(ctx, r.Client, n.Gone[0].Resource.Namespace, "Node", n.Name), state.facts.Now)
		}
	}
	return nil
}

// unfinished are the nodes that there are requests for, of the check or of one of its name before it, or whose lease it holds.
func (state *observed) unfinished() []string {
	return slices.Concat(slices.Collect(maps.Keys(state.requests.ours)), slices.Collect(maps.Keys(state.requests.unseen)),
		slices.Collect(maps.Keys(state.requests.orphaned)), state.leased())
}

// listed are the nodes that the status lists for more than that they are unhealthy.
func (state *observed) listed() []string {
	var names []string
	for i := range state.check.Status.UnhealthyNodes {
		if n := &state.check.Status.UnhealthyNodes[i]; n.ConditionsHealthyTimestamp != nil || len(n.Remediations) > 0 {
			names = append(names, n.Name)
		}
	}
	return names
}

func (state *observed) attach() {
	listed := make(map[string]*nhcv1.UnhealthyNode, len(state.check.Status.UnhealthyNodes))
	for i := range state.check.Status.UnhealthyNodes {
		listed[state.check.Status.UnhealthyNodes[i].Name] = &state.check.Status.UnhealthyNodes[i]
	}
	for i := range state.facts.Nodes {
		n := &state.facts.Nodes[i]
		n.Lease = state.facts.leaseOn(n.Object, state.leases[leaseName(n.Name)])
		n.Listed, n.Gone, n.Unseen = listed[n.Name], state.requests.gone[n.Name], state.requests.unseen[n.Name]
		n.Requests, n.Orphaned, n.Others = state.requests.ours[n.Name], state.requests.orphaned[n.Name], state.requests.byNode[n.Name]
	}
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
