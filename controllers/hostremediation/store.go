package hostremediation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/decide/undone"
)

// waitsForOthers reports whether the remediation waits for something that ends without kubemend, and keeps no host off meanwhile. A
// remediation that waits for a RemediationPolicy keeps its place if an attempt has begun or if a check made it, because then it does not
// ask for a place again.
func waitsForOthers(obs *observed, step powercycle.Step) bool {
	waits := step.Do == powercycle.Wait || step.Do == powercycle.AskPerson
	if step.Reason == powercycle.WaitingForPolicyReason && (obs.record.Attempt > 0 || checkOf(obs) != nil) {
		return false
	}
	return waits && powercycle.RuleOf(step.Reason).Passes && !obs.facts.KeptOff
}

// mark puts on the remediation what is to be stored after step: record, finalizer and, while the host is kept off, the annotation that
// keeps clusterctl from moving the remediation. Otherwise the host would have the UID of a remediation that does not exist any more.
func (r *Reconciler) mark(obs *observed, step powercycle.Step) error {
	if obs.facts.Paused && obs.facts.State == "" && !obs.facts.Finalizer {
		return nil // leave a remediation alone that was paused before it began
	}
	switch step.Do {
	case powercycle.DropFinalizer:
		controllerutil.RemoveFinalizer(obs.rem, r.Kind.Finalizer)
	case powercycle.BeginAttempt, powercycle.AddFinalizer:
		controllerutil.AddFinalizer(obs.rem, r.Kind.Finalizer)
	}
	obs.noteNames(step, r.WatchFilterValue)
	marks := maps.Clone(obs.rem.GetAnnotations())
	if marks == nil {
		marks = map[string]string{}
	}
	if step.Do == powercycle.Unfence || step.Next.Final() && !obs.record.Fencing {
		obs.record.Pods = nil
	}
	content, err := obs.record.Encode()
	if err != nil {
		return err
	}
	marks[mendv1.PowerCycleAnnotation] = content
	delete(marks, mendv1.WaitsForAnnotation)
	if waitsForOthers(obs, step) {
		marks[mendv1.WaitsForAnnotation] = string(step.Reason)
	}
	blockMove(marks, keepsOff(obs, step))
	if r.Teardown && over(obs.facts, step) {
		delete(marks, mendv1.PowerCycleAnnotation)
		delete(marks, mendv1.RecordAnnotation)
	}
	obs.rem.SetAnnotations(marks)
	return nil
}

// over reports whether nothing is left to do after step. During Teardown only then may the record be removed, because nothing would finish
// the rest.
func over(f powercycle.Facts, step powercycle.Step) bool {
	return step.Next.Final() && (step.Do == powercycle.DropFinalizer || step.Do == powercycle.Wait && !f.Finalizer)
}

// blockMove sets or removes the annotation that keeps clusterctl from moving the object. clusterctl accepts any value; kubemend removes
// only its own.
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

// noteNames puts into the record the names of host, node and cluster while they are known, the node's boot ID, and the UID of the host that
// step is about.
func (obs *observed) noteNames(step powercycle.Step, filter string) {
	rec := &obs.record
	if obs.found.Is == powercycle.HostOurs || rec.Host == "" && obs.found.Host != nil { // a host that is not the machine's may become so
		rec.Host = obs.found.Host.Name
	}
	if obs.machine != nil {
		rec.Machine, rec.Cluster = obs.machine.Name, obs.machine.Spec.ClusterName
		rec.Node, rec.ControlPlane = obs.nodeName(), obs.facts.ControlPlane
	}
	rec.Filter = filter
	obs.noteBoot()
	if step.Do == powercycle.KeepOff || step.Do == powercycle.NoteAsked || step.Do == powercycle.Reboot {
		rec.HostUID = obs.found.Host.UID
	}
	// While host or node may have annotations with the UID from before `clusterctl move`, the record keeps that UID.
	if changes := step.Do != powercycle.Wait || rec.UID != obs.rem.GetUID(); changes && !obs.facts.HasPowerAnnotations && !rec.Fencing {
		rec.UID = obs.rem.GetUID()
	}
}

// noteBoot puts the node's UID and boot ID into the record until the host is powered off. Without the boot ID any node that is Ready would
// count as booted.
func (obs *observed) noteBoot() {
	rec := &obs.record
	off := rec.State == powercycle.Preparing || rec.State == powercycle.PoweringOff
	if !off && (rec.State != powercycle.Rebooting || obs.facts.RebootAsked) || obs.node == nil {
		return
	}
	rec.BootID = obs.node.Status.NodeInfo.BootID
	if rec.NodeUID == "" || rec.State == powercycle.Preparing {
		rec.NodeUID = obs.node.UID
	}
}

