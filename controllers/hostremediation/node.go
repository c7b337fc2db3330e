package hostremediation

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// drainRecheck is how soon to look again at a node that is being emptied, should the watch on it have told nothing.
const drainRecheck = 20 * time.Second

// unreachableRecheck is how soon to ask again a workload cluster that could not be asked.
const unreachableRecheck = 10 * time.Second

// observeNode finds out what there is of the node. Nothing is asked of the workload cluster but where the answer decides: power is
// switched off and on without it, because a control plane that is dead is the very case in which it is needed.
func (r *Reconciler) observeNode(ctx context.Context, w *observed) {
	name := w.nodeName()
	if name == "" {
		w.facts.Node, w.facts.Drained = powercycle.NodeAbsent, true
		return
	}
	w.facts.Node = powercycle.NodeUnseen
	if w.cluster == nil {
		w.unseenBecause = "its Cluster does not exist"
		return
	}
	ctx, done := w.answering(ctx)
	defer done()
	r.observeCached(ctx, w, name)
	if needsNode(w) && !r.fencedInCache(ctx, w) {
		r.readNode(ctx, w, name)
	}
}

// answering is ctx with the one deadline of all that a reconcile reads from the workload cluster, from the first time on that it does: the facts are
// stated anew after each step that is only remembered.
func (w *observed) answering(ctx context.Context) (context.Context, context.CancelFunc) {
	if !w.answersUntil.IsZero() {
		return context.WithDeadline(ctx, w.answersUntil)
	}
	ctx, done := context.WithTimeout(ctx, workload.AnswerWithin)
	w.answersUntil, _ = ctx.Deadline()
	return ctx, done
}

// fencedInCache reports whether the cache shows our fence on the node, where no more has to be known than that: it is taken off without a look at the
// node itself. What has to be given back to a node is not in the cache.
func (r *Reconciler) fencedInCache(ctx context.Context, w *observed) bool {
	switch w.facts.State {
	case powercycle.MovingWorkload, powercycle.PoweringOff, powercycle.PoweringOn:
		return false
	}
	if w.node == nil || !w.backup().Empty() {
		return false
	}
	seen := fence.SeenOf(w.node, w.signs())
	r.claimFence(ctx, w, &seen)
	if !seen.Ours {
		return false
	}
	w.seen, w.facts.Node, w.facts.Fenced, w.facts.FencedByUs, w.facts.Inherited = seen, powercycle.NodePresent, seen.Fenced, true, seen.Inherited
	return true
}

// followNode has what leaves the node enqueue the remediation while the workload moves.
func (r *Reconciler) followNode(ctx context.Context, w *observed) {
	name := w.nodeName()
	if w.cluster == nil || name == "" {
		return
	}
	cluster := client.ObjectKeyFromObject(w.cluster)
	switch {
	case w.facts.State != powercycle.MovingWorkload:
		r.Nodes.Unwatch(cluster, name)
	case w.seen.Waits():
		ctx, done := w.answering(ctx)
		defer done()
		if err := r.Nodes.Watch(ctx, cluster, name, w.seen); err != nil {
			w.lookAgain(unreachableRecheck) // until then drainRecheck has to do
		}
	}
}

// readNode asks the workload cluster itself for the node, and what is left on it.
func (r *Reconciler) readNode(ctx context.Context, w *observed, name string) {
	cluster, emptying := client.ObjectKeyFromObject(w.cluster), w.facts.State == powercycle.MovingWorkload
	seen, err := r.Nodes.Look(ctx, cluster, name, w.signs())
	for _, trouble := range []error{seen.Cause, err} {
		if trouble != nil {
			w.cannotSee(trouble)
		}
	}
	if seen.Presence == fence.Present {
		r.claimFence(ctx, w, &seen)
	}
	w.seen, w.facts.Node = seen, presence[seen.Presence]
	w.facts.Fenced, w.facts.FencedByUs, w.facts.Drained = seen.Fenced, seen.Ours || !w.backup().Empty(), seen.Drained
	w.facts.Inherited = seen.Inherited
	w.facts.Looked = seen.Presence != fence.Unseen
	w.facts.Sign = seen.Sign
	if seen.Node != nil && w.record.BootID != "" && seen.Node.Status.NodeInfo.BootID != "" {
		w.facts.NewBoot = seen.Node.Status.NodeInfo.BootID != w.record.BootID
	}
	if emptying && !seen.Drained {
		w.lookAgain(drainRecheck)
	}
}

// claimFence makes a fence that is on the machine's node ours if the remediation that has signed it is gone: nobody else would ever take it away. In
// doubt it is not, nor is anything on the node of another machine but what we have signed.
func (r *Reconciler) claimFence(ctx context.Context, w *observed, seen *fence.Seen) {
	if w.facts.NodeMismatch = w.mismatched(seen.Node); w.facts.NodeMismatch {
		seen.Ours, seen.Inherited = seen.Ours && !seen.Inherited, false
		return
	}
	if seen.Ours || seen.Mark == "" || w.machine == nil || w.machine.Status.NodeRef.Name != seen.Node.Name {
		return
	}
	living, err := r.census(ctx, w)
	if err != nil {
		w.unasked = append(w.unasked, err)
		return
	}
	if living.lives(seen.Mark) {
		return
	}
	w.predecessor, seen.Ours, seen.Inherited = seen.Mark, true, fence.OutOfService(seen.Node)
}

