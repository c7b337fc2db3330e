package hostremediation

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinestatus"
)

// judged reports whether any health check, kubemend's or Cluster API core's, goes on judging m. What the last one said of a machine that
// nobody judges any more, because the check was paused or deleted in the middle, nobody will ever take back.
//
// A NodeHealthCheck judges nodes, and says nothing of machines: see unhealthyFor.
func judged(ctx context.Context, checks client.Reader, m *clusterv1.Machine) (bool, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := checks.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the MachineHealthChecks in %s: %w", m.Namespace, err)
	}
	return slices.ContainsFunc(list.Items, func(check clusterv1.MachineHealthCheck) bool { return machinestatus.Judges(&check, m) }), nil
}

// markedUnhealthy reports whether a health check calls m bad. What we said of it ourselves, to hand it over, is no check's word.
func markedUnhealthy(m *clusterv1.Machine) bool {
	return said(m, clusterv1.MachineHealthCheckSucceededCondition) == metav1.ConditionFalse && !markedUnhealthyByUs(m)
}

// markedUnhealthyByUs reports whether it was us who called m bad, to hand it over.
func markedUnhealthyByUs(m *clusterv1.Machine) bool {
	c := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition)
	return c != nil && c.Reason == mendv1.PowerCycleFailedReason
}

// unhealthyFor is what the NodeHealthCheck that asked for the remediation of w finds wrong with the node, however short it has been so; empty if
// that is nothing, or nobody knows. A node may be Ready and be remediated for another condition: that it is Ready again says nothing then.
func (r *Reconciler) unhealthyFor(ctx context.Context, w *observed) string {
	if w.node == nil {
		return ""
	}
	for _, owner := range w.rem.GetOwnerReferences() {
		if gv, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || gv.Group != nhcv1.GroupVersion.Group || owner.Kind != "NodeHealthCheck" {
			continue
		}
		check := &nhcv1.NodeHealthCheck{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: owner.Name}, check); err != nil || check.UID != owner.UID {
			continue // the node being ready has to do
		}
		for _, c := range check.Spec.UnhealthyConditions {
			if statusOf(w.node, c.Type) == c.Status {
				return fmt.Sprintf("NodeHealthCheck %s calls a node unhealthy that has %s=%s", check.Name, c.Type, c.Status)
			}
		}
	}
	return ""
}

// statusOf is the status of a condition of node; empty if the node does not have it.
func statusOf(node *corev1.Node, of corev1.NodeConditionType) corev1.ConditionStatus {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == of {
			return node.Status.Conditions[i].Status
		}
	}
	return ""
}
