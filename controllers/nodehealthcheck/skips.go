package nodehealthcheck

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// skip is a reason why a node that should be remediated is not.
type skip struct {
	kind   string // of the event: Normal or Warning
	reason string // of the event
	text   string // of the event, and for people
	again  time.Duration
}

// mayBegin says why the first request for t is not made; nil if it is.
func (w *world) mayBegin(s summary, t *target) *skip {
	if !t.selected {
		return &skip{} // it has left the selection, and its remediation is over
	}
	if why := w.skips(t); why != nil {
		return why
	}
	if s.hold.reason != "" {
		return &skip{} // said once for all nodes, by the check
	}
	if !controlPlane(t.node) {
		return nil
	}
	if w.members.brief {
		return &skip{again: quorumRetry}
	}
	why := w.members.forbids(t.node, t.name)
	switch {
	case why == "" && t != w.first:
		why = w.first.name + " goes first"
	case why == "":
		why = w.etcd
	}
	if why == "" {
		return nil
	}
	skipped := warning("Skipping remediation of %s for preventing control plane / etcd quorum loss, going to retry in a minute: %s", t.name, why)
	skipped.again = quorumRetry
	return skipped
}

// warning is a skip that a user is warned of.
func warning(text string, args ...any) *skip {
	return &skip{kind: corev1.EventTypeWarning, reason: nhcv1.EventRemediationSkipped, text: fmt.Sprintf(text, args...)}
}

// quorumRetry is how soon a node of the control plane is looked at again that had to wait. (medik8s.)
const quorumRetry = time.Minute

// skips says why t in particular is not remediated; nil if it may be.
func (w *world) skips(t *target) *skip {
	switch {
	case t.node.Labels[nhcv1.ExcludeLabel] == nhcv1.ExcludeValue:
		return warning("Remediation skipped on node %s: node has Exclude from Remediation label", t.name)
	case t.machine.handsOff != "":
		return warning("Remediation skipped on node %s: %s", t.name, t.machine.handsOff)
	case held(t.lease, holderOf(w.check), w.now):
		why := warning("Skipped remediation of node: %s, because node lease is already taken by %s", t.name, ptr.Deref(t.lease.Spec.HolderIdentity, ""))
		why.again = min(leaseTaken, expiry(t.lease).Sub(w.now)+time.Millisecond)
		return why
	case len(t.requests) > 0:
		return nil // what follows is about beginning
	case t.machine.watchedBy != "":
		return warning("Skipped remediation of node: %s, because MachineHealthCheck %s watches its Machine %s", t.name, t.machine.watchedBy, t.machine.obj.Name)
	case t.machine.updating:
		return warning("Skipped remediation of node: %s, because its Machine %s is being updated in place", t.name, t.machine.obj.Name)
	}
	if len(w.remedies) == 0 {
		return nil
	}
	return w.obstacle(t, 0)
}

// obstacle says why a rung in particular cannot be used for t; nil if it can.
func (w *world) obstacle(t *target, rung int) *skip {
	m := &w.remedies[rung]
	if why := m.homeless(t); why != "" {
		return warning("Skipped remediation of node: %s, because %s", t.name, why)
	}
	if len(t.leftovers) > 0 {
		return leftover(t)
	}
	for _, rival := range w.requests.byNode[t.name] {
		if rival.GroupVersionKind().GroupKind() == m.kind.GroupKind() {
			return rivalled(t, rival)
		}
	}
	if m.object == nil {
		return nil
	}
	same := w.requests.byName[keyOf(m.kind.GroupKind(), m.ref.Namespace, m.nameFor(w.check, t))]
	switch {
	case same == nil:
		return nil
	case !w.made(same):
		return rivalled(t, same)
	case same.GetAnnotations()[nhcv1.TemplateNameAnnotation] != m.ref.Name:
		return warning("Skipped remediation of node: %s, because %s %s exists and was made from another template: "+
			"using multiple templates of same kind is not supported for this template", t.name, same.GetKind(), client.ObjectKeyFromObject(same))
	case slices.ContainsFunc(t.requests, func(f *found) bool { return f.obj == same && f.rung < rung }):
		return warning("Skipped remediation of node: %s, because two steps of the check have the same template, %s, and %s %s of the first one exists",
			t.name, m.ref.Name, same.GetKind(), client.ObjectKeyFromObject(same))
	}
	return nil
}

func rivalled(t *target, rival *unstructured.Unstructured) *skip {
	s := warning("Skipped remediation of node: %s, because %s %s exists and was not made by this NodeHealthCheck",
		t.name, rival.GetKind(), client.ObjectKeyFromObject(rival))
	s.again = time.Minute // what is named after a Machine does not say which node it is about when it goes
	return s
}

// leftover says that somebody is at work for a check of the same name that was there before, with whatever remedy.
func leftover(t *target) *skip {
	left := t.leftovers[0]
	s := warning("Skipped remediation of node: %s, because %s %s, which a deleted NodeHealthCheck of the same name has left behind, is not gone yet",
		t.name, left.GetKind(), client.ObjectKeyFromObject(left))
	s.again = time.Minute // a remediator may have taken off whose it is, and then nobody is told when it goes
	return s
}

// homeless says why m cannot be used for t: requests of machines live with their Machine.
func (m remedy) homeless(t *target) string {
	switch {
	case !m.ofMachine():
		return ""
	case t.machine.obj == nil:
		return fmt.Sprintf("%s is about Machines of Cluster API, and the node belongs to none of this cluster", m.kind.Kind)
	case t.machine.obj.Namespace != m.ref.Namespace:
		return fmt.Sprintf("%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s",
			m.ref.Kind, t.machine.obj.Namespace, m.ref.Namespace)
	}
	return ""
}

// invalidLabel is the warning about an exclude label without value, which counts for nothing.
func invalidLabel(t *target) string {
	if t.node == nil {
		return ""
	}
	if value, labelled := t.node.Labels[nhcv1.ExcludeLabel]; !labelled || value != "" {
		return ""
	}
	return fmt.Sprintf("Node %s has exclude-from-remediation label with empty value, label will be ignored. "+
		"Set value to 'true' to exclude node from remediation", t.name)
}
