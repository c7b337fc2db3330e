package claims

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// apply carries a plan out, and returns what it did: Leave also where the mark of the claim is gone and somebody else's claim, or pause,
// stays. Claimed is the check as a claim has left it. A conflict is an error: somebody else owns the annotation, or the check was made
// anew. That the check is gone is none.
func (r *Reconciler) apply(
	ctx context.Context, check *clusterv1.MachineHealthCheck, plan Plan,
) (done Action, claimed *unstructured.Unstructured, err error) {
	switch done = plan.Action; done {
	case Claim: // never by force: a value that another client has written meanwhile is a conflict
		mark := cmp.Or(check.Annotations[mendv1.ClaimedByAnnotation], plan.By) // one that was copied is not ours to change
		claimed, err = r.applied(ctx, check, map[string]any{clusterv1.PausedAnnotation: mendv1.Claim, mendv1.ClaimedByAnnotation: mark})
	case Release:
		done, err = r.release(ctx, check)
	case Leave, Refuse:
		return Leave, nil, nil
	}
	if apierrors.IsNotFound(err) {
		return Leave, nil, nil
	}
	if err != nil {
		return Leave, nil, fmt.Errorf("%s MachineHealthCheck %s: %w", plan.Action, client.ObjectKeyFromObject(check), err)
	}
	return done, claimed, nil
}

// release gives up what this field manager owns, so that a claim that somebody else owns as well stays. If the mark stays it was copied,
// with the claim, from another management cluster or a backup, and what copied them owns them: then both are removed.
func (r *Reconciler) release(ctx context.Context, check *clusterv1.MachineHealthCheck) (Action, error) {
	now, err := r.applied(ctx, check, nil)
	if err != nil {
		return Leave, err
	}
	annotations := now.GetAnnotations()
	if _, copied := annotations[mendv1.ClaimedByAnnotation]; copied {
		return r.removed(ctx, now)
	}
	return endOf(annotations), nil
}

// endOf is what became of a check that lost its mark.
func endOf(annotations map[string]string) Action {
	if _, paused := annotations[clusterv1.PausedAnnotation]; paused {
		return Leave
	}
	return Release
}

// removed removes a claim and its mark, also those that another field manager owns, unless the check has changed meanwhile.
func (r *Reconciler) removed(ctx context.Context, check *unstructured.Unstructured) (Action, error) {
	changes := map[string]any{mendv1.ClaimedByAnnotation: nil}
	annotations := check.GetAnnotations()
	if annotations[clusterv1.PausedAnnotation] == mendv1.Claim {
		changes[clusterv1.PausedAnnotation] = nil
		delete(annotations, clusterv1.PausedAnnotation)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": check.GetUID(), "resourceVersion": check.GetResourceVersion(), "annotations": changes,
	}})
	if err != nil {
		return Leave, fmt.Errorf("encode the metadata: %w", err)
	}
	named := &clusterv1.MachineHealthCheck{}
	named.Namespace, named.Name = check.GetNamespace(), check.GetName()
	return endOf(annotations), r.Client.Patch(ctx, named, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(mendv1.ClaimFieldOwner))
}

// applied applies these annotations, and no others, as the field manager of claims. The UID makes it fail where the check is gone, instead
// of making one.
func (r *Reconciler) applied(ctx context.Context, check *clusterv1.MachineHealthCheck, annotations map[string]any) (*unstructured.Unstructured, error) {
	wanted := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineHealthCheck",
		"metadata": map[string]any{"namespace": check.Namespace, "name": check.Name, "uid": string(check.UID), "annotations": annotations},
	}}
	if annotations == nil {
		unstructured.RemoveNestedField(wanted.Object, "metadata", "annotations")
	}
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(mendv1.ClaimFieldOwner))
	return wanted, err
}
