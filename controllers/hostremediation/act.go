package hostremediation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/workload"
)

// errChanged says that what a step was decided on is not so any more.
var errChanged = errors.New("the host has changed meanwhile")

// act carries a step out, but for what is only remembered. It reports false if somebody else was faster and the step has to be
// decided anew.
func (r *Reconciler) act(ctx context.Context, w *observed, step powercycle.Step) (bool, error) {
	var err error
	switch step.Do {
	case powercycle.KeepOff, powercycle.AskReceipt, powercycle.Reboot:
		err = r.ask(ctx, w, step.Do)
	case powercycle.Release:
		err = r.Hosts.Release(ctx, w.found.Host, w.record.by(w.rem))
	case powercycle.MarkHost:
		if err = r.Hosts.Refresh(ctx, &w.found); err == nil && w.found.Is == powercycle.HostOurs {
			err = r.Hosts.MarkUnhealthy(ctx, w.found.Host, w.machine.UID)
		}
	case powercycle.Fence:
		err = r.fence(ctx, w)
	case powercycle.Unfence:
		err = r.unfence(ctx, w)
	case powercycle.RequestOwner:
		err = r.requestOwner(ctx, w.machine, w.now)
	case powercycle.Withdraw:
		err = r.takeBack(ctx, w)
	}
	if apierrors.IsConflict(err) || errors.Is(err, errChanged) {
		return false, nil
	}
	return err == nil, err
}

// ask asks something of the host's power, if the host is as the step was decided on: what is done to the power of a host that is somebody else's by now
// cannot be taken back.
func (r *Reconciler) ask(ctx context.Context, w *observed, what powercycle.Action) error {
	by := w.record.by(w.rem)
	switch what {
	case powercycle.KeepOff:
		return r.Hosts.KeepOff(ctx, w.found.Host, by)
	case powercycle.AskReceipt:
		return r.Hosts.AskReceipt(ctx, w.found.Host, by, w.record.Asked)
	default:
		return r.Hosts.Reboot(ctx, w.found.Host, by, w.record.Attempt)
	}
}

// prepare finds out what has to be stored with step. Before a node is deleted that is what it has to get back.
func (r *Reconciler) prepare(ctx context.Context, w *observed, step powercycle.Step) error {
	if step.Do != powercycle.Fence {
		return nil
	}
	mode, err := r.Nodes.ModeFor(ctx, client.ObjectKeyFromObject(w.cluster), r.Fencing)
	if err != nil {
		return err
	}
	if w.mode = mode; mode != fence.Delete {
		return nil
	}
	backup, err := fence.BackupOf(w.seen.Node, w.rem.GetAnnotations())
	if err != nil {
		return err
	}
	marks := maps.Clone(w.rem.GetAnnotations())
	backup.Into(marks)
	w.rem.SetAnnotations(marks)
	w.record.Deleted = w.now
	return nil
}

// fence lets the workload of the node move. All before that took its time: that the host is off, and held, must be true now.
func (r *Reconciler) fence(ctx context.Context, w *observed) error {
	if err := r.unchanged(ctx, w); err != nil {
		return err
	}
	soon, end := context.WithTimeout(ctx, fenceWithin)
	defer end()
	return r.Nodes.Fence(soon, client.ObjectKeyFromObject(w.cluster), w.seen.Node, w.signs(), w.mode, w.now)
}

// backup is what the node has to get back, as far as it can be believed: it is given to the node of the machine, also of one that is gone, and to no node
// that is older than its deletion. Of what CAPM3 had begun it is not known when it deleted the node, but it did so for this very remediation.
func (w *observed) backup() fence.Backup {
	owner := ownerOf(w.rem)
	if owner == nil || owner.Name != w.record.Machine || w.machine != nil && w.nodeName() != w.machine.Status.NodeRef.Name {
		return fence.Backup{}
	}
	saved := fence.BackupIn(w.rem.GetAnnotations())
	saved.Deleted = w.record.Deleted
	created, moved := w.rem.GetCreationTimestamp().Time, w.record.by(w.rem).Before != ""
	if w.record.TakenOver && saved.Deleted.IsZero() || !saved.Deleted.IsZero() && !moved && saved.Deleted.Before(created) {
		saved.Deleted = created
	}
	if saved.Deleted.IsZero() {
		return fence.Backup{}
	}
	return saved
}

// unchanged reads the host past the cache, and returns errChanged unless it is as it was when the step was decided: a cache lags.
func (r *Reconciler) unchanged(ctx context.Context, w *observed) error {
	if err := r.Hosts.Refresh(ctx, &w.found); err != nil {
		return err
	}
	marks, power := w.marks(), host.PowerOf(w.found.Host)
	if w.found.Is != powercycle.HostOurs || !power.Same(w.power) || marks.KeptOff != w.facts.KeptOff {
		return errChanged
	}
	return nil
}

// unfence takes all back that was done to the node.
func (r *Reconciler) unfence(ctx context.Context, w *observed) error {
	cluster := client.ObjectKeyFromObject(w.cluster)
	ctx, done := context.WithTimeout(ctx, workload.AnswerWithin)
	defer done()
	return r.Nodes.Unfence(ctx, cluster, w.seen.Node, w.signs(), w.backup())
}

