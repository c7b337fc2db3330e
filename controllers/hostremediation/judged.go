package hostremediation

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// judged reports whether any health check, kubemend's or Cluster API core's, goes on judging m. What the last one said of a machine that
// nobody judges any more, because the check was paused or deleted in the middle, nobody will ever take back.
func (r *Reconciler) judged(ctx context.Context, m *clusterv1.Machine) (bool, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the MachineHealthChecks in %s: %w", m.Namespace, err)
	}
	return slices.ContainsFunc(list.Items, func(check clusterv1.MachineHealthCheck) bool { return judges(&check, m) }), nil
}

func judges(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	by, paused := check.Annotations[clusterv1.PausedAnnotation]
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	return err == nil && check.DeletionTimestamp.IsZero() && (!paused || by == mendv1.Claim) &&
		check.Spec.ClusterName == m.Spec.ClusterName && selector.Matches(labels.Set(m.Labels))
}
