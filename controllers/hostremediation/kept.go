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

// recall gives obs the record that this process has kept, if no other client has stored another one since: a webhook may have refused it,
// and somebody may have removed it.
func (r *Reconciler) recall(obs *observed) {
	value, _ := r.kept.Load(client.ObjectKeyFromObject(obs.rem))
	obs.kept, _ = value.(kept)
	if obs.kept.uid != obs.rem.GetUID() {
		obs.kept = kept{uid: obs.rem.GetUID()}
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

// keep keeps the record of obs, and what is stored of it.
func (r *Reconciler) keep(obs *observed, stored map[string]string) {
	obs.kept.stored, obs.kept.record = stored, obs.rem.GetAnnotations()[mendv1.PowerCycleAnnotation]
	r.kept.Store(client.ObjectKeyFromObject(obs.rem), obs.kept)
}

// restores reports whether what was stored of obs was removed, and when it may be stored again if nothing else is to be.
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

// noteDone keeps that step was done to host or node.
func (r *Reconciler) noteDone(obs *observed, step powercycle.Step) {
	switch step.Do {
	case powercycle.KeepOff, powercycle.AskReceipt, powercycle.Reboot, powercycle.Fence, powercycle.MarkHost:
	default:
		return
	}
	before := obs.didBefore()
	obs.kept.hostUID, obs.kept.attempt, obs.kept.state = obs.found.Host.UID, obs.record.Attempt, step.Next
	obs.kept.did = before.Again(step.Do, obs.now)
	r.kept.Store(client.ObjectKeyFromObject(obs.rem), obs.kept)
}

// didBefore is what was done last to host or node; zero if that was to another host, in another attempt, or in another state.
func (obs *observed) didBefore() powercycle.Did {
	host := obs.found.Host
	if host == nil || host.UID != obs.kept.hostUID || obs.record.Attempt != obs.kept.attempt || obs.record.State != obs.kept.state {
		return powercycle.Did{}
	}
	return obs.kept.did
}

// observeUndoers reads who may have undone what was done, if step is about that: the clients that have written host or node since.
func (r *Reconciler) observeUndoers(ctx context.Context, obs *observed, step powercycle.Step) error {
	if step.Reason != powercycle.StepUndoneReason {
		return nil
	}
	if obs.record.State == powercycle.MovingWorkload && obs.seen.Node != nil {
		obs.undoers = undone.WritersSince(obs.seen.Node, "", obs.kept.did.At)
		return nil
	}
	found := obs.found
	if err := r.Hosts.Refresh(ctx, &found); err != nil || found.Host == nil {
		return err
	}
	obs.undoers = undone.WritersSince(found.Host, "", obs.kept.did.At)
	return nil
}
