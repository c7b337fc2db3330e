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
	// drainRecheck is how soon to read a node again that is being drained, lifeRecheck one that may show life: neither pods nor leases
	// are watched.
	drainRecheck, lifeRecheck = 5 * time.Second, 20 * time.Second
	// unreachableRecheck is how soon to read again from a workload cluster that did not answer.
	unreachableRecheck = 10 * time.Second
)

// observeNode observes the node. The workload cluster is asked only where a step depends on its answer: power is switched off and on
// without it, since a dead control plane is the very case in which that is needed.
func (r *Reconciler) observeNode(ctx context.Context, obs *observed) {
	name := obs.nodeName()
	obs.facts.Discarded = obs.cluster == nil || !obs.cluster.DeletionTimestamp.IsZero()
	if name == "" {
		obs.facts.Node, obs.facts.Drained = powercycle.NodeAbsent, true
		return
	}
	obs.facts.Node = powercycle.NodeUnseen
	if obs.cluster == nil {
		obs.unseenBecause = "its Cluster does not exist"
		return
	}
	ctx, done := obs.answering(ctx)
	defer done()
	r.observeCached(ctx, obs, name)
	if needsNode(obs) {
		r.readNode(ctx, obs, obs.nodeName())
	}
}

// answering is ctx with the one deadline of all that a reconcile reads from the workload cluster. It counts from the first read, since the
// facts are stated anew after each step that is only remembered.
func (obs *observed) answering(ctx context.Context) (context.Context, context.CancelFunc) {
	if !obs.answersUntil.IsZero() {
		return context.WithDeadline(ctx, obs.answersUntil)
	}
	ctx, done := context.WithTimeout(ctx, workload.AnswerWithin)
	obs.answersUntil, _ = ctx.Deadline()
	return ctx, done
}

// readNode reads the node past the cache, and what is left on it.
func (r *Reconciler) readNode(ctx context.Context, obs *observed, name string) {
	cluster := client.ObjectKeyFromObject(obs.cluster)
	var seen fence.Seen
	var err error
	if obs.unfenced != nil {
		seen = *obs.unfenced
	} else {
		seen, err = r.Nodes.Look(ctx, cluster, name, r.signs(obs))
	}
	if err != nil {
		obs.unreadable(err)
	}
	if seen.Presence == powercycle.NodePresent {
		r.claimFence(ctx, obs, &seen)
	}
	obs.seen, obs.facts.Node = seen, seen.Presence
	obs.facts.Fenced, obs.facts.FencedByUs, obs.facts.Drained = seen.Fenced, seen.Ours, seen.Drained
	obs.facts.Inherited, obs.facts.Idle = seen.Inherited, len(seen.Idle) > 0
	obs.facts.Discarded = obs.facts.Discarded || seen.Deleting
	obs.facts.Looked = seen.Presence != powercycle.NodeUnseen
	obs.facts.Sign, obs.facts.NewBoot = obs.signOfLife()
	moving := obs.facts.State == powercycle.MovingWorkload || seen.Ours && seen.Fenced
	switch {
	case moving && !seen.Drained:
		obs.recheckAfter(drainRecheck)
	case obs.facts.State == powercycle.PoweringOn || obs.record.Lived:
		obs.recheckAfter(lifeRecheck)
	}
}

// signOfLife is the last one of the node, and whether it has booted since it was fenced. While its host powers on, a sign of a boot that
// is not known is none.
func (obs *observed) signOfLife() (sign time.Time, booted bool) {
	if obs.seen.Node != nil && obs.record.BootID != "" && obs.seen.Node.Status.NodeInfo.BootID != "" {
		return obs.seen.Sign, obs.seen.Node.Status.NodeInfo.BootID != obs.record.BootID
	}
	if obs.facts.State == powercycle.PoweringOn || obs.facts.State == powercycle.Booting {
		return time.Time{}, false
	}
	return obs.seen.Sign, false
}

