package simulate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/partners/owners"
)

// replacements makes the owners of machines replace those that they are asked to remediate.
func (o *environment) replacements(ctx context.Context) error {
	list := &clusterv1.MachineList{}
	if err := o.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return fmt.Errorf("list machines: %w", err)
	}
	for i := range list.Items {
		if how, begins := o.owners.Replace(&list.Items[i]); begins {
			if err := o.replace(ctx, list.Items[i].DeepCopy(), how); err != nil {
				return err
			}
		}
	}
	return nil
}

// replace deletes a machine and makes another one: at once, or when the machine is gone.
func (o *environment) replace(ctx context.Context, m *clusterv1.Machine, how owners.Replacement) error {
	name, err := o.successor(ctx, m)
	if err != nil {
		return err
	}
	key, next := client.ObjectKeyFromObject(m), owners.Successor(m, name)
	if len(m.Finalizers) == 0 { // a real one has some, and is not gone at once
		m.Finalizers = []string{clusterv1.MachineFinalizer}
		if err := o.state.Put(m); err != nil {
			return fmt.Errorf("finalize machine %s: %w", m.Name, err)
		}
	}
	if err := o.state.Delete(machineKind, key); err != nil {
		return fmt.Errorf("delete machine %s: %w", m.Name, err)
	}
	o.eventLog.assumed(explain.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, "MachineReplaced",
		"%s %s deletes the machine, to put %s in its place", how.Owner.Kind, how.Owner.Name, next.Name)
	if !how.WaitsForDeletion {
		if err := o.make(next, how.Owner.UID); err != nil {
			return err
		}
	}
	o.in(o.DeletionTakes, func(ctx context.Context) error {
		if err := o.end(ctx, key); err != nil || !how.WaitsForDeletion {
			return err
		}
		return o.make(next, how.Owner.UID)
	})
	return nil
}

var machineKind = clusterv1.GroupVersion.WithKind("Machine")

// make makes a new machine, whose node registers later.
func (o *environment) make(next *clusterv1.Machine, by types.UID) error {
	now := o.clock.Now()
	next.CreationTimestamp, next.Generation = metav1.NewTime(now.Truncate(time.Second)), 1
	if err := o.state.Put(next); err != nil {
		return fmt.Errorf("create machine %s: %w", next.Name, err)
	}
	key := client.ObjectKeyFromObject(next)
	// Timestamps count seconds, and so does the time that a node may take: what it takes exactly is not too long.
	begun := now.Sub(now.Truncate(time.Second))
	o.in(o.ReplacementTakes-begun, func(ctx context.Context) error {
		o.owners.Done(by)
		return o.join(ctx, key)
	})
	return nil
}

// end takes a machine that is being deleted out of the cluster, with its node and all that it owns.
func (o *environment) end(ctx context.Context, key client.ObjectKey) error {
	m := &clusterv1.Machine{}
	if err := o.client.Get(ctx, key, m); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := o.freeHost(ctx, m); err != nil {
		return err
	}
	m.Finalizers = nil
	if err := o.state.Put(m); err != nil {
		return fmt.Errorf("remove machine %s: %w", key, err)
	}
	if p, has := nodeKeyOf(m); has {
		return o.deleteNode(p)
	}
	return nil
}

// successor is the name of the machine that takes the place of m.
func (o *environment) successor(ctx context.Context, m *clusterv1.Machine) (string, error) {
	for name := owners.NextName(m.Name); ; name = owners.NextName(name) {
		switch err := o.client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, &clusterv1.Machine{}); {
		case apierrors.IsNotFound(err):
			return name, nil
		case err != nil:
			return "", fmt.Errorf("find a name for the successor of machine %s: %w", m.Name, err)
		}
	}
}

func (o *environment) deleteNode(p nodeKey) error {
	keys, err := o.copies(p)
	if err != nil {
		return err
	}
	for _, at := range keys {
		if o.was[at], err = o.node(at); err != nil {
			return err
		}
		if err := o.at(at).DeleteNode(at.name); err != nil {
			return fmt.Errorf("delete node %s: %w", at.name, err)
		}
	}
	o.was[p] = nil // one of its name would be another one
	delete(o.faults, p)
	return nil
}

// join makes the node of a new machine register.
func (o *environment) join(ctx context.Context, key client.ObjectKey) error {
	m := &clusterv1.Machine{}
	err := o.client.Get(ctx, key, m)
	switch {
	case apierrors.IsNotFound(err), err == nil && !m.DeletionTimestamp.IsZero():
		return nil // it has been replaced before it was ready
	case err != nil:
		return fmt.Errorf("read machine %s: %w", key, err)
	}
	now := metav1.NewTime(o.clock.Now())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name, CreationTimestamp: now}}
	o.turn(node, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	m.Status.NodeRef.Name = m.Name
	p, _ := nodeKeyOf(m)
	if err := o.at(p).Put(node); err != nil {
		return fmt.Errorf("register node %s: %w", node.Name, err)
	}
	conditions.Set(m, metav1.Condition{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineInfrastructureReadyReason,
		LastTransitionTime: now,
	})
	if err := o.state.Put(m); err != nil {
		return fmt.Errorf("give machine %s its node: %w", key, err)
	}
	o.eventLog.assumed(explain.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, "MachineReady", "The node of the new machine is Ready")
	return nil
}
