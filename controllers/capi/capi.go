// Package capi has conventions of Cluster API that several controllers share: which manager reconciles an object, which check judges a
// Machine, and how the conditions of a Machine are written.
package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Judges reports whether check selects m and a controller acts on check: kubemend if check is claimed, Cluster API core if it is not
// paused. An empty selector selects nothing, as in Cluster API.
func Judges(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	by, paused := check.Annotations[clusterv1.PausedAnnotation]
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	return err == nil && !selector.Empty() && check.DeletionTimestamp.IsZero() && (!paused || by == mendv1.Claim) &&
		check.Spec.ClusterName == m.Spec.ClusterName && selector.Matches(labels.Set(m.Labels))
}

// Covers reports whether a manager with this value of --watch-filter reconciles obj. An empty value covers all objects. The label
// cluster.x-k8s.io/watch-filter of obj decides; without it, the label of its Cluster. So only one manager reconciles obj if the two labels
// differ. The cluster is nil if there is none, or if its label does not count.
func Covers(value string, obj client.Object, cluster *clusterv1.Cluster) bool {
	filter, labelled := obj.GetLabels()[clusterv1.WatchLabel]
	if !labelled && cluster != nil {
		filter = cluster.GetLabels()[clusterv1.WatchLabel]
	}
	return value == "" || filter == value
}

// PatchConditions writes status.conditions and status.deprecated.v1beta1.conditions of m. If m has changed since it was read, it returns a
// conflict: other controllers write to both lists too, and a merge patch would undo their changes. Afterwards m has the resourceVersion and
// the managed fields of the saved object.
func PatchConditions(ctx context.Context, c client.Client, m *clusterv1.Machine) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": m.ResourceVersion, "uid": m.UID},
		"status": map[string]any{
			"conditions": m.Status.Conditions,
			"deprecated": map[string]any{"v1beta1": map[string]any{"conditions": m.GetV1Beta1Conditions()}},
		},
	})
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	target.Name, target.Namespace = m.Name, m.Namespace
	if err := c.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	m.ResourceVersion, m.ManagedFields = target.ResourceVersion, target.ManagedFields
	return nil
}

// own reports whether only kubemend sets conditions of the type of cond on a Machine.
func own(cond metav1.Condition) bool {
	return cond.Type == mendv1.Remediation || cond.Type == mendv1.SpareHostAvailable
}

// HasOwn reports whether m has a condition that only kubemend sets.
func HasOwn(m *clusterv1.Machine) bool { return slices.ContainsFunc(m.Status.Conditions, own) }

// DropOwn removes the conditions that only kubemend sets. It changes m in place, so m must be a copy of the object in the cache.
func DropOwn(m *clusterv1.Machine) { m.Status.Conditions = slices.DeleteFunc(m.Status.Conditions, own) }
