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

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinestatus"
)

// requestOwner asks the owner of m to remediate it, in both flavours of the condition: MachineSets and KubeadmControlPlanes act on the
// v1beta2 flavour alone, older ones on the other. (CAPM3 writes only the old one, and nothing happens.)
//
// They act on no machine that is not called bad as well, and take back what is asked of them of one that is called good. Where a
// MachineHealthCheck judges m, that is its to say. Where none does, because a NodeHealthCheck or a person has asked for the power cycle,
// nobody else would say it.
func (r *Reconciler) requestOwner(ctx context.Context, m *clusterv1.Machine, now time.Time) error {
	judged, err := judged(ctx, r.Client, m)
	if err != nil {
		return err
	}
	next := m.DeepCopy()
	if !judged {
		conditions.Set(next, metav1.Condition{
			Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now),
			Reason: mendv1.PowerCycleFailedReason, Message: "Power-cycling the host did not help, and no MachineHealthCheck judges the machine",
		})
		v1beta1conditions.Set(next, &clusterv1.Condition{
			Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionFalse,
			Severity: clusterv1.ConditionSeverityWarning, Reason: mendv1.PowerCycleFailedReason,
		})
	}
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

// withdraw takes it back. What the owner has answered by then is left to it; that we called m bad is ours in any case.
func withdraw(ctx context.Context, to client.Client, m *clusterv1.Machine) error {
	next := m.DeepCopy()
	c := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition)
	asked := c != nil && c.Status == metav1.ConditionFalse && c.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason
	if asked {
		conditions.Delete(next, clusterv1.MachineOwnerRemediatedCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
	}
	called := markedUnhealthyByUs(m)
	if called {
		conditions.Delete(next, clusterv1.MachineHealthCheckSucceededCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
	}
	if !asked && !called {
		return nil
	}
	return patch(ctx, to, next)
}

// patch writes the conditions of m. A machine that is gone meanwhile needs none.
func patch(ctx context.Context, to client.Client, m *clusterv1.Machine) error {
	err := machinestatus.PatchConditions(ctx, to, m)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the conditions of machine %s: %w", m.Name, err)
	}
	return nil
}
