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
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/explain"
)

// quorumRetry is how soon a node of the control plane is looked at again that had to wait. (medik8s.)
const quorumRetry = time.Minute

// only are the answers that s is, if there is one.
func only(s *skip) []*skip {
	if s == nil {
		return nil
	}
	return []*skip{s}
}

// unselected: it has left the selection, and its remediation is over.
func (b beginning) unselected() []*skip {
	if b.t.selected {
		return nil
	}
	return only(quietly(explain.Blocker{Reason: notSelected, Text: "The check does not select the node any more"}))
}

// notSelected is the reason of a hold that nothing else says.
const notSelected = "NotSelected"

func (b beginning) excluded() []*skip {
	if b.t.node.Labels[nhcv1.ExcludeLabel] != nhcv1.ExcludeValue {
		return nil
	}
	return only(warning("Remediation skipped on node %s: node has Exclude from Remediation label", b.t.name).
		by("remove the label %s from the node", nhcv1.ExcludeLabel).until("the label %s is removed from the node", nhcv1.ExcludeLabel))
}

func (b beginning) leftAlone() []*skip {
	var all []*skip
	for _, off := range slices.Backward(b.t.machine.handsOff) {
		s := warning("Remediation skipped on node %s: %s", b.t.name, off.why)
		s.Person = off.person
		all = append(all, s)
	}
	return all
}

