package hostremediation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// mark puts on the remediation what is to be stored after step: its record, its finalizer and, while the host is kept powered off, the annotation that keeps
// clusterctl from moving it: its host would have the UID of a remediation that is gone.
func (r *Reconciler) mark(w *observed, step powercycle.Step) error {
	if w.facts.Paused && w.facts.State == "" && !w.facts.Finalizer {
		return nil // a remediation that is paused before it began is left as it is
	}
	switch step.Do {
	case powercycle.DropFinalizer:
		controllerutil.RemoveFinalizer(w.rem, r.Kind.Finalizer)
	case powercycle.BeginAttempt, powercycle.AddFinalizer:
		controllerutil.AddFinalizer(w.rem, r.Kind.Finalizer)
	}
	w.noteNames(step, r.WatchFilterValue)
	marks := maps.Clone(w.rem.GetAnnotations())
	if marks == nil {
		marks = map[string]string{}
	}
	if step.Do == powercycle.Unfence || step.Next.Final() {
		w.record.Pods = nil
	}
	content, err := w.record.Encode()
	if err != nil {
		return err
	}
	marks[mendv1.PowerCycleAnnotation] = content
	blockMove(marks, keepsOff(w, step))
	if r.Teardown && over(w.facts, step) {
		delete(marks, mendv1.PowerCycleAnnotation)
		delete(marks, mendv1.RecordAnnotation)
	}
	w.rem.SetAnnotations(marks)
	return nil
}

// over reports whether nothing is left to do after step: only then may the record of a remediation be removed that nothing will go on with.
func over(f powercycle.Facts, step powercycle.Step) bool {
	return step.Next.Final() && (step.Do == powercycle.DropFinalizer || step.Do == powercycle.Wait && !f.Finalizer)
}

// blockMove keeps clusterctl from moving an object with these annotations, or no longer does. clusterctl accepts any value; kubemend removes only the
// annotation with its own.
func blockMove(marks map[string]string, block bool) {
	const ours = "kubemend"
	by, blocked := marks[clusterctlv1.BlockMoveAnnotation]
	switch {
	case block && !blocked:
		marks[clusterctlv1.BlockMoveAnnotation] = ours
	case !block && by == ours:
		delete(marks, clusterctlv1.BlockMoveAnnotation)
	}
}

// noteNames makes w remember the names of host, node and cluster while they are known, the boot of the node before the power cycle, and what step is about.
func (w *observed) noteNames(step powercycle.Step, filter string) {
	rec := &w.record
	if w.found.Is == powercycle.HostOurs || rec.Host == "" && w.found.Host != nil { // one that is not the machine's may become that
		rec.Host = w.found.Host.Name
	}
	if w.machine != nil {
		rec.Machine, rec.Cluster = w.machine.Name, w.machine.Spec.ClusterName
		rec.Node = w.nodeName()
	}
	rec.Filter = filter
	w.noteBoot()
	if step.Do == powercycle.KeepOff || step.Do == powercycle.NoteAsked {
		rec.HostUID = w.found.Host.UID
	}
	// Host and node may have annotations with the UID of before the remediation was moved: until they have none, that UID is remembered.
	if changes := step.Do != powercycle.Wait || rec.UID != w.rem.GetUID(); changes && !w.facts.HasPowerAnnotations && !rec.Fencing {
		rec.UID = w.rem.GetUID()
	}
}

// noteBoot makes w remember the node and its boot until the host is powered off: without its boot ID a node that is Ready would count as one that has booted.
func (w *observed) noteBoot() {
	rec := &w.record
	before := rec.State == powercycle.Preparing || rec.State == powercycle.PoweringOff || rec.State == powercycle.Rebooting && !w.facts.RebootAsked
	if !before || w.node == nil {
		return
	}
	rec.BootID = w.node.Status.NodeInfo.BootID
	if rec.NodeUID == "" || rec.State == powercycle.Preparing {
		rec.NodeUID = w.node.UID
	}
}