// keepsOff reports whether the host is, or is to be, kept off after step. In a pause clusterctl may be waiting to move the remediation, and
// has to wait until the cache shows that the host is released. At other times the remediation of a host that is about to be released may be
// moved, because the record says that the host is to be released.
func keepsOff(obs *observed, step powercycle.Step) bool {
	return step.Do == powercycle.KeepOff || obs.facts.KeptOff && (step.Do != powercycle.Release || obs.facts.Paused)
}

// store writes the annotations and finalizers of the remediation if they differ. The error is a conflict if the remediation has changed
// since it was read, and NotFound if it is gone.
func (r *Reconciler) store(ctx context.Context, obs *observed) error {
	key, next := client.ObjectKeyFromObject(obs.rem), metadataOf(obs.rem, r.Kind)
	if maps.Equal(obs.stored.Annotations, next.Annotations) && slices.Equal(obs.stored.Finalizers, next.Finalizers) {
		obs.saved = true
		obs.keep(next.Annotations)
		return nil
	}
	removed, at := obs.restores()
	if obs.now.Before(at) {
		obs.recheckAfter(at.Sub(obs.now))
		obs.keep(obs.kept.stored)
		return nil
	}
	err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(obs.stored, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		r.written.Forget(key)
	}
	obs.saved = client.IgnoreNotFound(err) == nil
	if err != nil {
		return fmt.Errorf("write what %s %s remembers: %w", r.Kind.Kind, key, err)
	}
	if removed {
		obs.kept.restored = obs.kept.restored.Again(powercycle.Wait, obs.now)
	}
	obs.kept.conflicted = false
	obs.keep(next.Annotations)
	obs.rem.SetResourceVersion(next.ResourceVersion) // the patch of the status needs it
	obs.stored = metadataOf(obs.rem, r.Kind)
	r.written.Note(obs.rem)
	return nil
}

// metadataOf returns the metadata of a remediation that store writes.
func metadataOf(rem client.Object, kind remediation.Kind) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: rem.GetName(), Namespace: rem.GetNamespace(), UID: rem.GetUID(), ResourceVersion: rem.GetResourceVersion(),
		Annotations: maps.Clone(rem.GetAnnotations()), Finalizers: slices.Clone(rem.GetFinalizers()),
	}}
	obj.SetGroupVersionKind(kind.GroupVersionKind)
	return obj
}

// yield removes from a remediation that another controller acts on now what only kubemend would remove: the annotation that blocks moves,
// which would keep clusterctl waiting, WaitsForAnnotation, and the annotation on the node. The other controller continues with the host,
// the taint and the finalizer.
func (r *Reconciler) yield(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	obs := &observed{now: r.Clock.Now(), rem: r.Kind.New()}
	if found, err := r.read(ctx, key, obs); err != nil || !found {
		return ctrl.Result{}, err
	}
	obs.record, _ = remediation.RecordOf(obs.rem) // if it cannot be read, no node is known
	if _, remembers := obs.rem.GetAnnotations()[mendv1.PowerCycleAnnotation]; !remembers {
		return ctrl.Result{}, nil
	}
	marks := maps.Clone(obs.rem.GetAnnotations())
	blockMove(marks, false)
	delete(marks, mendv1.WaitsForAnnotation)
	obs.rem.SetAnnotations(marks)
	defer r.retain(obs)
	if err := r.store(ctx, obs); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, r.disown(ctx, obs)
}

// disown removes kubemend's annotation from the node, and leaves the taint.
func (r *Reconciler) disown(ctx context.Context, obs *observed) error {
	if !obs.record.Fencing {
		return nil
	}
	if err := r.observeMachine(ctx, obs); err != nil || obs.cluster == nil || obs.nodeName() == "" {
		return err
	}
	cluster := client.ObjectKeyFromObject(obs.cluster)
	by := fence.Owner{UID: obs.rem.GetUID()}
	seen, err := r.Nodes.Look(ctx, cluster, obs.nodeName(), by)
	if err != nil {
		return err
	}
	if seen.Ours {
		if err := r.Nodes.Disown(ctx, cluster, seen.Node, by); err != nil {
			return err
		}
	}
	obs.record.Fencing = false
	content, err := obs.record.Encode()
	if err != nil {
		return err
	}
	annotations.AddAnnotations(obs.rem, map[string]string{mendv1.PowerCycleAnnotation: content})
	return client.IgnoreNotFound(r.store(ctx, obs))
}

