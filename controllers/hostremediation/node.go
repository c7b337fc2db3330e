package hostremediation

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

const (
	// drainRecheck is how soon to read a node again that is being drained, should its watch have reported nothing.
	drainRecheck = 20 * time.Second
	// unreachableRecheck is how soon to read again from a workload cluster that did not answer.
	unreachableRecheck = 10 * time.Second
)

// observeNode observes the node. The workload cluster is asked only where a step depends on its answer: power is switched off and on without it, since a dead
// control plane is the very case in which that is needed.
func (r *Reconciler) observeNode(ctx context.Context, w *observed) {
	name := w.nodeName()
	w.facts.Discarded = w.cluster == nil || !w.cluster.DeletionTimestamp.IsZero()
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
	if needsNode(w) {
		r.readNode(ctx, w, w.nodeName())
	}
}

// answering is ctx with the one deadline of all that a reconcile reads from the workload cluster. It counts from the first read, since the facts are stated
// anew after each step that is only remembered.
func (w *observed) answering(ctx context.Context) (context.Context, context.CancelFunc) {
	if !w.answersUntil.IsZero() {
		return context.WithDeadline(ctx, w.answersUntil)
	}
	ctx, done := context.WithTimeout(ctx, workload.AnswerWithin)
	w.answersUntil, _ = ctx.Deadline()
	return ctx, done
}

// followNode enqueues the remediation when something leaves the node, while the workload moves.
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
		if err := r.Nodes.Watch(ctx, cluster, name); err != nil {
			w.recheckAfter(unreachableRecheck) // it is read again after drainRecheck anyway
		}
		r.update(client.ObjectKeyFromObject(w.rem), func(k *kept) {
			if former := k.watched; former.Node != "" && former.Node != name { // its kubelet has registered under another name
				r.Nodes.Unwatch(former.Cluster, former.Node)
			}
			k.watched = fence.Place{Cluster: cluster, Node: name}
		})
	}
}

// readNode reads the node past the cache, and what is left on it.
func (r *Reconciler) readNode(ctx context.Context, w *observed, name string) {
	cluster := client.ObjectKeyFromObject(w.cluster)
	seen, err := r.Nodes.Look(ctx, cluster, name, w.signs())
	for _, trouble := range []error{seen.Cause, err} {
		if trouble != nil {
			w.unreadable(trouble)
		}
	}
	if seen.Presence == fence.Present {
		r.claimFence(ctx, w, &seen)
	}
	w.seen, w.facts.Node = seen, presence[seen.Presence]
	w.facts.Fenced, w.facts.FencedByUs, w.facts.Drained = seen.Fenced, seen.Ours, seen.Drained
	w.facts.Inherited, w.facts.Idle = seen.Inherited, len(seen.Idle) > 0
	w.facts.Discarded = w.facts.Discarded || seen.Deleting
	w.facts.Looked = seen.Presence != fence.Unseen
	w.facts.Sign, w.facts.NewBoot = w.signOfLife()
	moving := w.facts.State == powercycle.MovingWorkload || seen.Ours && seen.Fenced
	if moving && !seen.Drained || w.facts.State == powercycle.PoweringOn || w.record.Lived {
		w.recheckAfter(drainRecheck)
	}
}

// signOfLife is the last one of the node, and whether it has booted since it was fenced. While its host powers on, a sign of a boot that
// is not known is none.
func (w *observed) signOfLife() (sign time.Time, booted bool) {
	if w.seen.Node != nil && w.record.BootID != "" && w.seen.Node.Status.NodeInfo.BootID != "" {
		return w.seen.Sign, w.seen.Node.Status.NodeInfo.BootID != w.record.BootID
	}
	if w.facts.State == powercycle.PoweringOn || w.facts.State == powercycle.Booting {
		return time.Time{}, false
	}
	return w.seen.Sign, false
}

// claimFence takes over a fence on the machine's node if the remediation that has signed it is gone: nothing else would ever remove it. In doubt it is not
// taken over, nor is a fence on the node of another machine.
func (r *Reconciler) claimFence(ctx context.Context, w *observed, seen *fence.Seen) {
	if w.facts.NodeMismatch = w.mismatched(seen.Node); w.facts.NodeMismatch {
		seen.Ours, seen.Inherited = seen.Ours && !seen.Inherited, false
		return
	}
	known := w.machine != nil && (w.machine.Status.NodeRef.Name == seen.Node.Name || w.node != nil && w.node.Name == seen.Node.Name)
	if seen.Ours || seen.Mark == "" || !known {
		return
	}
	existing, err := r.Installed.In(ctx, r.Client, w.rem.GetNamespace())
	if err != nil || existing.Has(seen.Mark) {
		return
	}
	w.predecessor, seen.Ours, seen.Inherited = seen.Mark, true, fence.OutOfService(seen.Node)
}

