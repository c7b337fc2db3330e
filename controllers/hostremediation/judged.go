package hostremediation

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machines"
)

// judged reports whether any health check, kubemend's or Cluster API core's, goes on judging m. What the last one said of a machine that
// nobody judges any more, because the check was paused or deleted in the middle, nobody will ever take back.
//
// A NodeHealthCheck judges nodes, and says nothing of machines. So for what it asks for, the node itself decides.
func judged(ctx context.Context, checks client.Reader, m *clusterv1.Machine) (bool, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := checks.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the MachineHealthChecks in %s: %w", m.Namespace, err)
	}
	return slices.ContainsFunc(list.Items, func(check clusterv1.MachineHealthCheck) bool { return machines.Judges(&check, m) }), nil
}

// calledBad reports whether a health check calls m bad. What we said of it ourselves, to hand it over, is no check's word.
func calledBad(m *clusterv1.Machine) bool {
	return said(m, clusterv1.MachineHealthCheckSucceededCondition) == metav1.ConditionFalse && !calledBadByUs(m)
}

// calledBadByUs reports whether it was us who called m bad, to hand it over.
func calledBadByUs(m *clusterv1.Machine) bool {
	c := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition)
	return c != nil && c.Reason == mendv1.PowerCycleFailedReason
}