// claimFence takes over a fence on the machine's node if the remediation that has signed it is gone: nothing else would ever remove it. In
// doubt it is not taken over, nor is a fence on the node of another machine.
func (r *Reconciler) claimFence(ctx context.Context, obs *observed, seen *fence.Seen) {
	if obs.facts.NodeMismatch = obs.mismatched(seen.Node); obs.facts.NodeMismatch {
		seen.Ours, seen.Inherited = seen.Ours && !seen.Inherited, false
		return
	}
	known := obs.machine != nil && (obs.machine.Status.NodeRef.Name == seen.Node.Name || obs.node != nil && obs.node.Name == seen.Node.Name)
	if seen.Ours || seen.Mark == "" || !known {
		return
	}
	existing, err := r.Installed.In(ctx, r.Client, obs.rem.GetNamespace())
	if err != nil || existing.Has(seen.Mark) {
		return
	}
	obs.predecessor, seen.Ours, seen.Inherited = seen.Mark, true, seen.Fenced
}

// mismatched reports whether node, which has the name of the machine's node, is another one: it belongs to another machine by its provider
// ID, or it is not the node of before the power cycle.
func (obs *observed) mismatched(node *corev1.Node) bool {
	if node == nil || obs.machine == nil {
		return false
	}
	if !health.IsNodeOf(obs.named(), node) {
		return true
	}
	return obs.record.State == powercycle.MovingWorkload && obs.record.NodeUID != "" && obs.record.NodeUID != node.UID
}

// observeCached reads the node from the cache, which is enough to judge whether the machine is healthy.
func (r *Reconciler) observeCached(ctx context.Context, obs *observed, name string) {
	key := client.ObjectKeyFromObject(obs.cluster)
	var watches []clustercache.Watcher
	obs.facts.BootUnread = obs.record.BootID == ""
	if !r.Unwatched {
		if r.controller.Load() == nil { // it is being set up
			obs.recheckAfter(consistency.Wait(1))
			return
		}
		watches = append(watches, r.nodeWatch(key))
	}
	link, err := r.Clusters.View(ctx, key, obs.now, watches...)
	if err != nil {
		obs.unreadable(err)
		if obs.record.State == powercycle.Rebooting {
			obs.recheckAfter(retry)
		}
		return
	}
	obs.facts.BootUnread = obs.facts.BootUnread && link.Link != workload.Up && link.Link != workload.Down
	obs.facts.OutOfReach = link.Link != workload.Up
	obs.facts.ClusterChanged = link.Changed != nil
	if obs.facts.OutOfReach {
		obs.unseenBecause = cmp.Or(workload.Plain(link.Changed), "the workload cluster cannot be reached")
		if link.Changed == nil && link.Silent {
			obs.unseenBecause = workload.Plain(workload.ErrSilent)
		}
		if link.Recheck > 0 && !obs.facts.State.Final() { // else an event comes, or no step depends on it
			obs.recheckAfter(max(link.Recheck, retry))
		}
		return
	}
	if link.Keep != nil {
		link.Keep(ctx)
	}
	if obs.node = link.Node(name); obs.machine != nil {
		obs.observeOwnNode(link)
	}
	r.judge(ctx, obs)
}

// observeOwnNode finds the node of the machine in the cache, by its provider ID or its name. Of several nodes of one provider ID none is.
func (obs *observed) observeOwnNode(view workload.View) {
	machine := obs.named()
	node, other := view.NodeOf(machine)
	obs.node = node
	if other == nil {
		return
	}
	twin := health.Other{Name: other.Name, ProviderID: other.Spec.ProviderID, Wanted: machine.Spec.ProviderID}
	if twin.Twin() {
		obs.facts.Twins, obs.twin = true, "Node "+twin.Name+" is one of them"
	}
}

