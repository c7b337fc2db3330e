package remediationrecord

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/workload"
)

// observeChecked reads what the MachineHealthCheck that asked for the remediation finds of the Machine. HealthCheckSucceeded says that
// where no other check selects the Machine; else any of them makes it False. That the Machine is healthy says nothing of what a
// NodeHealthCheck or a user has found: another check may not judge that, or not yet.
func (o *observed) observeChecked(finds func(check types.NamespacedName, machine types.UID) (healthy, known bool)) {
	t, check := &o.facts.Target, o.record.Spec.Requester.Check
	asked := check != nil && check.Kind == machineCheckKind
	cond := conditions.Get(o.machine, clusterv1.MachineHealthCheckSucceededCondition)
	if cond != nil && (cond.Status == No || asked && cond.Status == Yes) {
		t.Checked, t.CheckedSince = cond.Status, cond.LastTransitionTime.Time
	}
	if t.Checked != No || !asked {
		return
	}
	if healthy, known := finds(types.NamespacedName{Namespace: check.Namespace, Name: check.Name}, o.machine.UID); known && healthy {
		t.Checked, t.CheckedSince = Yes, time.Time{}
	}
}

// observeHealth reads whether what the target was unhealthy by still holds. A check's own word is enough where there is one.
func (r *Reconciler) observeHealth(ctx context.Context, o *observed) error {
	t := &o.facts.Target
	if !t.Exists || t.Machine && t.Checked != Unknown {
		return nil
	}
	node, known, err := r.nodeOf(ctx, o)
	if err != nil || !known {
		return err
	}
	t.NodeHealthy = No
	ready := conditionOf(node, string(corev1.NodeReady))
	if ready != nil && ready.Status == corev1.ConditionTrue && !o.holds(node) {
		t.NodeHealthy, t.NodeReadySince = Yes, ready.LastTransitionTime.Time
	}
	return nil
}

// nodeOf reads the node of the target: from the cache of its cluster or, if it belongs to none, from this one. It is nil if there is none.
func (r *Reconciler) nodeOf(ctx context.Context, o *observed) (node *corev1.Node, known bool, err error) {
	target := &o.record.Spec.Target
	if o.node == nil && target.ClusterName == "" && target.Node != nil { // of a Machine of this cluster
		node := &corev1.Node{}
		err := o.from.Get(ctx, client.ObjectKey{Name: target.Node.Name}, node)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil, apierrors.IsNotFound(err), nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("read Node %s: %w", target.Node.Name, err)
		}
		o.node = node
	}
	if o.node != nil || o.machine == nil || o.cluster == nil {
		return o.node, o.node != nil, nil
	}
	key := client.ObjectKeyFromObject(o.cluster)
	view, err := r.Clusters.View(ctx, key, o.now, r.nodeWatch(key))
	if err != nil || view.Link != workload.Up {
		return nil, false, nil //nolint:nilerr // an unreachable cluster says nothing
	}
	if o.machine.Status.NodeRef.Name == "" {
		return nil, true, nil
	}
	node, other := view.NodeOf(o.machine)
	return node, other == nil, nil
}

// holds reports whether a condition that was evidence is still as it was. A Machine has conditions of the same types as its node, which
// count where the node has none. What else was found is that there was no node, or that the Machine has failed.
func (o *observed) holds(node *corev1.Node) bool {
	for _, evidence := range o.record.Spec.Evidence {
		var status string
		if cond := conditionOf(node, evidence.Type); cond != nil {
			status = string(cond.Status)
		} else if o.machine != nil {
			if cond := conditions.Get(o.machine, evidence.Type); cond != nil {
				status = string(cond.Status)
			}
		}
		if evidence.Status != "" && status == evidence.Status {
			return true
		}
	}
	return false
}

// conditionOf is the condition of a node of that type; nil if there is none.
func conditionOf(node *corev1.Node, kind string) *corev1.NodeCondition {
	if node == nil {
		return nil
	}
	for i := range node.Status.Conditions {
		if cond := &node.Status.Conditions[i]; string(cond.Type) == kind {
			return cond
		}
	}
	return nil
}