// kept is what this process knows of a remediation and does not store.
type kept struct {
	uid types.UID
	// stored are the annotations that the API server had last. record is the record that it should have: a webhook may have refused it.
	stored map[string]string
	record string
	// restored is how often kubemend has stored again what another client removed from stored.
	restored powercycle.Did
	// conflicted says that the last write met a conflict.
	conflicted bool
	// held is Memory.Held. It does not hold for the next attempt, another host, or another remediation with this name.
	held bool
	// progress is what the metrics export.
	progress progress

	// did is the last action on the host with hostUID, or on its node, in this attempt and state.
	did     powercycle.Did
	hostUID types.UID
	attempt int
	state   powercycle.State
}

// retain keeps for the next reconcile what obs has learnt.
func (r *Reconciler) retain(obs *observed) {
	r.kept.Store(client.ObjectKeyFromObject(obs.rem), *obs.kept)
}

// recall gives obs the record that this process has kept, if the stored one is missing or old: a webhook may have refused a write, or a
// user may have removed the annotation. If another client has stored another record since, that one counts.
func (r *Reconciler) recall(obs *observed) {
	value, _ := r.kept.Load(client.ObjectKeyFromObject(obs.rem))
	if before, _ := value.(kept); before.uid == obs.rem.GetUID() {
		obs.kept = &before
	} else {
		obs.kept = &kept{uid: obs.rem.GetUID()}
	}
	stored := obs.stored.Annotations[mendv1.PowerCycleAnnotation]
	if obs.kept.record == "" || stored != "" && stored != obs.kept.stored[mendv1.PowerCycleAnnotation] {
		return
	}
	marks := map[string]string{}
	maps.Copy(marks, obs.rem.GetAnnotations())
	marks[mendv1.PowerCycleAnnotation] = obs.kept.record
	obs.rem.SetAnnotations(marks)
}

// keep keeps the record of obs, and the annotations that the API server has.
func (obs *observed) keep(stored map[string]string) {
	obs.kept.stored, obs.kept.record = stored, obs.rem.GetAnnotations()[mendv1.PowerCycleAnnotation]
}

// restores reports whether another client removed what was stored, and when kubemend may store it again if nothing else has to be stored.
func (obs *observed) restores() (removed bool, at time.Time) {
	for _, key := range []string{mendv1.PowerCycleAnnotation, clusterctlv1.BlockMoveAnnotation, mendv1.WaitsForAnnotation} {
		_, stored := obs.kept.stored[key]
		_, stays := obs.stored.Annotations[key]
		removed = removed || stored && !stays
	}
	waits := !slices.ContainsFunc(obs.taken, func(t taken) bool { return t.step.Do != powercycle.Wait })
	if removed && waits {
		at = obs.kept.restored.Until(obs.now)
	}
	return removed, at
}

// noteDone keeps the action of step if another client could undo the action.
func (obs *observed) noteDone(step powercycle.Step) {
	switch step.Do {
	case powercycle.KeepOff, powercycle.AskReceipt, powercycle.Reboot, powercycle.Fence, powercycle.MarkHost:
	default:
		return
	}
	before := obs.didBefore()
	obs.kept.hostUID, obs.kept.attempt, obs.kept.state = obs.found.Host.UID, obs.record.Attempt, step.Next
	obs.kept.did = before.Again(step.Do, obs.now)
}

// didBefore returns the last action on this host or its node, in this attempt and state; zero if there was none.
func (obs *observed) didBefore() powercycle.Did {
	host := obs.found.Host
	if host == nil || host.UID != obs.kept.hostUID || obs.record.Attempt != obs.kept.attempt || obs.record.State != obs.kept.state {
		return powercycle.Did{}
	}
	return obs.kept.did
}

// observeUndoers names the clients that have written to the host, or to the node if that is to be fenced, since kubemend's last action.
func (r *Reconciler) observeUndoers(ctx context.Context, obs *observed) error {
	if obs.record.State == powercycle.MovingWorkload && obs.seen.Node != nil {
		obs.facts.Undoers = undone.WritersSince(obs.seen.Node, "", obs.kept.did.At)
		return nil
	}
	found := obs.found // the cache of hosts has no managedFields
	if err := r.Hosts.Refresh(ctx, &found); err != nil || found.Host == nil {
		return err
	}
	obs.facts.Undoers = undone.WritersSince(found.Host, "", obs.kept.did.At)
	return nil
}
