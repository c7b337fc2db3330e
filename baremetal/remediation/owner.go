package remediation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
)

// RequestOwner asks the owner of m to remediate it, in both flavours of the condition: MachineSets and KubeadmControlPlanes act on the
// v1beta2 flavour alone, older ones on the other. (CAPM3 writes only the old one, and nothing happens.)
//
// Owners act only on a machine that is marked unhealthy as well, and drop the request if it is marked healthy. Where a MachineHealthCheck
// judges m, it sets that mark. Where none does, because a NodeHealthCheck or a person has asked for the power cycle, RequestOwner sets it.
func RequestOwner(ctx context.Context, c client.Client, m *clusterv1.Machine, now time.Time) error {
	judged, err := Judged(ctx, c, m)
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
		Reason:  clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		Message: "Waiting for remediation: power-cycling the host did not help",
	})
	v1beta1conditions.Set(next, &clusterv1.Condition{
		Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse,
		Severity: clusterv1.ConditionSeverityWarning, Reason: clusterv1.WaitingForRemediationV1Beta1Reason,
	})
	return patch(ctx, c, next)
}

// WithdrawFromOwner takes the request back. What the owner has answered by then is the owner's; the mark of kubemend's is removed in any
// case.
func WithdrawFromOwner(ctx context.Context, c client.Client, m *clusterv1.Machine) error {
	next := m.DeepCopy()
	cond := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition)
	asked := cond != nil && cond.Status == metav1.ConditionFalse && cond.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason
	if asked {
		conditions.Delete(next, clusterv1.MachineOwnerRemediatedCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
	}
	marked := markedByKubemend(m)
	if marked {
		conditions.Delete(next, clusterv1.MachineHealthCheckSucceededCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
	}
	if !asked && !marked {
		return nil
	}
	return patch(ctx, c, next)
}

// patch writes the conditions of m. A machine that is gone meanwhile needs none.
func patch(ctx context.Context, c client.Client, m *clusterv1.Machine) error {
	if err := client.IgnoreNotFound(capi.PatchConditions(ctx, c, m)); err != nil {
		return fmt.Errorf("write the conditions of machine %s: %w", m.Name, err)
	}
	return nil
}

// Judged reports whether a MachineHealthCheck, kubemend's or Cluster API core's, judges m. If none does, because the check was paused or
// deleted meanwhile, its last verdict is never updated. A NodeHealthCheck judges nodes, and sets no condition of machines.
func Judged(ctx context.Context, checks client.Reader, m *clusterv1.Machine) (bool, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := checks.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the MachineHealthChecks in %s: %w", m.Namespace, err)
	}
	return slices.ContainsFunc(list.Items, func(check clusterv1.MachineHealthCheck) bool { return capi.Judges(&check, m) }), nil
}

// MarkedUnhealthy reports whether a health check has marked m unhealthy. The mark that RequestOwner sets is no verdict.
func MarkedUnhealthy(m *clusterv1.Machine) bool {
	return ConditionOf(m, clusterv1.MachineHealthCheckSucceededCondition) == metav1.ConditionFalse && !markedByKubemend(m)
}

// markedByKubemend reports whether RequestOwner has marked m unhealthy.
func markedByKubemend(m *clusterv1.Machine) bool {
	c := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition)
	return c != nil && c.Reason == mendv1.PowerCycleFailedReason
}

// ConditionOf is the status of a condition of m; empty if m does not have it.
func ConditionOf(m *clusterv1.Machine, kind string) metav1.ConditionStatus {
	for i := range m.Status.Conditions {
		if m.Status.Conditions[i].Type == kind {
			return m.Status.Conditions[i].Status
		}
	}
	return ""
}
