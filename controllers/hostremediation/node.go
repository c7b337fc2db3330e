package hostremediation

import (
	"cmp"
	"context"
	"slices"
	"strings"
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
	// drainRecheck is how soon to read a node again whose workload moves. lifeRecheck is the same for a node that may show life. Pods and
	// leases are not watched.
	drainRecheck, lifeRecheck = 5 * time.Second, 20 * time.Second
	// unreachableRecheck is how soon to ask a workload cluster again that did not answer.
	unreachableRecheck = 10 * time.Second
)

// observeNode observes the node. It asks the workload cluster only if a step depends on the answer: a host must be power-cycled even if the
// control plane is dead.
func (r *Reconciler) observeNode(ctx context.Context, obs *observed) {
	name := obs.nodeName()
	obs.facts.Discarded = obs.cluster == nil || !obs.cluster.DeletionTimestamp.IsZero()
	if name == "" {
		obs.facts.Node, obs.facts.Drained = powercycle.NodeAbsent, true
		return
	}
	obs.facts.Node = powercycle.NodeUnseen
	if obs.cluster == nil {
		obs.facts.WhyUnseen = "its Cluster does not exist"
		return
	}
	ctx, done := obs.answering(ctx)
	defer done()
	r.observeCached(ctx, obs, name)
	if needsNode(obs) {
		r.readNode(ctx, obs, obs.nodeName())
	}
}

// answering returns ctx with one deadline for all reads of the workload cluster in this reconcile, which reads anew after each step.
func (obs *observed) answering(ctx context.Context) (context.Context, context.CancelFunc) {
	if !obs.answersUntil.IsZero() {
		return context.WithDeadline(ctx, obs.answersUntil)
	}
	ctx, done := context.WithTimeout(ctx, workload.AnswerWithin)
	obs.answersUntil, _ = ctx.Deadline()
	return ctx, done
}

// readNode reads the node, and what is left on it, past the cache.
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
	obs.facts.Left, obs.facts.LeftCount, obs.facts.IdleVolumes = seen.Left, seen.Count, strings.Join(seen.Idle, ", ")
	obs.facts.Inherited, obs.facts.Discarded = seen.Inherited, obs.facts.Discarded || seen.Deleting
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

// signOfLife returns the last sign of the node, and whether its boot ID has changed. While the host powers on, a sign without a known boot
// ID does not count.
func (obs *observed) signOfLife() (sign time.Time, booted bool) {
	if obs.seen.Node != nil && obs.record.BootID != "" && obs.seen.Node.Status.NodeInfo.BootID != "" {
		return obs.seen.Sign, obs.seen.Node.Status.NodeInfo.BootID != obs.record.BootID
	}
	if obs.facts.State == powercycle.PoweringOn || obs.facts.State == powercycle.Booting {
		return time.Time{}, false
	}
	return obs.seen.Sign, false
}

// claimFence takes over a fence on the machine's node if the remediation that put it there is gone: nobody else would remove it. It leaves
// the fence if the node may belong to another machine, or if the remediations cannot be read.
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

// mismatched reports whether node, which has the name of the machine's node, is another one: its provider ID is another machine's, or it
// has registered again since the power cycle began.
func (obs *observed) mismatched(node *corev1.Node) bool {
	if node == nil || obs.machine == nil {
		return false
	}
	if !health.IsNodeOf(obs.named(), node) {
		return true
	}
	return obs.record.State == powercycle.MovingWorkload && obs.record.NodeUID != "" && obs.record.NodeUID != node.UID
}

