package remediationrecord

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

	"github.com/kubemend/kubemend/controllers/workload"
)

// truths are what a status says; that of Unknown is Unknown.
var truths = map[metav1.ConditionStatus]Truth{metav1.ConditionTrue: Yes, metav1.ConditionFalse: No}

// observeChecked reads what the MachineHealthCheck that asked for the remediation finds of the Machine. HealthCheckSucceeded says that where no other check
// selects the Machine; else any of them makes it False. That the Machine is healthy says nothing of what a NodeHealthCheck or a user has found: another check
// may not judge that, or not yet.
func (o *observed) observeChecked(finds func(check types.NamespacedName, machine types.UID) (healthy, known bool)) {
	t, check := &o.facts.Target, o.record.Spec.Requester.Check
	asked := check != nil && check.Kind == machineCheckKind
	if cond := conditions.Get(o.machine, clusterv1.MachineHealthCheckSucceededCondition); cond != nil && (asked || cond.Status != metav1.ConditionTrue) {
		t.Checked, t.CheckedSince = truths[cond.Status], cond.LastTransitionTime.Time
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
	node, known, err := r.node(ctx, o)
	if err != nil || !known {
		return err
	}
	t.NodeReady = No
	if node != nil {
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				t.NodeReady, t.NodeReadySince = Yes, c.LastTransitionTime.Time
			}
		}
	}
	t.Evidence = No
	if o.holds(node) {
		t.Evidence = Yes
	}
	return nil
}

// node reads the node of the target: from the cache of its cluster or, if it belongs to none, from this one. It is nil if there is none.
func (r *Reconciler) node(ctx context.Context, o *observed) (node *corev1.Node, known bool, err error) {
	target := &o.record.Spec.Target
	if target.ClusterName == "" && target.Node != nil { // also if it has a Machine, of this cluster
		node = &corev1.Node{}
		err = r.from(o).Get(ctx, client.ObjectKey{Name: target.Node.Name}, node)
		switch {
		case apierrors.IsForbidden(err):
			return nil, false, nil
		case apierrors.IsNotFound(err):
			return nil, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("read Node %s: %w", target.Node.Name, err)
		}
		return node, true, nil
	}
	if o.machine == nil || o.cluster == nil {
		return nil, false, nil
	}
	view, err := r.Clusters.View(ctx, client.ObjectKeyFromObject(o.cluster), o.now)
	if err != nil || view.Link != workload.Up {
		return nil, false, nil //nolint:nilerr // an unreachable cluster says nothing
	}
	if o.machine.Status.NodeRef.Name != "" {
		node, other := view.NodeOf(o.machine)
		return node, other == nil, nil
	}
	return nil, true, nil
}

// holds reports whether a condition that was evidence is still as it was. A Machine has conditions of the same types as its node, which count where the node
// has none.
func (o *observed) holds(node *corev1.Node) bool {
	for _, e := range o.record.Spec.Evidence {
		if e.Status == "" {
			continue // what else was found is that there was no node, or that the Machine has failed
		}
		if status, has := ofNode(node, e.Type); has {
			if status == e.Status {
				return true
			}
			continue
		}
		if o.machine == nil {
			continue
		}
		if c := conditions.Get(o.machine, e.Type); c != nil && string(c.Status) == e.Status {
			return true
		}
	}
	return false
}

func ofNode(node *corev1.Node, kind string) (status string, has bool) {
	if node == nil {
		return "", false
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; string(c.Type) == kind {
			return string(c.Status), true
		}
	}
	return "", false
}
