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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinestatus"
)

// observed is everything that one reconcile decides on, read once.
type observed struct {
	memory *memory       // of former reconciles
	judged time.Time     // when nodes were judged last
	resync time.Duration // after how long they are at the latest
	now    time.Time
	check  *nhcv1.NodeHealthCheck
	// pending are kinds that were not read yet. As long as there is one nothing may be decided: what was not read is not "none".
	pending []schema.GroupVersionKind

	policy   health.Policy
	remedies []remedy          // in the order of use
	rungs    []escalation.Rung // of them
	requests requests
	// unreadable are kinds of requests that could not be read. What is known of theirs stays as it is.
	unreadable map[schema.GroupKind]bool
	leases     map[string]*coordinationv1.Lease // by name
	disabled   *disabling                       // why the check can do nothing; nil if it can
	// upgrading says why new remediations are postponed while the cluster is being upgraded; empty if it is not.
	upgrading string
	// handsOff says that a MachineHealthCheck of OpenShift ends nodes with the condition Terminating.
	handsOff bool
	members  members // the nodes of the control plane; read only if one of them is unhealthy
	first    *target // whose turn it is of those
	etcd     string  // OpenShift: why its etcd forbids that first is disrupted
	targets  []target

	// outages are the times in which the API server was out of reach. settled is when kubelets have had time to report since; zero if they have.
	outages []outage
	settled time.Time

	// trouble is what could not be observed, of what a reconcile can do without.
	trouble []error
	// recheck is the moment at which to look again although nothing was seen to change; zero if there is none.
	recheck time.Time
	// next is, of what it is looked at again for, what a user wants to know.
	next explain.Step
}

// target is one node that the check selects, or that it has begun to remediate.
type target struct {
	name string
	// node is shared with the cache: read only. It is nil if the node is gone.
	node *corev1.Node
	// selected says that the selector selects it. A node that leaves the selection while it is being remediated is remediated to the end.
	selected bool
	verdict  health.Verdict
	streaks  streaks  // that the verdict counts with
	requests []*found // of this check; oldest first
	gone     []nhcv1.Remediation
	// leftovers are requests of a check of the same name that was there before.
	leftovers []*unstructured.Unstructured
	// unseen are requests that the status lists and that cannot be read now: they are taken to be there.
	unseen  []nhcv1.Remediation
	listed  *nhcv1.UnhealthyNode // what the status says of it; nil if it does not
	lease   *coordinationv1.Lease
	machine machine
	// refused says that no request for it could be made a moment ago.
	refused bool
	// missing says that a remediation took the node away and nothing has replaced it yet, since missedSince.
	missing     bool
	missedSince time.Time
	// terminating says that it is left to the MachineHealthCheck that ends such nodes, however it is.
	terminating bool
}

// observe reads what is observed of the check called name, and notes in memory what the next reconcile has to know of it. It returns nil if there is none.
func (r *Reconciler) observe(ctx context.Context, name string, now time.Time, memory *memory) (*observed, error) {
	check := &nhcv1.NodeHealthCheck{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, check); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read NodeHealthCheck %s: %w", name, err)
	}
	if !check.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	w := &observed{
		memory: memory, judged: memory.lastJudged(name), resync: r.Resync, now: now, check: check, policy: policyOf(&check.Spec),
		unreadable: map[schema.GroupKind]bool{},
	}
	r.observeContact(w)
	if err := r.nameKinds(ctx, name, check); err != nil {
		w.trouble = append(w.trouble, err)
		w.lookAgainIn(templateRetry, templateSought)
	}
	r.observeRemedies(ctx, w)
	if err := r.observeConflict(ctx, w); err != nil {
		return nil, err
	}
	if len(w.pending) > 0 {
		return w, nil
	}
	if err := r.observeRequests(ctx, w); err != nil {
		return nil, err
	}
	if err := r.observeLeases(ctx, w); err != nil {
		return nil, err
	}
	if err := r.observeNodes(ctx, w); err != nil {
		return nil, err
	}
	w.judge()
	w.memory.recall(w)
	w.memory.recover(w)
	w.memory.delay(w)
	r.observeMachines(ctx, w)
	w.observeMissing()
	r.observeUpgrade(ctx, w)
	r.observeMembers(ctx, w)
	return w, nil
}

