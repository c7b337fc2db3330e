package nodehealthcheck

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/request"
)

// members are the nodes of the control plane.
type members struct {
	// healthy are those that are ready and not being remediated.
	total, healthy int
	// busy are those that are being remediated, by whomever, and how that is seen.
	busy map[string]string
	// unknown is why it could not be looked at; empty if it was. brief says that it will be known in a moment, and that nobody needs to hear of it.
	unknown string
	brief   bool
}

// observeMembers looks at the control plane if one of its nodes waits to be remediated, and finds out whose turn it is.
func (r *Reconciler) observeMembers(ctx context.Context, w *world) {
	if w.first = w.firstMember(); w.first != nil {
		r.observeOthers(ctx, w)
	}
}

// observeOthers finds out whether the control plane can do without the node whose turn it is.
func (r *Reconciler) observeOthers(ctx context.Context, w *world) {
	if w.members.unknown, w.members.brief = r.searching(); w.members.unknown != "" {
		return // its end wakes us
	}
	list := &corev1.NodeList{}
	err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy)
	if err == nil {
		err = r.readAll(ctx, w)
	}
	var busy map[string]string
	if err == nil {
		busy, err = r.busyMembers(ctx, w, list.Items)
	}
	if err != nil {
		w.members.unknown = err.Error()
		w.trouble = append(w.trouble, fmt.Errorf("look at the control plane: %w", err))
		return
	}
	w.members = membersOf(list.Items, busy)
	r.observeEtcd(ctx, w)
}

// firstMember is the one node of the control plane that may begin to be remediated now: that which has been due for longest of those that
// nothing else holds up. One whose request was refused lately lets the others go first.
func (w *world) firstMember() *target {
	var first *target
	for i := range w.targets {
		t := &w.targets[i]
		if t.startable() && controlPlane(t.node) && w.skips(t) == nil && (first == nil || w.goesBefore(t, first)) {
			first = t
		}
	}
	return first
}

func (w *world) goesBefore(a, b *target) bool {
	if a.refused != b.refused {
		return b.refused
	}
	return a.verdict.OverdueSince(w.now).Before(b.verdict.OverdueSince(w.now))
}

// readAll makes sure that the requests of all checks were read, not only those of the kinds that this check names: another one may be
// remediating a node of the control plane, and nobody has looked at its kinds since the manager was started; or one that is gone.
func (r *Reconciler) readAll(ctx context.Context, w *world) error {
	list := &nhcv1.NodeHealthCheckList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list NodeHealthChecks: %w", err)
	}
	for _, kind := range slices.Concat(r.Kinds.Unread(), r.Kinds.InUse()) { // also those that were found since the requests were read
		if isRequest(kind) {
			w.awaits(kind, w.requests.read[kind.GroupKind()])
		}
	}
	for i := range list.Items {
		for _, kind := range kindsOf(&list.Items[i]) {
			ready, err := r.Kinds.Ready(ctx, kind)
			if request.Missing(err) {
				continue // then there are none
			}
			if err != nil {
				return fmt.Errorf("read the requests of NodeHealthCheck %s: %w", list.Items[i].Name, err)
			}
			w.awaits(kind, ready && w.requests.read[kind.GroupKind()])
		}
	}
	return nil
}

// kindsOf are the kinds of requests that a check makes, or has made.
func kindsOf(check *nhcv1.NodeHealthCheck) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, m := range remediesOf(&check.Spec) {
		if m.kind.Kind != "" {
			kinds = append(kinds, m.kind)
		}
	}
	for i := range check.Status.UnhealthyNodes {
		for _, was := range check.Status.UnhealthyNodes[i].Remediations {
			kinds = append(kinds, schema.FromAPIVersionAndKind(was.Resource.APIVersion, was.Resource.Kind))
		}
	}
	return kinds
}

// membersOf counts the control plane. The node of a request may be gone, and the request not over: it is busy all the same.
func membersOf(nodes []corev1.Node, busy map[string]string) members {
	m := members{busy: busy}
	for i := range nodes {
		node := &nodes[i]
		if !controlPlane(node) {
			continue
		}
		m.total++
		if _, is := busy[node.Name]; nodeReady(node) && !is {
			m.healthy++
		}
	}
	return m
}

