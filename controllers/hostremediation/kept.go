package hostremediation

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/undone"
)

// kept is what this process knows of a remediation besides what is stored.
type kept struct {
	uid types.UID
	// stored are the annotations that the API server had last, record is the record that it has to have: a webhook may have refused that.
	stored map[string]string
	record string
	// restored is how often what somebody had removed of them was stored again.
	restored powercycle.Did
	// conflicted says that the last write met a conflict.
	conflicted bool

	// progress is what is exported of it, watched the node that is watched for it, until another one is.
	progress progress
	watched  fence.Place

	// did is what was done last to the host with hostUID, or to its node, in that attempt and state.
	did     powercycle.Did
	hostUID types.UID
	attempt int
	state   powercycle.State
}

// update changes what is kept of the remediation called key.
func (r *Reconciler) update(key client.ObjectKey, change func(*kept)) {
	value, _ := r.kept.Load(key)
	current, _ := value.(kept)
	change(&current)
	r.kept.Store(key, current)
}

// drop drops what is kept of the remediation called key.
func (r *Reconciler) drop(key client.ObjectKey) {
	value, _ := r.kept.LoadAndDelete(key)
	if current, _ := value.(kept); current.watched.Node != "" {
		r.Nodes.Unwatch(current.watched.Cluster, current.watched.Node)
	}
}

// recall gives w the record that this process has kept, if nobody has stored another one since: a webhook may have refused it, and somebody
// may have removed it.
func (r *Reconciler) recall(w *observed) {
	value, _ := r.kept.Load(client.ObjectKeyFromObject(w.rem))
	w.kept, _ = value.(kept)
	if w.kept.uid != w.rem.GetUID() {
		w.kept = kept{uid: w.rem.GetUID()}
	}
	stored := w.stored.Annotations[mendv1.PowerCycleAnnotation]
	if w.kept.record == "" || stored != "" && stored != w.kept.stored[mendv1.PowerCycleAnnotation] {
		return
	}
	marks := map[string]string{}
	maps.Copy(marks, w.rem.GetAnnotations())
	marks[mendv1.PowerCycleAnnotation] = w.kept.record
	w.rem.SetAnnotations(marks)
}

// keep keeps the record of w, and what is stored of it.
func (r *Reconciler) keep(w *observed, stored map[string]string) {
	w.kept.stored, w.kept.record = stored, w.rem.GetAnnotations()[mendv1.PowerCycleAnnotation]
	r.kept.Store(client.ObjectKeyFromObject(w.rem), w.kept)
}

// restores reports whether what was stored of w was removed, and when it may be stored again if nothing else is to be.
func (w *observed) restores() (removed bool, at time.Time) {
	for _, key := range []string{mendv1.PowerCycleAnnotation, clusterctlv1.BlockMoveAnnotation, mendv1.WaitsForAnnotation} {
		_, stored := w.kept.stored[key]
		_, stays := w.stored.Annotations[key]
		removed = removed || stored && !stays
	}
	waits := !slices.ContainsFunc(w.taken, func(t taken) bool { return t.step.Do != powercycle.Wait })
	if removed && waits {
		at = w.kept.restored.Until(w.now)
	}
	return removed, at
}

// noteDone keeps that step was done to host or node.
func (r *Reconciler) noteDone(w *observed, step powercycle.Step) {
	switch step.Do {
	case powercycle.KeepOff, powercycle.AskReceipt, powercycle.Reboot, powercycle.Fence, powercycle.MarkHost:
	default:
		return
	}
	before := w.didBefore()
	w.kept.hostUID, w.kept.attempt, w.kept.state = w.found.Host.UID, w.record.Attempt, step.Next
	w.kept.did = before.Again(step.Do, w.now)
	r.kept.Store(client.ObjectKeyFromObject(w.rem), w.kept)
}

// didBefore is what was done last to host or node; zero if that was to another host, in another attempt, or in another state.
func (w *observed) didBefore() powercycle.Did {
	host := w.found.Host
	if host == nil || host.UID != w.kept.hostUID || w.record.Attempt != w.kept.attempt || w.record.State != w.kept.state {
		return powercycle.Did{}
	}
	return w.kept.did
}

// observeUndoers reads who may have undone what was done, if step is about that: the clients that have written host or node since.
func (r *Reconciler) observeUndoers(ctx context.Context, w *observed, step powercycle.Step) error {
	if step.Reason != powercycle.StepUndoneReason {
		return nil
	}
	if w.record.State == powercycle.MovingWorkload && w.seen.Node != nil {
		w.undoers = undone.WritersSince(w.seen.Node, "", w.kept.did.At)
		return nil
	}
	found := w.found
	if err := r.Hosts.Refresh(ctx, &found); err != nil || found.Host == nil {
		return err
	}
	w.undoers = undone.WritersSince(found.Host, "", w.kept.did.At)
	return nil
}