// observeNodes reads the nodes that the check selects, and those that it has not done with: there are requests for them, or it holds their
// lease. A selector that cannot be parsed selects nothing, and disables the check.
func (r *Reconciler) observeNodes(ctx context.Context, w *observed) error {
	selector, err := metav1.LabelSelectorAsSelector(&w.check.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
		if w.disabled == nil {
			w.disabled = &disabling{nhcv1.SelectorInvalidReason, invalidSelector(err)}
		}
	}
	w.observeLimits()
	list := &corev1.NodeList{}
	if err := r.Client.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if err := r.attribute(ctx, w, list.Items); err != nil {
		return err
	}
	w.targets = make([]target, 0, len(list.Items))
	known := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		known[node.Name] = true
		w.targets = append(w.targets, target{name: node.Name, node: node, selected: true})
	}
	if err := r.observeUnfinished(ctx, w, known); err != nil {
		return err
	}
	slices.SortFunc(w.targets, func(a, b target) int { return cmp.Compare(a.name, b.name) })
	w.attach()
	return nil
}

// observeUnfinished reads the nodes that the check has not done with, but for those that are known already.
func (r *Reconciler) observeUnfinished(ctx context.Context, w *observed, known map[string]bool) error {
	unfinished := w.unfinished()
	for i, name := range slices.Concat(unfinished, w.listed()) {
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
		w.targets = append(w.targets, target{name: name, node: node})
	}
	return nil
}

// unfinished are the nodes that there are requests for, of the check or of one of its name before it, or whose lease it holds.
func (w *observed) unfinished() []string {
	return slices.Concat(slices.Collect(maps.Keys(w.requests.ours)), slices.Collect(maps.Keys(w.requests.unseen)),
		slices.Collect(maps.Keys(w.requests.leftovers)), w.leased())
}

// listed are the nodes that the status lists for more than that they are bad.
func (w *observed) listed() []string {
	var names []string
	for i := range w.check.Status.UnhealthyNodes {
		if n := &w.check.Status.UnhealthyNodes[i]; n.ConditionsHealthyTimestamp != nil || len(n.Remediations) > 0 {
			names = append(names, n.Name)
		}
	}
	return names
}

// attach gives every target what is known of it.
func (w *observed) attach() {
	at := make(map[string]*target, len(w.targets))
	for i := range w.targets {
		t := &w.targets[i]
		at[t.name] = t
		t.requests, t.gone, t.unseen, t.lease = w.requests.ours[t.name], w.requests.gone[t.name], w.requests.unseen[t.name], w.leaseOf(t)
		t.leftovers = w.requests.leftovers[t.name]
	}
	for i := range w.check.Status.UnhealthyNodes {
		listed := &w.check.Status.UnhealthyNodes[i]
		if t := at[listed.Name]; t != nil {
			t.listed = listed
		}
	}
}

// judge gives every target its verdict.
func (w *observed) judge() {
	var facts health.Target
	all := w.memory.streaksOf(w)
	for i := range w.targets {
		t := &w.targets[i]
		if t.node == nil {
			continue
		}
		t.streaks = all.see(t, w.policy.Rules)
		facts = factsOf(t.node, t.streaks, facts.Signals[:0])
		verdict := health.Judge(facts, w.policy, w.now)
		if w.handsOff && terminating(t.node) { // it is no longer ours to say how it is: neither a reason to act, nor one to end what is done
			t.terminating, verdict.State = true, health.Unknown
		}
		t.verdict = verdict
	}
	all.keep()
}

// awaits notes whether a kind was read yet.
func (w *observed) awaits(kind schema.GroupVersionKind, ready bool) {
	if !ready && !slices.Contains(w.pending, kind) {
		w.pending = append(w.pending, kind)
	}
}

// startable reports whether a remediation of t would begin if nothing held it up.
func (t *target) startable() bool {
	return t.selected && t.node != nil && t.verdict.State == health.Unhealthy && !t.begun()
}

// inFlight reports whether a remediation of t goes on, as far as the limits are concerned.
func (t *target) inFlight() bool { return t.remediated() || t.missing }

// remediated reports whether there are requests for t.
func (t *target) remediated() bool { return len(t.requests)+len(t.unseen) > 0 }

// lookAgainIn makes the reconcile be repeated after d at the latest: what it says is what is done then.
func (w *observed) lookAgainIn(d time.Duration, what string) {
	at := w.now.Add(d)
	w.recheck = health.Earliest(w.recheck, at)
	w.next = sooner(w.next, explain.Step{At: at, Text: what})
}

// machine is what is known of the Machine of Cluster API behind a node, of the cluster that we run in.
type machine struct {
	obj     *clusterv1.Machine // shared with the cache: read only; nil if there is none
	cluster *clusterv1.Cluster // of obj; likewise
	// watchedBy is a MachineHealthCheck that selects it and acts on it.
	watchedBy string
	// handsOff is why its user wants it left alone, the reason that is told last; empty if not.
	handsOff []handsOff
	// updating says that it is being updated in place.
	updating bool
	// sought says that it was looked for: that there is none is known.
	sought bool
}

// MachineUnread is why a node is left alone of whose Machine it is not known what its user wants, as a clause.
const MachineUnread = "its Machine could not be read"