// judge judges whether the machine is healthy, by its node in the cache.
func (r *Reconciler) judge(ctx context.Context, obs *observed) {
	cycled := obs.record.State == powercycle.Booting || obs.record.State == powercycle.PoweringOn
	obs.facts.Up = cycled && obs.record.BootID != "" && obs.booted()
	obs.unhealthy = r.unhealthyFor(ctx, obs)
	obs.facts.Healthy = obs.booted() && obs.unhealthy == ""
	if obs.facts.Healthy && remediation.MarkedUnhealthy(obs.machine) {
		made, marked := remediationrequest.MadeBy(obs.rem)
		healthy, known := false, false // to the check that made the request: another one alone may have marked the machine
		if marked && r.Finds != nil {
			healthy, known = r.Finds(client.ObjectKey{Namespace: obs.rem.GetNamespace(), Name: made.Name}, obs.machine.UID)
		}
		if !healthy || !known { // a health check that judges the machine, as one may in doubt, will mark it healthy again
			judged, err := remediation.Judged(ctx, r.Client, obs.machine)
			obs.facts.Healthy = err == nil && !judged
		}
	}
	obs.facts.Unhealthy = !obs.facts.Healthy && obs.node != nil
}

// needsNode reports whether the step depends on what is on the node, which only the workload cluster itself knows: while the
// workload moves, and where the node may be fenced by this remediation, or was and has lived since.
func needsNode(obs *observed) bool {
	switch obs.facts.State {
	case powercycle.MovingWorkload:
		return true
	case "", powercycle.Pending:
		return false
	case powercycle.PoweringOn:
		if obs.facts.HasPowerAnnotations {
			return false // its release does not wait for the workload cluster
		}
	}
	return obs.record.Fencing || obs.record.Lived
}

// nodeName is the name of the machine's Node, or the one in the record; empty if there never was a Node. A kubelet may have registered
// again under another name than status.nodeRef of the Machine has: the pods of the host are bound to that Node, so that fencing the name
// of before would move nothing.
func (obs *observed) nodeName() string {
	switch {
	case obs.machine == nil:
		return obs.record.Node
	case obs.node != nil:
		return obs.node.Name
	case obs.record.Node != "" && (obs.record.Fencing || obs.record.NodeUID != ""): // as it was seen, since the cache may show no Node now
		return obs.record.Node
	}
	return cmp.Or(obs.machine.Status.NodeRef.Name, obs.record.Node)
}

// named is the machine with the name of its node, which the record keeps where the machine has lost it.
func (obs *observed) named() *clusterv1.Machine {
	m := *obs.machine
	m.Status.NodeRef.Name = cmp.Or(m.Status.NodeRef.Name, obs.record.Node)
	return &m
}

// booted reports whether the node is ready under another boot than before the power cycle. A node stays ready for a while after its host is
// off, so that it is ready under the old boot proves nothing.
func (obs *observed) booted() bool {
	if obs.machine == nil || !health.Ready(obs.node) || obs.mismatched(obs.node) {
		return false
	}
	cycled := obs.record.State == powercycle.Booting || obs.record.State == powercycle.PoweringOn
	return !cycled || obs.record.BootID == "" || obs.record.BootID != obs.node.Status.NodeInfo.BootID
}

// unreadable notes why the node cannot be read.
func (obs *observed) unreadable(err error) {
	obs.unseenBecause = workload.Plain(err)
	obs.recheckAfter(unreachableRecheck)
}

// recheckAfter enqueues the remediation after d at the latest.
func (obs *observed) recheckAfter(d time.Duration) {
	if at := obs.now.Add(d); obs.recheck.IsZero() || at.Before(obs.recheck) {
		obs.recheck = at
	}
}

// unhealthyFor is the unhealthy condition of the NodeHealthCheck that asked for the remediation of obs which the node has, for however
// short; empty if it has none, or the check cannot be read. A node may be Ready and be remediated for another condition: that it is Ready
// proves nothing then.
func (r *Reconciler) unhealthyFor(ctx context.Context, obs *observed) string {
	if obs.node == nil {
		return ""
	}
	for _, owner := range obs.rem.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil || gv.Group != nhcv1.GroupVersion.Group || owner.Kind != "NodeHealthCheck" {
			continue
		}
		check := &nhcv1.NodeHealthCheck{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: owner.Name}, check); err != nil || check.UID != owner.UID {
			continue // Ready is all that the node is judged by
		}
		for _, rule := range check.Spec.UnhealthyConditions {
			if cond := conditionOf(obs.node, rule.Type); cond != nil && cond.Status == rule.Status {
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