func (b beginning) leaseTaken() []*skip {
	lease := b.t.lease
	if !held(lease, holderOf(b.check), b.now) {
		return nil
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	s := warning("Skipped remediation of node: %s, because node lease is already taken by %s", b.t.name, holder).
		until("the lease that %s has on the node runs out", holder)
	s.Until = expiry(lease)
	return only(s.retried(min(leaseTaken, s.Until.Sub(b.now)+time.Millisecond)))
}

func (b beginning) watched() []*skip {
	if b.t.machine.watchedBy == "" {
		return nil
	}
	return only(warning("Skipped remediation of node: %s, because MachineHealthCheck %s watches its Machine %s",
		b.t.name, b.t.machine.watchedBy, b.t.machine.obj.Name).
		by("let only one of the two checks watch it: take it out of the selector of MachineHealthCheck %s, or pause that one", b.t.machine.watchedBy))
}

func (b beginning) updating() []*skip {
	if !b.t.machine.updating {
		return nil
	}
	return only(warning("Skipped remediation of node: %s, because its Machine %s is being updated in place", b.t.name, b.t.machine.obj.Name).
		until("the update of its Machine is over"))
}

// remedy is that of the rung; nil if the check names none.
func (b beginning) remedy() *remedy {
	rung := b.passing(b.t, b.rung)
	if rung >= len(b.remedies) {
		return nil
	}
	return &b.remedies[rung]
}

// homeless: requests of machines live with their Machine.
func (b beginning) homeless() []*skip {
	m := b.remedy()
	if m == nil {
		return nil
	}
	why := m.homeless(b.t)
	if why == "" {
		return nil
	}
	return only(warning("Skipped remediation of node: %s, because %s", b.t.name, why).by("have the check name a template that is about this node"))
}

// leftovers: somebody is at work for a check of the same name that was there before, with whatever remedy.
func (b beginning) leftovers() []*skip {
	if len(b.t.leftovers) == 0 || b.remedy() == nil {
		return nil
	}
	left := b.t.leftovers[0]
	return only(warning("Skipped remediation of node: %s, because %s %s, which a deleted NodeHealthCheck of the same name has left behind, is not gone yet",
		b.t.name, left.GetKind(), client.ObjectKeyFromObject(left)).until("%s %s is gone", left.GetKind(), client.ObjectKeyFromObject(left)).
		retried(time.Minute)) // a remediator may have taken off whose it is, and then nobody is told when it goes
}

// rivalled: others' requests of the same kind name the node.
func (b beginning) rivalled() []*skip {
	m := b.remedy()
	if m == nil {
		return nil
	}
	var all []*skip
	for _, rival := range b.requests.byNode[b.t.name] {
		if rival.GroupVersionKind().GroupKind() == m.kind.GroupKind() && !slices.Contains(b.t.leftovers, rival) {
			all = append(all, rivalOf(b.t, rival))
		}
	}
	return all
}

// nameTaken: there is a request of the name that the one of this rung would have.
func (b beginning) nameTaken() []*skip {
	m := b.remedy()
	if m == nil || m.object == nil {
		return nil
	}
	same := b.requests.byName[keyOf(m.kind.GroupKind(), m.ref.Namespace, m.nameFor(b.check, b.t))]
	switch {
	case same == nil, slices.Contains(b.t.leftovers, same):
		return nil
	case !b.made(same):
		return only(rivalOf(b.t, same))
	case same.GetAnnotations()[nhcv1.TemplateNameAnnotation] != m.ref.Name:
		return only(warning("Skipped remediation of node: %s, because %s %s exists and was made from another template: "+
			"using multiple templates of same kind is not supported for this template", b.t.name, same.GetKind(), client.ObjectKeyFromObject(same)).
			by("have the steps of the check name templates of different kinds"))
	case slices.ContainsFunc(b.t.requests, func(f *found) bool { return f.obj == same && f.rung < b.rung }):
		return only(warning("Skipped remediation of node: %s, because two steps of the check have the same template, %s, and %s %s of the first one exists",
			b.t.name, m.ref.Name, same.GetKind(), client.ObjectKeyFromObject(same)).by("have the two steps of the check name two templates"))
	}
	return nil
}

func rivalOf(t *target, rival *unstructured.Unstructured) *skip {
	key := client.ObjectKeyFromObject(rival)
	return warning("Skipped remediation of node: %s, because %s %s exists and was not made by this NodeHealthCheck", t.name, rival.GetKind(), key).
		by("delete %s %s when it is not needed any more", rival.GetKind(), key).until("%s %s is gone", rival.GetKind(), key).
		retried(time.Minute) // what is named after a Machine does not say which node it is about when it goes
}

// heldForAll: the check says so once for all nodes.
func (b beginning) heldForAll() []*skip {
	all := make([]*skip, 0, len(b.sum.holds))
	for _, h := range b.sum.holds {
		all = append(all, quietly(h))
	}
	return all
}

// pausedForAll: while the check is paused, the cluster is upgraded or kubelets have had no time to report, nothing new is asked for.
func (b beginning) pausedForAll() []*skip {
	var all []*skip
	for _, h := range b.sum.holds {
		if h.Reason == nhcv1.PausedReason || h.Reason == nhcv1.UpgradeReason || h.Reason == nhcv1.KubeletsAwaitedReason {
			all = append(all, quietly(h))
		}
	}
	return all
}

// quorum is a skip of a node of the control plane.
func (b beginning) quorum(why string) *skip {
	return warning("Skipping remediation of %s for preventing control plane / etcd quorum loss, going to retry in a minute: %s", b.t.name, why).
		until("the control plane can do without it").retried(quorumRetry)
}

// unsearched: in a moment it will be known who else is being remediated.
func (b beginning) unsearched() []*skip {
	if !b.members.brief {
		return nil
	}
	s := b.quorum(b.members.forbids(b.t.name, b.now))
	s.quiet = true
	return only(s)
}

// majority: another one is being remediated, or without the node, which is alive, too few would be left. As long as something else holds up all nodes of
// the control plane nobody has looked at them.
func (b beginning) majority() []*skip {
	if b.observed.first == nil {
		return nil
	}
	var all []*skip
	for _, why := range b.members.against(b.t.name, b.now) {
		all = append(all, b.quorum(why))
	}
	return all
}

// turn: one at a time.
func (b beginning) turn() []*skip {
	if b.observed.first == nil || b.observed.first == b.t {
		return nil
	}
	return only(b.quorum(b.observed.first.name+" goes first").until("the remediation of %s is over", b.observed.first.name))
}

func (b beginning) etcdLacks() []*skip {
	if b.etcd == "" || b.t != b.observed.first {
		return nil
	}
	return only(b.quorum(b.etcd))
}

// remadeTooSoon: somebody deleted the request a moment ago.
func (b beginning) remadeTooSoon() []*skip {
	at := b.t.again(b.observed, b.rung)
	if !b.now.Before(at) {
		return nil
	}
	text := fmt.Sprintf("The request for node %s was deleted a moment ago, it is made again a minute after it was made first", b.t.name)
	return only(quietly(explain.Blocker{Reason: escalation.Vanished, Text: text, Until: at, Ends: "a minute has passed since it was made first"}))
}

// templateless: without its template nothing can be made. The check says why.
func (b beginning) templateless() []*skip {
	if m := b.remedy(); b.disabled == nil && m != nil && m.object != nil {
		return nil
	}
	return only(quietly(b.unusable()))
}

// exhausted: the last rung was given up.
func (w *observed) exhausted(t *target) *skip {
	text := fmt.Sprintf("Remediation timed out, and no template left to try. didn't find a template to use for NHC %s and node %s", w.check.Name, t.name)
	return &skip{kind: corev1.EventTypeWarning, Blocker: explain.Blocker{
		Reason: nhcv1.EventNoTemplateLeft, Text: text, Person: "find out what is wrong with the node; its requests end when it is well",
	}}
}

// homeless says why m cannot be used for t: requests of machines live with their Machine, which is Cluster API's, or, for those that OpenShift's
// own operator serves, OpenShift's.
func (m remedy) homeless(t *target) string {
	_, openshift := m.openshiftMachineFor(t)
	switch {
	case !m.ofMachine(), openshift, m.machineFor(t) != nil:
		return ""
	case t.machine.obj == nil:
		return m.unowned(t)
	default:
		return m.misplaced(t.machine.obj.Namespace)
	}
}

// unowned says why m cannot be used for t, which is no Machine's of Cluster API.
func (m remedy) unowned(t *target) string {
	namespace, _, openshift := openshiftMachineOf(t.node)
	if openshift && m.kind.Group == infrastructureGroup {
		return m.misplaced(namespace)
	}
	return fmt.Sprintf("%s is about Machines of Cluster API, and the node belongs to none of this cluster", m.kind.Kind)
}

// misplaced is in medik8s' words.
func (m remedy) misplaced(namespace string) string {
	return fmt.Sprintf("%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s", m.ref.Kind, namespace, m.ref.Namespace)
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
