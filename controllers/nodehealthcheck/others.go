package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

// otherMembers finds out which members of the control plane are being remediated, replaced or joining, and by what: requests of any check,
// whatever its kind, and Machines of the same cluster.
//
// A request about a Machine is about a member if that very Machine is one's, or if it is where a NodeHealthCheck has its templates and names the
// node: its name is that of a Machine, of which any cluster may have one. Requests of other kinds count wherever they are: their remediators
// go by the node that they name, or are named like, in all namespaces.
func (r *Reconciler) otherMembers(ctx context.Context, w *observed, nodes []corev1.Node) (others, error) {
	of := others{busy: map[string]string{}, away: map[string]replacement{}, replaced: map[string]replacement{}}
	there, ready := map[string]bool{}, map[string]bool{} // nodes, and whether they are members, and ready
	for i := range nodes {
		there[nodes[i].Name], ready[nodes[i].Name] = controlPlane(&nodes[i]), nodeReady(&nodes[i])
	}
	machines, err := r.memberMachines(ctx, w, &of)
	if err != nil {
		return others{}, err
	}
	templates, err := r.namespacesOfTemplates(ctx)
	if err != nil {
		return others{}, err
	}
	var errs []error
	add := func(f *found, node string, gone time.Time) {
		_, member := f.obj.GetLabels()[nhcv1.ControlPlaneLabel]
		if owner := machines[machineOwner(f.obj)]; owner != "" {
			node, member = owner, true
		}
		is, exists := there[node]
		if !is && !member || node == "" { // a remediator may have taken the label off
			return
		}
		by := fmt.Sprintf("%s %s", f.obj.GetKind(), client.ObjectKeyFromObject(f.obj))
		if exists {
			if !ready[node] || !f.idleFor(controlplane.ReplacementPatience, w.now) {
				of.busy[node] = by
			}
			return
		}
		forgotten, err := r.forgotten(ctx, f, w.now)
		if errs = append(errs, err); !forgotten {
			of.away[node] = replacement{by, gone}
		}
	}
	for _, obj := range w.requests.other {
		add(&found{obj: obj}, nodeMeantBy(obj, templates), obj.GetCreationTimestamp().Time)
	}
	for node, ours := range w.requests.ours {
		for _, f := range ours {
			add(f, node, w.goneSince(node))
		}
	}
	return of, errors.Join(errs...)
}

// nodeMeantBy is the node that obj is about, as far as its name or annotation says so and counts; templates are the namespaces of the checks'.
func nodeMeantBy(obj *unstructured.Unstructured, templates map[string]bool) string {
	switch {
	case !aboutMachines(obj):
		return nodeOfObject(obj)
	case templates[obj.GetNamespace()]:
		return nodeOf(obj)
	}
	return ""
}

// forgotten reports whether a remediator holds on to f, whose node is gone, for longer than is waited for, and the Machine is gone, too: then f is about
// nothing that there is.
func (r *Reconciler) forgotten(ctx context.Context, f *found, now time.Time) (bool, error) {
	if !f.clings(now) {
		return false, nil
	}
	there, err := r.ownerThere(ctx, f.obj)
	return !there, err
}

// idleFor reports whether f was deleted so long ago that nobody is at work on it any more, whoever holds on to it.
func (f *found) idleFor(d time.Duration, now time.Time) bool {
	return f.leaving() && !now.Before(f.obj.GetDeletionTimestamp().Add(d))
}

// goneSince is since when the node called name is known to be gone.
func (w *observed) goneSince(name string) time.Time {
	i := slices.IndexFunc(w.targets, func(t target) bool { return t.name == name })
	if i < 0 {
		return w.now
	}
	return w.targets[i].goneSince(w.now)
}

// namespacesOfTemplates are those in which NodeHealthChecks make requests, or made them.
func (r *Reconciler) namespacesOfTemplates(ctx context.Context) (map[string]bool, error) {
	list := &nhcv1.NodeHealthCheckList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the NodeHealthChecks: %w", err)
	}
	all := map[string]bool{}
	for i := range list.Items {
		maps.Copy(all, namespacesOf(&list.Items[i]))
	}
	return all, nil
}

// memberMachines are the nodes of the control plane's Machines. What they say of themselves is noted in of.
func (r *Reconciler) memberMachines(ctx context.Context, w *observed, of *others) (map[machineRef]string, error) {
	m := w.someMachine()
	if m == nil {
		return nil, nil
	}
	list := &clusterv1.MachineList{}
	if err := r.Management.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: m.Spec.ClusterName}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("list the control-plane machines of cluster %s: %w", m.Spec.ClusterName, err)
	}
	nodes := make(map[machineRef]string, len(list.Items))
	for i := range list.Items {
		m := &list.Items[i]
		nodes[machineRef{client.ObjectKeyFromObject(m), m.UID}] = m.Status.NodeRef.Name
		of.note(m)
	}
	return nodes, nil
}

// note notes what a Machine of the control plane says of itself.
func (of *others) note(m *clusterv1.Machine) {
	node, by := m.Status.NodeRef.Name, "Machine "+client.ObjectKeyFromObject(m).String()
	since, replaced := replacedSince(m)
	switch {
	case node == "":
		of.joining = append(of.joining, m.Name)
	case replaced:
		of.replaced[node] = replacement{by, since}
	case beingRemediated(m):
		of.busy[node] = by
	}
}

// replacedSince reports whether m is being deleted, or its owner was asked to replace it, and since when.
func replacedSince(m *clusterv1.Machine) (time.Time, bool) {
	if !m.DeletionTimestamp.IsZero() {
		return m.DeletionTimestamp.Time, true
	}
	i := slices.IndexFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == clusterv1.MachineOwnerRemediatedCondition && c.Status == metav1.ConditionFalse
	})
	if i < 0 || !beingRemediated(m) {
		return time.Time{}, false
	}
	return m.Status.Conditions[i].LastTransitionTime.Time, true
}

// someMachine is one of the cluster's, if any is known: all nodes belong to the same cluster.
func (w *observed) someMachine() *clusterv1.Machine {
	for i := range w.targets {
		if m := w.targets[i].machine.obj; m != nil {
			return m
		}
	}
	return nil
}

// beingRemediated reports whether a MachineHealthCheck has m remediated, by its owner or by whoever serves the requests about machines.
func beingRemediated(m *clusterv1.Machine) bool {
	if meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) {
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
