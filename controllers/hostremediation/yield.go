package hostremediation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
)

// yield takes from a remediation that is somebody else's now what says something to kubemend alone and would stay: the block on moves, which would
// keep clusterctl waiting until the remediation is deleted, and the mark on the node. Host, taint and finalizer are the other's to go on with.
func (r *Reconciler) yield(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	r.Claims.End(r.Kind.Kind, key)
	w := &observed{now: r.Clock.Now(), rem: r.Kind.New(), kind: r.Kind}
	if found, err := r.read(ctx, key, w); err != nil || !found {
		return ctrl.Result{}, err
	}
	w.record, _ = recordOf(w.rem) // what cannot be read names no node
	if _, remembers := w.rem.GetAnnotations()[mendv1.PowerCycleAnnotation]; !remembers {
		return ctrl.Result{}, nil
	}
	marks := maps.Clone(w.rem.GetAnnotations())
	blockMove(marks, false)
	if len(marks) < len(w.rem.GetAnnotations()) {
		if err := r.annotate(ctx, w.rem, map[string]any{clusterctlv1.BlockMoveAnnotation: nil}); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.disown(ctx, w)
}

// disown takes our mark off the node, and leaves the taint.
func (r *Reconciler) disown(ctx context.Context, w *observed) error {
	if !w.record.Fencing {
		return nil
	}
	if err := r.observeMachine(ctx, w); err != nil || w.cluster == nil || w.nodeName() == "" {
		return err
	}
	cluster := client.ObjectKeyFromObject(w.cluster)
	by := fence.Owner{UID: w.rem.GetUID()}
	seen, err := r.Nodes.Look(ctx, cluster, w.nodeName(), by)
	if err != nil {
		return err
	}
	if seen.Presence == fence.Unseen {
		return fmt.Errorf("take the mark off node %q of cluster %s: %w", w.nodeName(), cluster, seen.Cause)
	}
	if seen.Ours {
		if err := r.Nodes.Disown(ctx, cluster, seen.Node, by); err != nil {
			return err
		}
	}
	w.record.Fencing = false
	content, err := encoded(w.record)
	if err != nil {
		return err
	}
	return r.annotate(ctx, w.rem, map[string]any{mendv1.PowerCycleAnnotation: content})
}

// annotate changes these annotations of a remediation, if nobody changed it since it was read.
func (r *Reconciler) annotate(ctx context.Context, rem Object, changes map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": rem.GetUID(), "resourceVersion": rem.GetResourceVersion(), "annotations": changes,
	}})
	if err != nil {
		return fmt.Errorf("encode annotations: %w", err)
	}
	target := rem.Unwrapped().DeepCopyObject().(client.Object)
	err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("yield %s %s: %w", r.Kind.Kind, client.ObjectKeyFromObject(rem), err)
	}
	rem.SetResourceVersion(target.GetResourceVersion())
	return nil
}