// busyMembers are the nodes of the control plane that are being remediated, or replaced, and by what: requests of any check, whatever
// its kind, and Machines of the same cluster that are being deleted or were handed to their owner.
func (r *Reconciler) busyMembers(ctx context.Context, w *world, nodes []corev1.Node) (map[string]string, error) {
	busy, members := map[string]string{}, map[string]bool{}
	for i := range nodes {
		members[nodes[i].Name] = controlPlane(&nodes[i])
	}
	machines, err := r.memberMachines(ctx, w, busy)
	if err != nil {
		return nil, err
	}
	add := func(obj *unstructured.Unstructured, node string) {
		_, marked := obj.GetLabels()[nhcv1.ControlPlaneLabel]
		owner, ofMachine := machines[machineOwner(obj)]
		switch {
		case ofMachine && owner != "":
			busy[owner] = fmt.Sprintf("%s %s", obj.GetKind(), client.ObjectKeyFromObject(obj))
		case members[node], marked && node != "": // a remediator may have taken the label off, and the node may be gone
			busy[node] = fmt.Sprintf("%s %s", obj.GetKind(), client.ObjectKeyFromObject(obj))
		}
	}
	for _, obj := range w.requests.other {
		add(obj, nodeOfObject(obj))
	}
	for node, ours := range w.requests.ours {
		for _, f := range ours {
			add(f.obj, node)
		}
	}
	return busy, nil
}

// memberMachines are the nodes of the control plane's Machines, by the Machine's name. Those that are being replaced are noted in busy.
func (r *Reconciler) memberMachines(ctx context.Context, w *world, busy map[string]string) (map[string]string, error) {
	m := w.someMachine()
	if m == nil {
		return nil, nil
	}
	list := &clusterv1.MachineList{}
	if err := r.Management.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: m.Spec.ClusterName}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("list the control-plane machines of cluster %s: %w", m.Spec.ClusterName, err)
	}
	nodes := make(map[string]string, len(list.Items))
	for i := range list.Items {
		other := &list.Items[i]
		nodes[other.Name] = other.Status.NodeRef.Name
		if node := other.Status.NodeRef.Name; node != "" && (!other.DeletionTimestamp.IsZero() || beingRemediated(other)) {
			busy[node] = "Machine " + client.ObjectKeyFromObject(other).String()
		}
	}
	return nodes, nil
}

// someMachine is one of the cluster's, if any is known: all nodes belong to the same cluster.
func (w *world) someMachine() *clusterv1.Machine {
	for i := range w.targets {
		if m := w.targets[i].machine.obj; m != nil {
			return m
		}
	}
	return nil
}

// beingRemediated reports whether a MachineHealthCheck has m remediated, by its owner or by whoever serves the requests about machines.
func beingRemediated(m *clusterv1.Machine) bool {
	if conditionTrue(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) {
		return false
	}
	return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		switch {
		case c.Status != metav1.ConditionFalse:
			return false
		case c.Type == clusterv1.MachineExternallyRemediatedCondition:
			return c.Reason != clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason &&
				c.Reason != clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason // nobody was asked
		default:
			return c.Type == clusterv1.MachineOwnerRemediatedCondition
		}
	})
}

// forbids says why the node called name of the control plane must not be disrupted; empty if it may be.
func (m members) forbids(node *corev1.Node, name string) string {
	if why := m.against(node, name); len(why) > 0 {
		return why[0]
	}
	return ""
}

// against is all that forbids it. The one that is unhealthy counts as lost already, whatever it still does: without it a majority has to be left.
func (m members) against(node *corev1.Node, name string) []string {
	if m.unknown != "" {
		return []string{"the control plane could not be looked at: " + m.unknown}
	}
	var why []string
	for _, other := range slices.Sorted(maps.Keys(m.busy)) {
		if other != name {
			why = append(why, fmt.Sprintf("%s is being remediated (%s)", other, m.busy[other]))
		}
	}
	others := m.healthy
	if nodeReady(node) {
		others-- // its other conditions are bad, and it is counted among the healthy ones
	}
	if need := m.total/2 + 1; others < need {
		why = append(why, fmt.Sprintf("without it %d of %d control-plane nodes are healthy, and %d are needed", others, m.total, need))
	}
	return why
}
