package hostremediation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/machines"
)

// handOver asks the owner of m to remediate it, in both flavours of the condition: MachineSets and KubeadmControlPlanes act on the
// v1beta2 flavour alone, older ones on the other. (CAPM3 writes only the old one, and nothing happens.)
func (r *Reconciler) handOver(ctx context.Context, m *clusterv1.Machine, now time.Time) error {
	next := m.DeepCopy()
	conditions.Set(next, metav1.Condition{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now),
		Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, Message: "Waiting for remediation: power-cycling the host did not help",
	})
	v1beta1conditions.Set(next, &clusterv1.Condition{
		Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse,
		Severity: clusterv1.ConditionSeverityWarning, Reason: clusterv1.WaitingForRemediationV1Beta1Reason,
	})
	return patch(ctx, r.Client, next)
}

// withdraw takes it back, unless the owner has taken it up.
func withdraw(ctx context.Context, to client.Client, m *clusterv1.Machine) error {
	c := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != clusterv1.MachineOwnerRemediatedWaitingForRemediationReason {
		return nil
	}
	next := m.DeepCopy()
	conditions.Delete(next, clusterv1.MachineOwnerRemediatedCondition)
	v1beta1conditions.Delete(next, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
	return patch(ctx, to, next)
}

// patch writes the conditions of m. A machine that is gone meanwhile needs none.
func patch(ctx context.Context, to client.Client, m *clusterv1.Machine) error {
	err := machines.PatchConditions(ctx, to, m)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the conditions of machine %s: %w", m.Name, err)
	}
	return nil
}
