package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// PatchConditions writes the conditions of m, in both flavours, if m has not changed since it was read; the error is a conflict if it
// has. Both are lists that others write too, so a write on top of an unseen change would undo it. The version of m is the one that was
// saved afterwards, and so are its managed fields.
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

// own reports whether cond is of a type that only kubemend sets on a Machine.
func own(cond metav1.Condition) bool {
	return cond.Type == mendv1.Remediation || cond.Type == mendv1.SpareHostAvailable
}

// HasOwn reports whether m has a condition that only kubemend sets.
func HasOwn(m *clusterv1.Machine) bool { return slices.ContainsFunc(m.Status.Conditions, own) }

// DropOwn removes those conditions from m, which no cache may share.
func DropOwn(m *clusterv1.Machine) { m.Status.Conditions = slices.DeleteFunc(m.Status.Conditions, own) }
