// Package machinestatus says of a Machine which check judges it and whether it is being updated in place. It patches the Machine's conditions, in
// both flavours, and nothing else.
package machinestatus

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchConditions writes the conditions of m, in both flavours, if m has not changed since it was read; the error is a conflict if it
// has. Both are lists that others write too, so a write on top of an unseen change would undo it. The version of m is the one that was
// saved afterwards.
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
	m.ResourceVersion = target.ResourceVersion
	return nil
}