// keepsOff reports whether the host is kept powered off after the step, or is to be. In a pause clusterctl may be waiting to move the remediation: it goes on
// waiting until the cache shows that the host is released. Else the remediation of a host that is about to be released may be moved, since that is remembered.
func keepsOff(w *observed, step powercycle.Step) bool {
	return step.Do == powercycle.KeepOff || w.facts.KeptOff && (step.Do != powercycle.Release || w.facts.Paused)
}

// store writes the annotations and finalizers of the remediation if they differ, and if it has not changed since it was read. If it is gone, the API server's
// error is returned.
func (r *Reconciler) store(ctx context.Context, w *observed) error {
	changes := map[string]any{}
	if annotations := changed(w.stored.annotations, w.rem.GetAnnotations()); len(annotations) > 0 {
		changes["annotations"] = annotations
	}
	if !slices.Equal(w.stored.finalizers, w.rem.GetFinalizers()) {
		changes["finalizers"] = w.rem.GetFinalizers()
	}
	if len(changes) == 0 {
		w.saved = true
		r.Claims.Written(w.rem, w.rem.GetResourceVersion(), nil)
		return nil
	}
	key := client.ObjectKeyFromObject(w.rem)
	changes["resourceVersion"], changes["uid"] = w.rem.GetResourceVersion(), w.rem.GetUID()
	patch, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return fmt.Errorf("encode the metadata of %s %s: %w", r.Kind.Kind, key, err)
	}
	saved := &metav1.PartialObjectMetadata{}
	saved.SetGroupVersionKind(r.Kind.GroupVersionKind)
	saved.Name, saved.Namespace = key.Name, key.Namespace
	err = r.Client.Patch(ctx, saved, client.RawPatch(types.MergePatchType, patch))
	r.Claims.Written(w.rem, saved.ResourceVersion, err)
	if apierrors.IsNotFound(err) {
		r.written.Forget(key)
	}
	w.saved = client.IgnoreNotFound(err) == nil
	if err != nil {
		return fmt.Errorf("write what %s %s remembers: %w", r.Kind.Kind, key, err)
	}
	r.unstored.Delete(key)
	w.rem.SetResourceVersion(saved.ResourceVersion) // the status is written on top of this
	w.stored = metadataOf(w.rem)
	r.written.Note(w.rem)
	return nil
}

// metadata is what the API server has of the metadata of a remediation.
type metadata struct {
	annotations map[string]string
	finalizers  []string
}

func metadataOf(rem client.Object) metadata {
	return metadata{rem.GetAnnotations(), slices.Clone(rem.GetFinalizers())}
}

// changed returns what a merge patch has to say to turn was into is.
func changed(was, is map[string]string) map[string]any {
	changes := map[string]any{}
	for key, value := range is {
		if old, had := was[key]; !had || old != value {
			changes[key] = value
		}
	}
	for key := range was {
		if _, has := is[key]; !has {
			changes[key] = nil
		}
	}
	return changes
}

// yield removes from a remediation that another controller acts on now what only kubemend understands and would stay: the block on moves, which would keep
// clusterctl waiting until the remediation is deleted, and the annotation on the node. The other controller goes on with host, taint and finalizer.
func (r *Reconciler) yield(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	r.Claims.End(r.Kind.Kind, key)
	w := &observed{now: r.Clock.Now(), rem: r.Kind.New(), kind: r.Kind}
	if found, err := r.read(ctx, key, w); err != nil || !found {
		return ctrl.Result{}, err
	}
	w.record, _ = remediation.RecordOf(w.rem) // a record that cannot be read names no node
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

// disown removes kubemend's annotation from the node, and leaves the taint.
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
		return fmt.Errorf("disown node %q of cluster %s: %w", w.nodeName(), cluster, seen.Cause)
	}
	if seen.Ours {
		if err := r.Fencer.Disown(ctx, cluster, seen.Node, by); err != nil {
			return err
		}
	}
	w.record.Fencing = false
	content, err := w.record.Encode()
	if err != nil {
		return err
	}
	return r.annotate(ctx, w.rem, map[string]any{mendv1.PowerCycleAnnotation: content})
}

// annotate changes these annotations of a remediation, if it has not changed since it was read.
func (r *Reconciler) annotate(ctx context.Context, rem remediation.Object, changes map[string]any) error {
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
