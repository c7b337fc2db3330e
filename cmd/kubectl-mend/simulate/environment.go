package simulate

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/state"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/partners/owners"
)

// Environment is what is assumed of everybody but kubemend.
type Environment struct {
	// Fail says which nodes fail: those of machines that a label selector selects, and nodes of the management cluster that it
	// selects; or machine/NAME and node/NAME, separated by commas. Nothing fails if it is empty.
	Fail string
	// FailCondition is what they turn when they fail.
	FailCondition NodeCondition
	// FailAt is when they do, and For for how long. If For is zero they do not recover by themselves.
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

	// err is the first change that failed, which ends the simulation.
	err       error
	scheduled []happening

	// faults are the nodes that have failed and did not recover. before is how nodes were before they were changed, for those that are deleted.
	faults map[nodeKey]bool
	before map[nodeKey]*corev1.Node
	owners owners.Owners
	// metal are the hosts of which a change of power was ever requested.
	metal map[client.ObjectKey]*bareMetal
	// unplaced are the machines that wait for a host, where it matters which hosts are free.
	unplaced []unplaced
	// resumes is when remediators continue with requests, so that none does twice at one moment.
	resumes map[types.UID]time.Time
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
	at time.Time
	do func(context.Context)
}

func newEnvironment(s *engine) (*environment, error) {
	o := &environment{
		Environment: s.question.Environment, engine: s, faults: map[nodeKey]bool{}, before: map[nodeKey]*corev1.Node{},
		metal: map[client.ObjectKey]*bareMetal{}, resumes: map[types.UID]time.Time{}, kinds: s.requestKinds(),
	}
	if o.Fail == "" {
		return o, nil
	}
	failing, err := s.failing(o.Fail)
	if err != nil {
		return nil, err
	}
	o.in(o.FailAt, func(context.Context) { o.fail(failing) })
	if o.For > 0 {
		o.in(o.FailAt+o.For, func(ctx context.Context) { o.recover(ctx, failing) })
	}
	return o, nil
}

// note keeps the first error.
func (o *environment) note(err error) {
	if o.err == nil {
		o.err = err
	}
}

// put changes an object of the management cluster.
func (o *environment) put(obj client.Object) { o.note(o.state.Put(obj)) }

// in has something happen in a while.
func (o *environment) in(after time.Duration, do func(context.Context)) {
	o.scheduled = append(o.scheduled, happening{o.clock.Now().Add(after), do})
	slices.SortStableFunc(o.scheduled, func(a, b happening) int { return a.at.Compare(b.at) })
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
func (o *environment) happen(ctx context.Context) {
	for len(o.scheduled) > 0 && !o.scheduled[0].at.After(o.clock.Now()) {
		first := o.scheduled[0]
		o.scheduled = o.scheduled[1:]
		first.do(ctx)
	}
	o.dueHosts(ctx)
}

// react makes everybody respond to what the controllers have done.
func (o *environment) react(ctx context.Context) {
	o.replacements(ctx)
	o.placed(ctx)
	o.hosts(ctx)
	o.remediators(ctx)
}

// fail makes nodes turn what FailCondition says.
func (o *environment) fail(failing []nodeKey) {
	for _, p := range failing {
		if o.node(p) != nil {
			o.faults[p] = true
			o.turn(p, o.FailCondition)
			o.eventLog.assumed(p.ref(), "NodeFails", "The node turns "+o.FailCondition.String())
		}
	}
}

// recover ends what --fail has begun, but for nodes that are gone, and those whose host is off: these recover when it boots.
func (o *environment) recover(ctx context.Context, failed []nodeKey) {
	for _, p := range failed {
		if !o.faults[p] {
			continue
		}
		delete(o.faults, p)
		if !o.off(ctx, p) && o.node(p) != nil {
			o.ready(p, "")
			o.eventLog.assumed(p.ref(), "NodeRecovers", "The node recovers by itself")
		}
	}
}

// at is the cluster of a node.
func (o *environment) at(p nodeKey) *state.State {
	if p.cluster == (client.ObjectKey{}) {
		return o.state
	}
	return o.state.Of(p.cluster)
}

// node is the node at a nodeKey, shared; nil if there is none.
func (o *environment) node(p nodeKey) *corev1.Node {
	if p.cluster != (client.ObjectKey{}) {
		return o.snapshot.Node(p.cluster, p.name)
	}
	return snapshot.One[corev1.Node](o.snapshot, client.ObjectKey{Name: p.name})
}

// copies are all keys of the node at p: a cluster that manages itself has its nodes twice here.
func (o *environment) copies(p nodeKey) []nodeKey {
	node := o.node(p)
	if node == nil {
		return nil
	}
	all := []nodeKey{p}
	for _, cluster := range append(o.snapshot.Workloads(), client.ObjectKey{}) {
		other := nodeKey{cluster, p.name}
		if is := o.node(other); other != p && is != nil && is.UID == node.UID {
			all = append(all, other)
		}
	}
	return all
}

// turn gives a node a condition.
func (o *environment) turn(p nodeKey, to NodeCondition) {
	o.edit(p, func(node *corev1.Node) { setCondition(node, to, o.clock.Now()) })
}

// ready makes a node Ready and ends how it has failed, under another boot if that is not empty.
func (o *environment) ready(p nodeKey, boot string) {
	o.edit(p, func(node *corev1.Node) {
		now, is := o.clock.Now(), o.FailCondition
		setCondition(node, NodeSilent.over(), now)
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == is.Name && c.Status == is.Status }) {
			setCondition(node, is.over(), now)
		}
		if boot != "" {
			node.Status.NodeInfo.BootID = boot
		}
	})
}

// edit changes the status of a node in all its copies. A node that was deleted registers again.
func (o *environment) edit(p nodeKey, change func(*corev1.Node)) {
	keys := o.copies(p)
	if was := o.before[p]; len(keys) == 0 && was != nil && p.cluster != (client.ObjectKey{}) {
		again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: was.Name, Labels: was.Labels}, Status: *was.Status.DeepCopy()}
		again.CreationTimestamp = metav1.NewTime(o.clock.Now())
		change(again)
		o.note(o.at(p).Put(again))
	}
	for _, at := range keys {
		node := o.node(at)
		own := node.DeepCopy()
		o.before[at] = node
		change(own)
		o.note(o.at(at).Put(own))
	}
}

// nodeKeyOf is the node of a machine; false if it has none.
func nodeKeyOf(m *clusterv1.Machine) (nodeKey, bool) {
	name := m.Status.NodeRef.Name
	return nodeKey{client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}, name}, name != ""
}

// refOf is how the answer names an object of a kind.
func refOf(kind string, obj client.Object) explain.Ref {
	return explain.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