// signs is the remediation as it signs a node.
func (w *observed) signs() fence.Owner {
	by := w.record.by(w.rem)
	owner := fence.Owner{UID: by.UID, Unsigned: w.record.TakenOver && w.kind.signsNothing(), Deletes: !w.record.Deleted.IsZero()}
	for _, uid := range []types.UID{by.Before, w.predecessor} {
		if uid != "" {
			owner.Former = append(owner.Former, uid)
		}
	}
	return owner
}

// takeBack undoes a hand-over: what was asked of the owner first, so that it does not replace a machine whose host is well.
func (r *Reconciler) takeBack(ctx context.Context, w *observed) error {
	if err := withdraw(ctx, r.Client, w.machine); err != nil {
		return err
	}
	if w.found.Host == nil {
		return nil
	}
	return r.Hosts.MarkHealthy(ctx, w.found.Host, w.machine.UID)
}

// mark puts on the remediation what is to be stored after step: what it remembers, its finalizer and, while the host is held off, what keeps clusterctl
// from moving it: it would be known on its host by a UID that is gone.
func (r *Reconciler) mark(w *observed, step powercycle.Step) error {
	if w.facts.Paused && w.facts.State == "" && !w.facts.Finalizer {
		return nil // what is paused before it has begun is left as it is
	}
	switch step.Do {
	case powercycle.DropFinalizer:
		controllerutil.RemoveFinalizer(w.rem, r.Kind.Finalizer)
	case powercycle.BeginAttempt, powercycle.AddFinalizer:
		controllerutil.AddFinalizer(w.rem, r.Kind.Finalizer)
	}
	w.nameAll(step, r.WatchFilterValue)
	marks := maps.Clone(w.rem.GetAnnotations())
	if marks == nil {
		marks = map[string]string{}
	}
	if step.Do == powercycle.Unfence || step.Next.Final() && w.backup().Empty() {
		w.record.Deleted = time.Time{}
		for _, key := range fence.Keys() {
			delete(marks, key) // what they held is restored, or cannot be believed
		}
	}
	content, err := encoded(w.record)
	if err != nil {
		return err
	}
	marks[mendv1.PowerCycleAnnotation] = content
	blockMove(marks, holds(w, step))
	if r.Leaving && over(w.facts, step) {
		delete(marks, mendv1.PowerCycleAnnotation)
	}
	w.rem.SetAnnotations(marks)
	return nil
}

// nameAll makes w remember the names of what step is about.
func (w *observed) nameAll(step powercycle.Step, filter string) {
	w.record.name(w, filter)
	if step.Do == powercycle.KeepOff || step.Do == powercycle.NoteAsked {
		w.record.HostUID = w.found.Host.UID
	}
	if step.Do != powercycle.Wait || w.record.UID != w.rem.GetUID() {
		w.record.claim(w)
	}
}

// over reports whether there is nothing left to do after step: only then may a remediation be forgotten that nobody will go on with.
func over(f powercycle.Facts, step powercycle.Step) bool {
	return step.Next.Final() && (step.Do == powercycle.DropFinalizer || step.Do == powercycle.Wait && !f.Finalizer)
}

// blockMove keeps clusterctl from moving what has these annotations, or no longer does. For clusterctl any value will do; ours tells
// our mark from that of somebody else, which is left alone.
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

// encoded is a record as it is stored.
func encoded(rec record) (string, error) {
	content, err := json.Marshal(rec)
	if err != nil {
		return "", fmt.Errorf("encode what is remembered: %w", err)
	}
	return string(content), nil
}

// name notes the names of host, node and cluster while they are known, and under which boot the node was before the cycle.
func (rec *record) name(w *observed, filter string) {
	if w.found.Is == powercycle.HostOurs || rec.Host == "" && w.found.Host != nil { // one that is not the machine's may become that
		rec.Host = w.found.Host.Name
	}
	if w.machine != nil {
		rec.Machine, rec.Cluster = w.machine.Name, w.machine.Spec.ClusterName
		rec.Node = cmp.Or(w.machine.Status.NodeRef.Name, rec.Node)
	}
	rec.Filter = filter
	// Without it a node that is Ready would be taken for one that has booted.
	before := rec.State == powercycle.Preparing || rec.State == powercycle.PoweringOff || rec.State == powercycle.Rebooting && !w.facts.RebootAsked
	if before && w.node != nil {
		rec.BootID = w.node.Status.NodeInfo.BootID
		if rec.NodeUID == "" || rec.State == powercycle.Preparing {
			rec.NodeUID = w.node.UID
		}
	}
}

// claim makes the record that of the remediation as it is called now, once nothing on host and node is known by its former name.
func (rec *record) claim(w *observed) {
	if !w.facts.HasPowerAnnotations && !rec.Fencing {
		rec.UID = w.rem.GetUID()
	}
}

// holds reports whether the host is held off after the step, or is to be. In a pause clusterctl may be waiting to move the remediation: it goes on
// waiting until the host was seen to be released. Else the remediation of a host that is about to be released may be moved, for that is remembered.
func holds(w *observed, step powercycle.Step) bool {
	return step.Do == powercycle.KeepOff || w.facts.KeptOff && (step.Do != powercycle.Release || w.facts.Paused)
}

// store writes the annotations and finalizers of the remediation, if it has not changed since it was read and they differ. That it is gone is an error
// of the API server's.
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
	w.rem.SetResourceVersion(saved.ResourceVersion) // the status is written on top of this
	w.stored = metadataOf(w.rem)
	r.written.Note(w.rem)
	return nil
}

// metadata is what of a remediation is not its status, as the API server has it.
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