// handsOff is a reason to leave a node alone, as a clause, and what a person has to do to end it.
type handsOff struct{ why, person string }

// observeMachines finds the Machines of the nodes that may be remediated.
func (r *Reconciler) observeMachines(ctx context.Context, w *observed) {
	watchers := map[string]*clusterv1.MachineHealthCheckList{} // by namespace
	for i := range w.targets {
		t := &w.targets[i]
		if t.node == nil {
			r.observeOwners(ctx, w, t.requests)
			continue
		}
		if t.verdict.State != health.Unhealthy {
			continue
		}
		var err error
		if t.machine, err = r.machineOf(ctx, t.node, watchers); err != nil {
			w.trouble = append(w.trouble, err)
			t.machine.handsOff = append(t.machine.handsOff, handsOff{why: MachineUnread})
		}
		t.machine.sought = err == nil
	}
}

// observeOwners finds out which of the requests for a node that is gone are about a Machine that is there.
func (r *Reconciler) observeOwners(ctx context.Context, w *observed, requests []*found) {
	for _, f := range requests {
		var err error
		if f.machine, err = r.ownerThere(ctx, f.obj); err != nil {
			w.trouble = append(w.trouble, err)
			f.machine = true // not known is no reason to end it
		}
	}
}

// ownerThere reports whether the Machine that owns a request is there, and stays.
func (r *Reconciler) ownerThere(ctx context.Context, req *unstructured.Unstructured) (bool, error) {
	obj, err := r.owningMachine(ctx, req)
	return obj != nil && obj.DeletionTimestamp.IsZero(), err
}

// machineOf finds the Machine that a node names in its annotations. Names can be the same in two clusters, so the Machine has to name the
// node too.
func (r *Reconciler) machineOf(ctx context.Context, node *corev1.Node, watchers map[string]*clusterv1.MachineHealthCheckList) (machine, error) {
	name, namespace := node.Annotations[clusterv1.MachineAnnotation], node.Annotations[clusterv1.ClusterNamespaceAnnotation]
	if name == "" || namespace == "" {
		return machine{}, nil
	}
	obj := &clusterv1.Machine{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := r.Management.Get(ctx, key, obj, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return machine{}, nil
	} else if err != nil {
		return machine{}, fmt.Errorf("read machine %s of node %s: %w", key, node.Name, err)
	}
	if obj.Status.NodeRef.Name != node.Name || obj.Spec.ProviderID != "" && node.Spec.ProviderID != "" && obj.Spec.ProviderID != node.Spec.ProviderID {
		return machine{}, nil
	}
	m := machine{obj: obj}
	if !obj.DeletionTimestamp.IsZero() {
		m.handsOff = append(m.handsOff, handsOff{why: "its Machine is being deleted"})
	}
	if _, skip := obj.Annotations[clusterv1.MachineSkipRemediationAnnotation]; skip {
		m.handsOff = append(m.handsOff, handsOff{
			"its Machine has the annotation " + clusterv1.MachineSkipRemediationAnnotation, "remove the annotation from Machine " + key.String(),
		})
	}
	if _, paused := obj.Annotations[clusterv1.PausedAnnotation]; paused {
		m.handsOff = append(m.handsOff, handsOff{
			"its Machine is paused by the annotation " + clusterv1.PausedAnnotation, "remove the annotation from Machine " + key.String(),
		})
	}
	m.updating = machinestatus.UpdatedInPlace(obj)
	cluster, clusterKey := &clusterv1.Cluster{}, client.ObjectKey{Namespace: namespace, Name: obj.Spec.ClusterName}
	err := r.Management.Get(ctx, clusterKey, cluster, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return m, fmt.Errorf("read cluster %s: %w", clusterKey, err)
	case err == nil:
		m.cluster = cluster
	}
	if ptr.Deref(cluster.Spec.Paused, false) {
		m.handsOff = append(m.handsOff, handsOff{"its Cluster is paused", "unpause Cluster " + clusterKey.String()})
	}
	m.watchedBy, err = r.watcherOf(ctx, obj, watchers)
	return m, err
}

// watcherOf names a MachineHealthCheck that selects m and that somebody acts on: it is not paused, or claimed for kubemend.
func (r *Reconciler) watcherOf(ctx context.Context, m *clusterv1.Machine, watchers map[string]*clusterv1.MachineHealthCheckList) (string, error) {
	list := watchers[m.Namespace]
	if list == nil {
		list = &clusterv1.MachineHealthCheckList{}
		if err := r.Management.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("list the MachineHealthChecks in %s: %w", m.Namespace, err)
		}
		watchers[m.Namespace] = list
	}
	for i := range list.Items {
		if check := &list.Items[i]; machinestatus.Judges(check, m) {
			return client.ObjectKeyFromObject(check).String(), nil
		}
	}
	return "", nil
}