// observeCached reads the node from the cache, which is enough to judge the health of the machine.
func (r *Reconciler) observeCached(ctx context.Context, obs *observed, name string) {
	key := client.ObjectKeyFromObject(obs.cluster)
	var watches []clustercache.Watcher
	obs.facts.BootUnread = obs.record.BootID == ""
	if !r.Unwatched {
		if r.controller.Load() == nil { // the controller is being set up
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
		obs.facts.WhyUnseen = cmp.Or(workload.Plain(link.Changed), "the workload cluster cannot be reached")
		if link.Changed == nil && link.Silent {
			obs.facts.WhyUnseen = workload.Plain(workload.ErrSilent)
		}
		if link.Recheck > 0 && !obs.facts.State.Final() { // else an event comes, or nothing depends on it
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

// observeOwnNode finds the machine's node in the cache, by provider ID or name. If several nodes have the provider ID, it takes none.
func (obs *observed) observeOwnNode(view workload.View) {
	machine := obs.named()
	node, other := view.NodeOf(machine)
	obs.node = node
	if other == nil {
		return
	}
	twin := health.Other{Name: other.Name, ProviderID: other.Spec.ProviderID, Wanted: machine.Spec.ProviderID}
	if twin.Twin() {
		obs.facts.Twin = "Node " + twin.Name + " is one of them"
	}
}

func (r *Reconciler) judge(ctx context.Context, obs *observed) {
	cycled := obs.record.State == powercycle.Booting || obs.record.State == powercycle.PoweringOn
	obs.facts.Up = cycled && obs.record.BootID != "" && obs.booted()
	obs.facts.Healthy = obs.booted() && !r.unhealthyFor(ctx, obs) // booted: there is a node
	if obs.facts.Healthy && remediation.MarkedUnhealthy(obs.machine) {
		made, marked := remediationrequest.MadeBy(obs.rem)
		healthy, known := false, false // by the check that made the remediation; only another one may have marked the machine
		if marked && r.Finds != nil {
			healthy, known = r.Finds(client.ObjectKey{Namespace: obs.rem.GetNamespace(), Name: made.Name}, obs.machine.UID)
		}
		if !healthy || !known { // if any check selects the machine, wait until it marks the machine healthy
			judged, err := remediation.Judged(ctx, r.Client, obs.machine)
			obs.facts.Healthy = err == nil && !judged
		}
	}
	obs.facts.Unhealthy = !obs.facts.Healthy && obs.node != nil
}

// needsNode reports whether the step depends on the node or the pods on it, as the workload cluster has them: while the workload moves, and
// while the node may be fenced by us or has lived on.
func needsNode(obs *observed) bool {
	switch obs.facts.State {
	case powercycle.MovingWorkload:
		return true
	case "", powercycle.Pending:
		return false
	case powercycle.PoweringOn:
		if obs.facts.HasPowerAnnotations {
			return false // the release of the host does not wait for the workload cluster
		}
	}
	return obs.record.Fencing || obs.record.Lived
}

// nodeName returns the name of the machine's Node, or the one in the record; empty if there never was a Node. The Node in the cache goes
// before status.nodeRef: if the kubelet has registered with another name, the pods are bound to the new Node, and a fence on the old one
// would move nothing.
func (obs *observed) nodeName() string {
	switch {
	case obs.machine == nil:
		return obs.record.Node
	case obs.node != nil:
		return obs.node.Name
	case obs.record.Node != "" && (obs.record.Fencing || obs.record.NodeUID != ""): // as last seen: the cache may show no Node now
		return obs.record.Node
	}
	return cmp.Or(obs.machine.Status.NodeRef.Name, obs.record.Node)
}

// named returns the machine with the node name of the record in status.nodeRef, if that is empty.
func (obs *observed) named() *clusterv1.Machine {
	m := *obs.machine
	m.Status.NodeRef.Name = cmp.Or(m.Status.NodeRef.Name, obs.record.Node)
	return &m
}

// booted reports whether the node is Ready, after a power cycle with a new boot ID. A node stays Ready for a while after its host is off,
// so that Ready with the old boot ID proves nothing.
func (obs *observed) booted() bool {
	if obs.machine == nil || !health.Ready(obs.node) || obs.mismatched(obs.node) {
		return false
	}
	cycled := obs.record.State == powercycle.Booting || obs.record.State == powercycle.PoweringOn
	return !cycled || obs.record.BootID == "" || obs.record.BootID != obs.node.Status.NodeInfo.BootID
}

func (obs *observed) unreadable(err error) {
	obs.facts.WhyUnseen = workload.Plain(err)
	obs.recheckAfter(unreachableRecheck)
}

// recheckAfter makes the remediation be reconciled again after d at the latest.
func (obs *observed) recheckAfter(d time.Duration) {
	if at := obs.now.Add(d); obs.recheck.IsZero() || at.Before(obs.recheck) {
		obs.recheck = at
	}
}

// unhealthyFor reports whether the node has an unhealthy condition, however recent, by the NodeHealthCheck that made the remediation and
// that can be read. A node may be Ready and be remediated for another condition.
func (r *Reconciler) unhealthyFor(ctx context.Context, obs *observed) bool {
	for _, owner := range obs.rem.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil || gv.Group != nhcv1.GroupVersion.Group || owner.Kind != "NodeHealthCheck" {
			continue
		}
		check := &nhcv1.NodeHealthCheck{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: owner.Name}, check); err != nil || check.UID != owner.UID {
			continue // only Ready counts
		}
		for _, rule := range check.Spec.UnhealthyConditions {
			if slices.ContainsFunc(obs.node.Status.Conditions, func(cond corev1.NodeCondition) bool {
				return cond.Type == rule.Type && cond.Status == rule.Status
			}) {
				return true
			}
		}
	}
	return false
}
