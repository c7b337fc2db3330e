package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/state"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/partners/owners"
)

// Environment is what is assumed of everybody but kubemend.
type Environment struct {
	// Fail says which nodes turn Ready=Unknown: those of machines that a label selector selects, and nodes of the management cluster that it
	// selects; or machine/NAME and node/NAME, separated by commas. Nothing fails if it is empty.
	Fail string
	// FailAt is when they do, and For for how long. If For is zero they do not come back by themselves.
	FailAt, For time.Duration
	// DeletionTakes is how long it takes from the moment at which a machine's owner is asked until the machine is gone, ReplacementTakes from
	// when the new one is made until its node is Ready.
	DeletionTakes, ReplacementTakes time.Duration
	// BootTakes is how long it takes from when a host is on until its node is Ready.
	BootTakes time.Duration
	// Hard says that a reboot does not bring a node back that has failed.
	Hard bool
	// RemediationTakes is how long remediators other than kubemend take from when a request is made until the node is Ready. Zero is for ever.
	RemediationTakes time.Duration
}

// environment is everybody but kubemend: nodes, owners of machines, hosts, remediators.
type environment struct {
	Environment
	*engine

	namespace string
	scheduled []happening
	numbered  int

	// faults are the nodes that have failed and were not brought back. was is how they were before, for those that are deleted meanwhile.
	faults map[nodeKey]bool
	was    map[nodeKey]*corev1.Node
	owners owners.Owners
	// metal are the hosts of which anything was ever asked.
	metal map[client.ObjectKey]*bareMetal
	// awake are when remediators go on with requests, so that none does twice at one moment.
	awake map[types.UID]time.Time
	// kinds are those of requests.
	kinds []requestKind
}

// nodeKey names a node. The cluster is empty for one of the management cluster.
type nodeKey struct {
	cluster client.ObjectKey
	name    string
}

func (p nodeKey) ref() explain.Ref { return explain.Ref{Kind: "Node", Name: p.name} }

// happening is something that happens at a moment, whatever the controllers do.
type happening struct {
	at     time.Time
	number int
	do     func(context.Context) error
}

func newEnvironment(ctx context.Context, s *engine, q Question) (*environment, error) {
	o := &environment{
		Environment: q.Environment, engine: s, namespace: q.Namespace, faults: map[nodeKey]bool{}, was: map[nodeKey]*corev1.Node{},
		metal: map[client.ObjectKey]*bareMetal{}, awake: map[types.UID]time.Time{},
	}
	var err error
	if o.kinds, err = s.requestKinds(ctx); err != nil {
		return nil, err
	}
	if o.Fail == "" {
		return o, nil
	}
	failing, err := o.failing(ctx, o.Fail)
	if err != nil {
		return nil, err
	}
	o.in(o.FailAt, func(context.Context) error { return o.fail(failing) })
	if o.For > 0 {
		o.in(o.FailAt+o.For, func(ctx context.Context) error { return o.recover(ctx, failing) })
	}
	return o, nil
}

// assumptions are the sentences, each with its flag.
func (o *environment) assumptions() []string {
	var all []string
	if o.Fail != "" {
		back := "do not come back by themselves (--for)"
		if o.For > 0 {
			back = fmt.Sprintf("come back after %s (--for)", brief(o.For))
		}
		all = append(all, fmt.Sprintf("What --fail %s selects turns Ready=Unknown %s after the beginning (--fail-at), and its nodes %s",
			o.Fail, brief(o.FailAt), back))
	}
	all = append(all, fmt.Sprintf("An owner that is asked to remediate a machine deletes it, which takes %s (--deletion-takes), and makes a new one "+
		"at once, whose node is Ready %s later (--replacement-takes); a control plane waits until the old one is gone, and replaces one after the other",
		brief(o.DeletionTakes), brief(o.ReplacementTakes)))
	if len(o.kindsOnMetal()) > 0 {
		boots := fmt.Sprintf("its node is Ready %s later (--boot-takes)", brief(o.BootTakes))
		if o.Hard {
			boots = "its node does not come back from that if it has failed (--hard)"
		}
		all = append(all, fmt.Sprintf("A BareMetalHost is off %s after it is asked to power off, and on again %s after it is released; %s",
			brief(switchingOff), brief(switchingOn), boots),
			"Nodes have no pods: they are drained at once")
	}
	for _, k := range o.kinds {
		if because := o.managers.unserved(crdOf(k.GroupVersionKind)); because != "" {
			all = append(all, fmt.Sprintf("kubemend does not carry out requests of the kind %s: %s", k.Kind, because))
		}
	}
	if other := o.others(); other != "" {
		effect := "never bring a node back"
		if o.RemediationTakes > 0 {
			effect = "bring the node back within " + brief(o.RemediationTakes)
		}
		all = append(all, fmt.Sprintf("The remediators of %s %s (--remediation-takes)", other, effect))
	}
	return all
}

// in has something happen in a while.
func (o *environment) in(after time.Duration, do func(context.Context) error) {
	o.numbered++
	o.scheduled = append(o.scheduled, happening{o.clock.Now().Add(after), o.numbered, do})
	slices.SortFunc(o.scheduled, func(a, b happening) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.number, b.number)) })
}

// next is when the next thing happens; zero if nothing does.
func (o *environment) next() time.Time {
	var next time.Time
	if len(o.scheduled) > 0 {
		next = o.scheduled[0].at
	}
	for _, b := range o.metal {
		next = health.Earliest(next, b.next())
	}
	return next
}