// mismatched reports whether node, which has the name of the machine's node, is not that: it belongs to another machine by its provider ID, or it is
// not the one that was there before the power cycle. One that we have deleted ourselves is another one when it is back.
func (w *observed) mismatched(node *corev1.Node) bool {
	if node == nil || w.machine == nil {
		return false
	}
	if is, want := node.Spec.ProviderID, w.machine.Spec.ProviderID; is != "" && want != "" && is != want {
		return true
	}
	return w.record.State == powercycle.MovingWorkload && w.record.NodeUID != "" && w.record.NodeUID != node.UID
}

// presence is what package fence calls what there is of a node.
var presence = map[fence.Presence]powercycle.Node{
	fence.Unseen: powercycle.NodeUnseen, fence.Absent: powercycle.NodeAbsent, fence.Present: powercycle.NodePresent,
}

// observeCached reads the node as the cache has it, which is enough to say whether the machine is well.
func (r *Reconciler) observeCached(ctx context.Context, w *observed, name string) {
	key := client.ObjectKeyFromObject(w.cluster)
	var watches []clustercache.Watcher
	w.facts.BootUnread = w.record.BootID == ""
	if !w.looks && !r.Unwatched {
		if r.controller.Load() == nil { // it is being set up
			w.lookAgain(consistency.Lag)
			return
		}
		watches = append(watches, r.nodeWatch(key))
	}
	link, err := r.Clusters.View(ctx, key, w.now, watches...)
	if err != nil {
		w.cannotSee(err)
		if w.record.State == powercycle.Rebooting {
			w.lookAgain(impatience)
		}
		return
	}
	w.facts.BootUnread = w.facts.BootUnread && link.Link != workload.Up && link.Link != workload.Down
	w.facts.OutOfReach = link.Link != workload.Up
	if w.facts.OutOfReach {
		w.unseenBecause = "the workload cluster cannot be reached"
		if link.Silent {
			w.unseenBecause = workload.ErrSilent.Error()
		}
		if link.Recheck > 0 && !w.facts.State.Final() { // else an event will come, or nothing depends on it
			w.lookAgain(max(link.Recheck, impatience))
		}
		return
	}
	w.node = link.Node(name)
	r.judge(ctx, w)
}

// judge says whether the machine is well, by its node as the cache has it.
func (r *Reconciler) judge(ctx context.Context, w *observed) {
	cycled := w.record.State == powercycle.Booting || w.record.State == powercycle.PoweringOn
	w.facts.Up = cycled && w.record.BootID != "" && w.booted()
	w.unhealthy = r.unhealthyFor(ctx, w)
	w.facts.Healthy = w.booted() && w.unhealthy == "" && (!markedUnhealthy(w.machine) || !r.stillJudged(ctx, w))
	w.facts.Unhealthy = !w.facts.Healthy && w.node != nil
}

// stillJudged reports whether the health check that calls the machine bad will take that back when it is not so any more. In doubt it will.
func (r *Reconciler) stillJudged(ctx context.Context, w *observed) bool {
	still, err := judged(ctx, r.Client, w.machine)
	return err != nil || still
}

// needsNode reports whether the step depends on what is on the node, which only the workload cluster itself knows. While the workload
// moves, it does; else where something of ours may be there that has to go. (PoweringOn leaves that to Booting, unless it is paused.)
func needsNode(w *observed) bool {
	switch w.facts.State {
	case powercycle.MovingWorkload:
		return true
	case "", powercycle.Pending:
		return false
	case powercycle.PoweringOn:
		if !w.facts.Paused {
			return false
		}
	}
	return w.record.Fencing || !w.backup().Empty()
}

// nodeName is the name of the machine's node, or that which is remembered; empty if it never had one.
func (w *observed) nodeName() string {
	if w.machine != nil && w.machine.Status.NodeRef.Name != "" {
		return w.machine.Status.NodeRef.Name
	}
	return w.record.Node
}

// booted reports whether the node is ready, under another boot than before the power cycle. A node stays ready for a while when its host
// goes off, so that it is ready under the old boot says nothing.
func (w *observed) booted() bool {
	if w.node == nil || w.machine == nil || readyOf(w.node) != corev1.ConditionTrue || w.mismatched(w.node) {
		return false
	}
	cycled := w.record.State == powercycle.Booting || w.record.State == powercycle.PoweringOn
	return !cycled || w.record.BootID == "" || w.record.BootID != w.node.Status.NodeInfo.BootID
}

func readyOf(node *corev1.Node) corev1.ConditionStatus {
	return cmp.Or(statusOf(node, corev1.NodeReady), corev1.ConditionUnknown)
}

// cannotSee notes why the node cannot be seen.
func (w *observed) cannotSee(err error) {
	w.unseenBecause = explain.Plain(err)
	w.lookAgain(unreachableRecheck)
	if errors.Is(err, ErrUnasked) {
		w.unasked = append(w.unasked, err)
	}
}

// lookAgain makes the remediation be looked at after d at the latest.
func (w *observed) lookAgain(d time.Duration) {
	if at := w.now.Add(d); w.recheck.IsZero() || at.Before(w.recheck) {
		w.recheck = at
	}
}
