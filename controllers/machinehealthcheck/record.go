package machinehealthcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/enqueue"
)

// record brings the stored check up to date: label, owner and status. It writes only what differs.
func (r *Reconciler) record(ctx context.Context, w *observed, next *clusterv1.MachineHealthCheck) error {
	if err := r.recordOwner(ctx, w); err != nil {
		return err
	}
	return r.recordStatus(ctx, w, next)
}

func (r *Reconciler) recordStatus(ctx context.Context, w *observed, next *clusterv1.MachineHealthCheck) error {
	if sameStatus(w.check.Status, next.Status) {
		return nil
	}
	was, is := *w.check, *next
	if slices.Equal(was.Status.Targets, is.Status.Targets) { // thousands of names, which need not be encoded to be compared
		was.Status.Targets, is.Status.Targets = nil, nil
	}
	patch, err := client.MergeFromWithOptions(&was, client.MergeFromWithOptimisticLock{}).Data(&is)
	if err != nil {
		return fmt.Errorf("encode the status of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(w.check), err)
	}
	saved := &metav1.PartialObjectMetadata{}
	saved.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck"))
	saved.Name, saved.Namespace = w.check.Name, w.check.Namespace
	if err := r.Client.Status().Patch(ctx, saved, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the status of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(w.check), err)
	}
	return nil
}

// statusEvery is how long the numbers in the status of a check with so many targets stand at least: the status names each of them, so what it costs to write
// and to watch grows with them. (docs/adr/0052-the-numbers-of-a-large-check-wait.md)
func statusEvery(targets int) time.Duration {
	if d := time.Duration(targets) * 200 * time.Microsecond; d >= enqueue.MergeWindow {
		return d
	}
	return 0
}

// putOff is when the status is written, if the last time was a moment ago and nothing but numbers differs; zero if it is written now.
func putOff(w *observed, next *clusterv1.MachineHealthCheck) time.Time {
	due := w.statusAt.Add(statusEvery(len(w.targets)))
	if w.statusAt.IsZero() || !w.now.Before(due) || sameStatus(w.check.Status, next.Status) {
		return time.Time{}
	}
	if !equality.Semantic.DeepEqual(turns(&w.check.Status), turns(&next.Status)) {
		return time.Time{}
	}
	return due
}

// turns is s without numbers, names and messages: what events are about, and what other controllers act on. A condition of the older flavour that has
// another message has another time too.
func turns(s *clusterv1.MachineHealthCheckStatus) clusterv1.MachineHealthCheckStatus {
	is := *s
	is.ExpectedMachines, is.CurrentHealthy, is.RemediationsAllowed, is.Targets, is.Deprecated = nil, nil, nil, nil, nil
	is.Conditions = slices.Clone(s.Conditions)
	for i := range is.Conditions {
		is.Conditions[i].Message = ""
	}
	if s.Deprecated != nil && s.Deprecated.V1Beta1 != nil {
		older := slices.Clone(s.Deprecated.V1Beta1.Conditions)
		for i := range older {
			older[i].Message, older[i].LastTransitionTime = "", metav1.Time{}
		}
		is.Deprecated = &clusterv1.MachineHealthCheckDeprecatedStatus{V1Beta1: &clusterv1.MachineHealthCheckV1Beta1DeprecatedStatus{Conditions: older}}
	}
	return is
}

// sameStatus compares the targets apart: there may be thousands of them, and reflection allocates for each.
func sameStatus(a, b clusterv1.MachineHealthCheckStatus) bool {
	same := slices.Equal(a.Targets, b.Targets)
	a.Targets, b.Targets = nil, nil
	return same && equality.Semantic.DeepEqual(a, b)
}

// recordOwner makes the check belong to its Cluster, by label and owner reference, as Cluster API does. It
// is what makes `clusterctl move` and the deletion of the cluster take the check along.
func (r *Reconciler) recordOwner(ctx context.Context, w *observed) error {
	owner := metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: w.cluster.Name, UID: w.cluster.UID,
	}
	owners := slices.DeleteFunc(slices.Clone(w.check.OwnerReferences), func(o metav1.OwnerReference) bool {
		return o.Kind == owner.Kind && strings.HasPrefix(o.APIVersion, clusterv1.GroupVersion.Group+"/") && o.Name == owner.Name
	})
	owners = append(owners, owner)
	if w.check.Labels[clusterv1.ClusterNameLabel] == w.check.Spec.ClusterName && slices.Contains(w.check.OwnerReferences, owner) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": w.check.ResourceVersion,
		"labels":          map[string]string{clusterv1.ClusterNameLabel: w.check.Spec.ClusterName},
		"ownerReferences": owners,
	}})
	if err != nil {
		return fmt.Errorf("encode the owner of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(w.check), err)
	}
	saved := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: w.check.Name, Namespace: w.check.Namespace}}
	if err := r.Client.Patch(ctx, saved, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the owner of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(w.check), err)
	}
	// The status is written next, on top of this.
	w.check = w.check.DeepCopy()
	w.check.ResourceVersion = saved.ResourceVersion
	return nil
}