// happen makes happen what is due.
func (o *environment) happen(ctx context.Context) error {
	for len(o.scheduled) > 0 && !o.scheduled[0].at.After(o.clock.Now()) {
		first := o.scheduled[0]
		o.scheduled = o.scheduled[1:]
		if err := first.do(ctx); err != nil {
			return err
		}
	}
	return o.dueHosts(ctx)
}

// react makes everybody answer what the controllers have done.
func (o *environment) react(ctx context.Context) error {
	for _, answers := range []func(context.Context) error{o.replacements, o.hosts, o.remediators} {
		if err := answers(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fail makes nodes silent.
func (o *environment) fail(failing []nodeKey) error {
	for _, p := range failing {
		node, err := o.node(p)
		if err != nil {
			return err
		}
		if node == nil {
			continue
		}
		o.faults[p] = true
		if err := o.silence(p); err != nil {
			return err
		}
		o.eventLog.assumed(p.ref(), "NodeFails", "The node turns Ready=Unknown")
	}
	return nil
}

// recover brings back what --fail has made silent, but for nodes that are gone, and those whose host is off: these come back when it boots.
func (o *environment) recover(ctx context.Context, failed []nodeKey) error {
	for _, p := range failed {
		if !o.faults[p] {
			continue
		}
		delete(o.faults, p)
		if err := o.comesBack(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (o *environment) comesBack(ctx context.Context, p nodeKey) error {
	off, err := o.off(ctx, p)
	if off || err != nil {
		return err
	}
	if node, err := o.node(p); node == nil || err != nil {
		return err
	}
	if err := o.ready(p, ""); err != nil {
		return err
	}
	o.eventLog.assumed(p.ref(), "NodeRecovers", "The node is Ready again by itself")
	return nil
}

// at is the cluster of a node.
func (o *environment) at(p nodeKey) *state.State {
	if p.cluster == (client.ObjectKey{}) {
		return o.state
	}
	return o.state.Of(p.cluster)
}

// node is the node at a nodeKey, shared; nil if there is none.
func (o *environment) node(p nodeKey) (*corev1.Node, error) {
	if p.cluster != (client.ObjectKey{}) {
		return o.snapshot.Node(p.cluster, p.name), nil
	}
	node, err := o.state.Node(p.name)
	if err != nil {
		return nil, fmt.Errorf("read node %s of the management cluster: %w", p.name, err)
	}
	return node, nil
}

// copies are all keys at which the node at p is seen: a cluster that manages itself has its nodes twice here.
func (o *environment) copies(p nodeKey) ([]nodeKey, error) {
	node, err := o.node(p)
	if node == nil || err != nil {
		return nil, err
	}
	others := []nodeKey{{name: p.name}}
	for _, cluster := range o.snapshot.Workloads() {
		others = append(others, nodeKey{cluster, p.name})
	}
	all := []nodeKey{p}
	for _, other := range others {
		if other == p {
			continue
		}
		is, err := o.node(other)
		if err != nil && !unreadable(err) { // where the nodes of the management cluster were not read, it has no twin there
			return nil, err
		}
		if is != nil && is.UID == node.UID {
			all = append(all, other)
		}
	}
	return all, nil
}

// silence makes a node Ready=Unknown.
func (o *environment) silence(p nodeKey) error {
	return o.edit(p, func(node *corev1.Node) {
		o.turn(node, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
	})
}

// ready makes a node Ready, under another boot if that is not empty.
func (o *environment) ready(p nodeKey, boot string) error {
	return o.edit(p, func(node *corev1.Node) {
		o.turn(node, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
		if boot != "" {
			node.Status.NodeInfo.BootID = boot
		}
	})
}

// turn gives a node the condition Ready.
func (o *environment) turn(node *corev1.Node, to corev1.ConditionStatus, reason, message string) {
	is := corev1.NodeCondition{Type: corev1.NodeReady, Status: to, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(o.clock.Now())}
	for i := range node.Status.Conditions {
		if was := &node.Status.Conditions[i]; was.Type == corev1.NodeReady {
			if was.Status == to {
				is.LastTransitionTime = was.LastTransitionTime
			}
			*was = is
			return
		}
	}
	node.Status.Conditions = append(node.Status.Conditions, is)
}

// edit changes the status of a node wherever it is seen. A node that was deleted registers again.
func (o *environment) edit(p nodeKey, change func(*corev1.Node)) error {
	keys, err := o.copies(p)
	if err != nil {
		return err
	}
	if was := o.was[p]; len(keys) == 0 && was != nil && p.cluster != (client.ObjectKey{}) {
		again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: was.Name, Labels: was.Labels}, Status: *was.Status.DeepCopy()}
		again.CreationTimestamp = metav1.NewTime(o.clock.Now())
		change(again)
		return o.at(p).Put(again)
	}
	for _, at := range keys {
		node, err := o.node(at)
		if err != nil {
			return err
		}
		own := node.DeepCopy()
		o.was[at] = node
		change(own)
		if err := o.at(at).Put(own); err != nil {
			return fmt.Errorf("change node %s: %w", at.name, err)
		}
	}
	return nil
}

// nodeKeyOf is the node of a machine; false if it has none.
func nodeKeyOf(m *clusterv1.Machine) (nodeKey, bool) {
	name := m.Status.NodeRef.Name
	return nodeKey{client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}, name}, name != ""
}

// brief is a duration as people write it: 10m, not 10m0s.
func brief(d time.Duration) string {
	s := d.String()
	if d == time.Minute {
		return "1m"
	}
	for _, zero := range []struct{ long, short string }{{"h0m0s", "h"}, {"m0s", "m"}} {
		if n := len(s) - len(zero.long); n > 0 && s[n:] == zero.long {
			return s[:n] + zero.short
		}
	}
	return s
}
