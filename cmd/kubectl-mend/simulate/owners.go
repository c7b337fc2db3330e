package simulate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/partners/owners"
)

var machineKind = clusterv1.GroupVersion.WithKind("Machine")

// replacements makes the owners of machines replace those that they are asked to remediate.
func (o *environment) replacements(ctx context.Context) {
	for _, m := range snapshot.All[clusterv1.Machine](o.snapshot, "") {
		if how, begins := o.owners.Replace(m); begins {
			o.replace(ctx, m.DeepCopy(), how)
		}
	}
}

// replace deletes a machine and makes another one: at once, or when the machine is gone.
func (o *environment) replace(ctx context.Context, m *clusterv1.Machine, how owners.Replacement) {
	key, next := client.ObjectKeyFromObject(m), owners.Successor(m, o.successor(m))
	onto := o.cloned(ctx, m, next)
	if len(m.Finalizers) == 0 { // a real one has some, and is not gone at once
		m.Finalizers = []string{clusterv1.MachineFinalizer}
		o.put(m)
	}
	o.note(o.state.Delete(machineKind, key))
	o.eventLog.assumed(refOf("Machine", m), "MachineReplaced",
		fmt.Sprintf("%s deletes the machine, to put %s in its place", explain.Ref{Kind: how.Owner.Kind, Name: how.Owner.Name}, next.Name))
	if !how.WaitsForDeletion {
		o.make(next, how.Owner.UID, onto)
	}
	o.in(o.DeletionTakes, func(ctx context.Context) {
		o.end(ctx, key)
		if how.WaitsForDeletion {
			o.make(next, how.Owner.UID, onto)
		}
	})
}

// make makes a new machine, whose node registers later. One that is put onto a host has to find one first.
func (o *environment) make(next *clusterv1.Machine, by types.UID, onto bool) {
	now := o.clock.Now()
	next.CreationTimestamp, next.Generation = metav1.NewTime(now.Truncate(time.Second)), 1
	o.put(next)
	key := client.ObjectKeyFromObject(next)
	starts := func() {
		// Timestamps count seconds, and so does the time that a node may take: what it takes exactly is not too long.
		now := o.clock.Now()
		o.in(o.ReplacementTakes-now.Sub(now.Truncate(time.Second)), func(context.Context) {
			o.owners.Done(by)
			o.join(key)
		})
	}
	if onto {
		o.unplaced = append(o.unplaced, unplaced{key, starts})
		return
	}
	starts()
}

// end removes a machine that is being deleted, with its node and all that it owns.
func (o *environment) end(ctx context.Context, key client.ObjectKey) {
	m := snapshot.One[clusterv1.Machine](o.snapshot, key).DeepCopy()
	if m == nil {
		return
	}
	o.freeHost(ctx, m)
	m.Finalizers = nil
	o.put(m)
	p, _ := nodeKeyOf(m)
	for _, at := range o.copies(p) {
		o.note(o.at(at).Delete(nodeKind, client.ObjectKey{Name: at.name}))
	}
	o.before[p] = nil // one of its name would be another one
	delete(o.faults, p)
}

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

// successor is the name of the machine that replaces m.
func (o *environment) successor(m *clusterv1.Machine) string {
	name := owners.NextName(m.Name)
	for snapshot.One[clusterv1.Machine](o.snapshot, client.ObjectKey{Namespace: m.Namespace, Name: name}) != nil {
		name = owners.NextName(name)
	}
	return name
}

// join makes the node of a new machine register, unless the machine has been replaced before it was ready.
func (o *environment) join(key client.ObjectKey) {
	m := snapshot.One[clusterv1.Machine](o.snapshot, key).DeepCopy()
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return
	}
	now := metav1.NewTime(o.clock.Now())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name, CreationTimestamp: now}}
	setCondition(node, NodeSilent.over(), now.Time)
	m.Status.NodeRef.Name = m.Name
	p, _ := nodeKeyOf(m)
	o.note(o.at(p).Put(node))
	conditions.Set(m, metav1.Condition{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineInfrastructureReadyReason,
		LastTransitionTime: now,
	})
	o.put(m)
	o.eventLog.assumed(refOf("Machine", m), "MachineReady", "The node of the new machine is Ready")
}