// mismatched reports whether node, which has the name of the machine's node, is another one: it belongs to another machine by its provider ID, or it is not the
// node of before the power cycle.
func (w *observed) mismatched(node *corev1.Node) bool {
	if node == nil || w.machine == nil {
		return false
	}
	if !health.IsNodeOf(w.named(), node) {
		return true
	}
	return w.record.State == powercycle.MovingWorkload && w.record.NodeUID != "" && w.record.NodeUID != node.UID
}

// presence maps what package fence has read to the fact.
var presence = map[fence.Presence]powercycle.Node{
	fence.Unseen: powercycle.NodeUnseen, fence.Absent: powercycle.NodeAbsent, fence.Present: powercycle.NodePresent,
}

// observeCached reads the node from the cache, which is enough to judge whether the machine is healthy.
func (r *Reconciler) observeCached(ctx context.Context, w *observed, name string) {
	key := client.ObjectKeyFromObject(w.cluster)
	var watches []clustercache.Watcher
	w.facts.BootUnread = w.record.BootID == ""
	if !r.Unwatched {
		if r.controller.Load() == nil { // it is being set up
			w.recheckAfter(consistency.Wait(1))
			return
		}
		watches = append(watches, r.nodeWatch(key))
	}
	link, err := r.Clusters.View(ctx, key, w.now, watches...)
	if err != nil {
		w.unreadable(err)
		if w.record.State == powercycle.Rebooting {
			w.recheckAfter(retry)
		}
		return
	}
	w.facts.BootUnread = w.facts.BootUnread && link.Link != workload.Up && link.Link != workload.Down
	w.facts.OutOfReach = link.Link != workload.Up
	w.facts.ClusterChanged = link.Changed != nil
	if w.facts.OutOfReach {
		w.unseenBecause = cmp.Or(workload.Plain(link.Changed), "the workload cluster cannot be reached")
		if link.Changed == nil && link.Silent {
			w.unseenBecause = workload.Plain(workload.ErrSilent)
		}
		if link.Recheck > 0 && !w.facts.State.Final() { // else an event comes, or no step depends on it
			w.recheckAfter(max(link.Recheck, retry))
		}
		return
	}
	if link.Keep != nil {
		link.Keep(ctx)
	}
	if w.node = link.Node(name); w.machine != nil {
		w.observeOwnNode(link)
	}
	r.judge(ctx, w)
}

// observeOwnNode finds the node of the machine in the cache, by its provider ID or its name. Of several nodes of one provider ID none is.
func (w *observed) observeOwnNode(view workload.View) {
	machine := w.named()
	node, other := view.NodeOf(machine)
	w.node = node
	if other == nil {
		return
	}
	twin := health.Other{Name: other.Name, ProviderID: other.Spec.ProviderID, Wanted: machine.Spec.ProviderID}
	if twin.Twin() {
		w.facts.Twins, w.twin = true, "Node "+twin.Name+" is one of them"
	}
}

// judge judges whether the machine is healthy, by its node in the cache.
func (r *Reconciler) judge(ctx context.Context, w *observed) {
	cycled := w.record.State == powercycle.Booting || w.record.State == powercycle.PoweringOn
	w.facts.Up = cycled && w.record.BootID != "" && w.booted()
	w.unhealthy = r.unhealthyFor(ctx, w)
	w.facts.Healthy = w.booted() && w.unhealthy == ""
	if w.facts.Healthy && remediation.MarkedUnhealthy(w.machine) && !r.healthyToCheck(w) {
		judged, err := remediation.Judged(ctx, r.Client, w.machine)
		w.facts.Healthy = err == nil && !judged // a health check that judges the machine, as one may in doubt, will mark it healthy again
	}
	w.facts.Unhealthy = !w.facts.Healthy && w.node != nil
}

