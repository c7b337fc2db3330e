package simulate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/explain"
)

// asked reports whether the owner of a machine was asked to remediate it, and would act on that. (Cluster API: it has to be called bad as well.)
func asked(m *clusterv1.Machine) bool { return collections.IsUnhealthyAndOwnerRemediated(m) }

// owners makes those that are asked replace their machines.
func (o *outside) owners(ctx context.Context) error {
	list := &clusterv1.MachineList{}
	if err := o.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return fmt.Errorf("list machines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		owner := metav1.GetControllerOf(m)
		if owner == nil || !asked(m) || !m.DeletionTimestamp.IsZero() {
			continue // nobody replaces what nobody owns
		}
		_, controlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
		if controlPlane && o.replacing[owner.UID] {
			continue
		}
		if err := o.replace(ctx, m.DeepCopy(), owner, controlPlane); err != nil {
			return err
		}
	}
	return nil
}

// replace deletes a machine and makes another one: at once, or, of a control plane, when the machine is gone.
func (o *outside) replace(ctx context.Context, m *clusterv1.Machine, owner *metav1.OwnerReference, controlPlane bool) error {
	name, err := o.successor(ctx, m)
	if err != nil {
		return err
	}
	fresh := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: name, Labels: m.Labels, OwnerReferences: m.OwnerReferences,
	}}
	fresh.Spec = *m.Spec.DeepCopy()
	fresh.Spec.ProviderID, fresh.Spec.InfrastructureRef.Name = "", fresh.Name
	if len(m.Finalizers) == 0 { // a real one has some, and is not gone at once
		m.Finalizers = []string{clusterv1.MachineFinalizer}
		if err := o.client.Update(ctx, m); err != nil {
			return fmt.Errorf("hold machine %s: %w", m.Name, err)
		}
	}
	if err := client.IgnoreNotFound(o.client.Delete(ctx, m)); err != nil {
		return fmt.Errorf("delete machine %s: %w", m.Name, err)
	}
	o.eventLog.assumed(explain.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, "MachineReplaced",
		"%s %s deletes the machine, to put %s in its place", owner.Kind, owner.Name, fresh.Name)
	key, by := client.ObjectKeyFromObject(m), owner.UID
	o.replacing[by] = controlPlane
	if !controlPlane {
		if err := o.make(ctx, fresh, by); err != nil {
			return err
		}
	}
	o.in(o.DeletionTakes, func(ctx context.Context) error {
		if err := o.end(ctx, key); err != nil || !controlPlane {
			return err
		}
		return o.make(ctx, fresh, by)
	})
	return nil
}

// make makes a new machine, whose node registers later.
func (o *outside) make(ctx context.Context, fresh *clusterv1.Machine, by types.UID) error {
	if err := o.client.Create(ctx, fresh); err != nil {
		return fmt.Errorf("create machine %s: %w", fresh.Name, err)
	}
	key := client.ObjectKeyFromObject(fresh)
	// API servers count seconds, and so does the time that a node may take: what it takes exactly is not too long.
	begun := o.clock.Now().Sub(o.clock.Now().Truncate(time.Second))
	o.in(o.ReplacementTakes-begun, func(ctx context.Context) error {
		delete(o.replacing, by)
		return o.join(ctx, key)
	})
	return nil
}

// end takes a machine that is being deleted out of the world, with all that belongs to it.
func (o *outside) end(ctx context.Context, key client.ObjectKey) error {
	m := &clusterv1.Machine{}
	if err := o.client.Get(ctx, key, m); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := o.freeHost(ctx, m); err != nil {
		return err
	}
	m.Finalizers = nil
	if err := o.client.Update(ctx, m); err != nil {
		return fmt.Errorf("let go of machine %s: %w", key, err)
	}
	if p, has := placeOf(m); has {
		return o.deleteNode(ctx, p)
	}
	return nil
}

// successor is the name of the machine that takes the place of m: its own with a number, as no owner would choose it.
func (o *outside) successor(ctx context.Context, m *clusterv1.Machine) (string, error) {
	base, n := m.Name, 0
	if at := strings.LastIndex(base, "-r"); at > 0 {
		if number, err := strconv.Atoi(base[at+2:]); err == nil {
			base, n = base[:at], number
		}
	}
	for {
		n++
		name := fmt.Sprintf("%s-r%d", base, n)
		switch err := o.client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, &clusterv1.Machine{}); {
		case apierrors.IsNotFound(err):
			return name, nil
		case err != nil:
			return "", fmt.Errorf("find a name for who takes the place of machine %s: %w", m.Name, err)
		}
	}
}

func (o *outside) deleteNode(ctx context.Context, p place) error {
	places, err := o.twins(ctx, p)
	if err != nil {
		return err
	}
	for _, at := range places {
		if o.was[at], err = o.node(ctx, at); err != nil {
			return err
		}
		if at.cluster != (client.ObjectKey{}) {
			o.world.DeleteNode(at.cluster, at.name)
			continue
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: at.name}}
		if err := client.IgnoreNotFound(o.client.Delete(ctx, node)); err != nil {
			return fmt.Errorf("delete node %s of the management cluster: %w", at.name, err)
		}
	}
	o.was[p] = nil // one of its name would be another one
	delete(o.faults, p)
	return nil
}

// join makes the node of a new machine register.
func (o *outside) join(ctx context.Context, key client.ObjectKey) error {
	m := &clusterv1.Machine{}
	err := o.client.Get(ctx, key, m)
	switch {
	case apierrors.IsNotFound(err), err == nil && !m.DeletionTimestamp.IsZero():
		return nil // it has been replaced before it was ready
	case err != nil:
		return fmt.Errorf("read machine %s: %w", key, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}
	o.turn(node, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	cluster := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}
	o.world.PutNode(cluster, node)
	m.Status.NodeRef.Name = m.Name
	conditions.Set(m, metav1.Condition{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineInfrastructureReadyReason,
		LastTransitionTime: metav1.NewTime(o.clock.Now()),
	})
	if err := o.client.Status().Update(ctx, m); err != nil {
		return fmt.Errorf("give machine %s its node: %w", key, err)
	}
	o.eventLog.assumed(explain.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, "MachineReady", "The node of the new machine is Ready")
	return nil
}

// freeHost gives up the host of a machine that is deleted, for whoever chooses it next.
func (o *outside) freeHost(ctx context.Context, m *clusterv1.Machine) error {
	h, err := o.hostOf(ctx, m)
	if err != nil || h == nil {
		return err
	}
	h = h.DeepCopy()
	h.Spec.ConsumerRef = nil
	if err := o.client.Update(ctx, h); err != nil {
		return fmt.Errorf("free host %s: %w", h.Name, err)
	}
	h.Status.Provisioning.State, h.Status.PoweredOn = bmov1alpha1.StateAvailable, false
	if err := o.client.Status().Update(ctx, h); err != nil {
		return fmt.Errorf("free host %s: %w", h.Name, err)
	}
	return nil
}