// healthyToCheck reports whether the MachineHealthCheck that made the remediation finds the machine healthy: HealthCheckSucceeded is False
// also if another check alone says so.
func (r *Reconciler) healthyToCheck(w *observed) bool {
	made, marked := remediationrequest.MadeBy(w.rem)
	if r.Finds == nil || !marked {
		return false
	}
	healthy, known := r.Finds(client.ObjectKey{Namespace: w.rem.GetNamespace(), Name: made.Name}, w.machine.UID)
	return healthy && known
}

// needsNode reports whether the step depends on what is on the node, which only the workload cluster itself knows: while the
// workload moves, and where the node may be fenced by this remediation, or was and has lived since.
func needsNode(w *observed) bool {
	switch w.facts.State {
	case powercycle.MovingWorkload:
		return true
	case "", powercycle.Pending:
		return false
	case powercycle.PoweringOn:
		if w.facts.HasPowerAnnotations {
			return false // its release does not wait for the workload cluster
		}
	}
	return w.record.Fencing || w.record.Lived
}

// nodeName is the name of the machine's Node, or the one in the record; empty if there never was a Node. A kubelet may have registered
// again under another name than status.nodeRef of the Machine has: the pods of the host are bound to that Node, so that fencing the name
// of before would move nothing.
func (w *observed) nodeName() string {
	switch {
	case w.machine == nil:
		return w.record.Node
	case w.node != nil:
		return w.node.Name
	case w.record.Node != "" && (w.record.Fencing || w.record.NodeUID != ""): // as it was seen, since the cache may show no Node now
		return w.record.Node
	}
	return cmp.Or(w.machine.Status.NodeRef.Name, w.record.Node)
}

// named is the machine with the name of its node, which the record keeps where the machine has lost it.
func (w *observed) named() *clusterv1.Machine {
	m := *w.machine
	m.Status.NodeRef.Name = cmp.Or(m.Status.NodeRef.Name, w.record.Node)
	return &m
}

// booted reports whether the node is ready under another boot than before the power cycle. A node stays ready for a while after its host is off, so that it is
// ready under the old boot proves nothing.
func (w *observed) booted() bool {
	if w.node == nil || w.machine == nil || readyOf(w.node) != corev1.ConditionTrue || w.mismatched(w.node) {
		return false
	}
	cycled := w.record.State == powercycle.Booting || w.record.State == powercycle.PoweringOn
	return !cycled || w.record.BootID == "" || w.record.BootID != w.node.Status.NodeInfo.BootID
}

func readyOf(node *corev1.Node) corev1.ConditionStatus {
	if ready := conditionOf(node, corev1.NodeReady); ready != nil && ready.Status != "" {
		return ready.Status
	}
	return corev1.ConditionUnknown
}

// unreadable notes why the node cannot be read.
func (w *observed) unreadable(err error) {
	w.unseenBecause = workload.Plain(err)
	w.recheckAfter(unreachableRecheck)
}

// recheckAfter enqueues the remediation after d at the latest.
func (w *observed) recheckAfter(d time.Duration) {
	if at := w.now.Add(d); w.recheck.IsZero() || at.Before(w.recheck) {
		w.recheck = at
	}
}

// unhealthyFor is the unhealthy condition of the NodeHealthCheck that asked for the remediation of w which the node has, for however short; empty if it has
// none, or the check cannot be read. A node may be Ready and be remediated for another condition: that it is Ready proves nothing then.
func (r *Reconciler) unhealthyFor(ctx context.Context, w *observed) string {
	if w.node == nil {
		return ""
	}
	for _, owner := range w.rem.GetOwnerReferences() {
		if gv, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || gv.Group != nhcv1.GroupVersion.Group || owner.Kind != "NodeHealthCheck" {
			continue
		}
		check := &nhcv1.NodeHealthCheck{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: owner.Name}, check); err != nil || check.UID != owner.UID {
			continue // Ready is all that the node is judged by
		}
		for _, rule := range check.Spec.UnhealthyConditions {
			if cond := conditionOf(w.node, rule.Type); cond != nil && cond.Status == rule.Status {
				return fmt.Sprintf("NodeHealthCheck %s marks a node unhealthy that has %s=%s", check.Name, rule.Type, rule.Status)
			}
		}
	}
	return ""
}

// conditionOf is a condition of node; nil if the node is nil or does not have it.
func conditionOf(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	if node == nil {
		return nil
	}
	for i := range node.Status.Conditions {
		if cond := &node.Status.Conditions[i]; cond.Type == kind {
			return cond
		}
	}
	return nil
}
