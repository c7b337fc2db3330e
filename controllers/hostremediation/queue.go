package hostremediation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/workload"
)

// queueRecheck is how soon to read the queue again, should an event have been lost.
const queueRecheck = 5 * time.Minute

// placeInQueue observes whether the remediation is first in its queue. The queue is read once in a reconcile, and only where a step depends on it; nothing is
// claimed here.
func (r *Reconciler) placeInQueue(ctx context.Context, w *observed) {
	w.facts.First = true
	if !w.facts.Queues() || w.machine == nil {
		return
	}
	if w.queue == nil {
		r.readQueue(ctx, w)
	}
	w.queue.Self = w.queued()
	w.queue.ManagerHere = r.Self.on(w)
	ahead := w.queue.Ahead(w.now)
	if len(ahead) == 0 {
		return
	}
	w.facts.First, w.facts.ManagerHere = false, ahead[0].Manager
	w.ahead = ahead
	if w.queueErr != nil {
		w.unasked = append(w.unasked, w.queueErr)
	}
	w.recheckAfter(queueRecheck)
	for _, other := range ahead {
		if !other.Until.IsZero() {
			w.recheckAfter(other.Until.Sub(w.now))
		}
	}
}

// readQueue reads what the remediation of w may have to wait for. If that cannot be read the remediation waits; one that has begun goes on.
func (r *Reconciler) readQueue(ctx context.Context, w *observed) {
	w.queue = &powercycle.Queue{KeptOffFor: keptOffFor(w.found.Host, w.record.By(w.rem)), Claimed: w.claimed}
	var err error
	if w.existing, err = r.Installed.In(ctx, r.Client, w.rem.GetNamespace()); err == nil {
		w.queue.SameMachine = queuedOf(w.existing, w.machine, w.rem)
		if w.facts.ControlPlane {
			w.queue.Plane, err = r.readPlane(ctx, w)
		}
	}
	if err != nil {
		w.queue.Unasked, w.queueErr = workload.Plain(err), err
		return
	}
	r.readLeases(ctx, w)
}

// queued is the remediation of w itself in its queue, with what it remembers so far.
func (w *observed) queued() powercycle.Queued {
	return powercycle.Queued{
		Memory: w.record.Memory, Name: w.rem.GetName(), UID: string(w.rem.GetUID()), Created: w.rem.GetCreationTimestamp().Time,
	}
}

// queuedOf are the remediations that m owns, but for self, as others in the queue know them.
func queuedOf(existing remediation.Existing, m *clusterv1.Machine, self client.Object) []powercycle.Queued {
	var queue []powercycle.Queued
	for _, rem := range existing.Of(m) {
		if rem.GetUID() == self.GetUID() {
			continue
		}
		rec, err := remediation.RecordOf(rem)
		queue = append(queue, powercycle.Queued{
			Memory: rec.Memory, Name: rem.Kind.Kind + " " + rem.GetName(), UID: string(rem.GetUID()), Created: rem.GetCreationTimestamp().Time,
			Unreadable: err != nil, Leaves: !rem.GetDeletionTimestamp().IsZero() || annotations.HasPaused(rem),
		})
	}
	return queue
}

// readPlane reads the control plane of w's machine, but for the leases of its API servers.
func (r *Reconciler) readPlane(ctx context.Context, w *observed) (*powercycle.Plane, error) {
	view, api, err := r.planeAPI(ctx, w)
	if err != nil {
		return nil, err
	}
	if w.members, err = r.controlPlaneMachines(ctx, w); err != nil {
		return nil, err
	}
	plane := &powercycle.Plane{API: api, Self: w.machine.Name, Connected: w.connected}
	for _, m := range w.members {
		member, err := r.memberOf(ctx, w, m)
		if err != nil {
			return nil, err
		}
		if api == controlplane.Answers && !member.Joining {
			node, _ := view.NodeOf(m)
			member.Node, member.Etcd, member.Away = controlplane.Silent, controlplane.EtcdOf(node), controlplane.InMaintenance(node)
			if node != nil && readyOf(node) == corev1.ConditionTrue {
				member.Node = controlplane.Alive
			}
		}
		plane.Members = append(plane.Members, member)
	}
	return plane, nil
}

// planeAPI is whether the API of w's cluster answers, and its nodes if it does. A cluster that refuses to show its nodes counts as silent: no member is known
// to be alive then, and no majority can be counted.
func (r *Reconciler) planeAPI(ctx context.Context, w *observed) (workload.View, controlplane.API, error) {
	if w.cluster == nil {
		return workload.View{}, controlplane.NoAnswer, nil
	}
	view, err := r.Clusters.View(ctx, client.ObjectKeyFromObject(w.cluster), w.now)
	switch {
	case errors.Is(err, ErrUnasked):
		return view, controlplane.Connecting, fmt.Errorf("read the control plane: %w", err)
	case err != nil || view.Link == workload.Down:
		return view, controlplane.NoAnswer, nil //nolint:nilerr // that it could not be read is the answer
	case view.Link == workload.Up:
		return view, controlplane.Answers, nil
	}
	w.connected = w.now.Add(max(view.Recheck, retry)) // it connects or fails within a minute
	return view, controlplane.Connecting, nil
}

// controlPlaneMachines returns the control-plane machines of w's cluster, its own one among them. They are shared: read only.
func (r *Reconciler) controlPlaneMachines(ctx context.Context, w *observed) ([]*clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(w.machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: w.machine.Spec.ClusterName}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("list the control-plane machines of cluster %s: %w", w.machine.Spec.ClusterName, err)
	}
	machines := []*clusterv1.Machine{w.machine}
	for i := range list.Items {
		if m := &list.Items[i]; m.UID != w.machine.UID {
			machines = append(machines, m)
		}
	}
	return machines, nil
}

// memberOf is m as a member of the control plane, but for its node and its API server.
func (r *Reconciler) memberOf(ctx context.Context, w *observed, m *clusterv1.Machine) (powercycle.Member, error) {
	own, found := m.UID == w.machine.UID, w.found
	if !own {
		var err error
		if found, err = r.Hosts.Of(ctx, m); err != nil {
			return powercycle.Member{}, err
		}
	}
	member := powercycle.Member{Member: controlplane.Member{
		Name: m.Name, Joining: m.Status.NodeRef.Name == "", Off: found.Host != nil && !host.PowerOf(found.Host).On,
	}}
	if since, replaced := replacedSince(m); replaced {
		member.ReplacedBy, member.ReplacedSince = "Machine "+m.Name, since
	}
	if own {
		return member, nil
	}
	if keptOffFor(found.Host, host.Remediation{}) != "" {
		member.KeptOff = "BareMetalHost " + found.Host.Name + " is kept powered off"
	}
	// A remediation that waits for a person to reset its host must not keep the others of its control plane waiting.
	member.Obeys = found.Is == powercycle.HostOurs && obeys(host.PowerOf(found.Host)) && !host.Disproved(found.Host)
	member.Remediations = queuedOf(w.existing, m, w.rem)
	return member, nil
}

// keptOffFor is the UID of a remediation other than by that keeps h powered off; empty if none does.
func keptOffFor(h *bmov1alpha1.BareMetalHost, by host.Remediation) string {
	if h == nil {
		return ""
	}
	return string(host.KeptOffByOthers(h, by))
}

// obeys reports whether a host would power off if it was asked to.
func obeys(p host.Power) bool { return p.Wanted && p.KeptOffBy == "" && p.Unmanaged == "" }

// replacedSince reports whether m is being deleted, or its owner was asked to replace it, and since when.
func replacedSince(m *clusterv1.Machine) (time.Time, bool) {
	if !m.DeletionTimestamp.IsZero() {
		return m.DeletionTimestamp.Time, true
	}
	if !collections.IsUnhealthyAndOwnerRemediated(m) {
		return time.Time{}, false
	}
	return conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition).LastTransitionTime.Time, true
}

// readLeases adds what the leases of the API servers show, where a step depends on that: they are read past the cache. Where they cannot be read the nodes
// alone count.
func (r *Reconciler) readLeases(ctx context.Context, w *observed) {
	w.queue.Self = w.queued()
	if r.Reader == nil || !w.queue.LeasesDecide(w.now) {
		return
	}
	ctx, done := w.answering(ctx)
	defer done()
	reader, err := r.Reader(ctx, client.ObjectKeyFromObject(w.cluster))
	var renewed map[string]time.Time
	if err == nil {
		renewed, err = workload.APIServers(ctx, reader)
	}
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the leases of API servers; their nodes alone say which are alive", "reason", workload.Plain(err))
		return
	}
	signs := controlplane.Servers(renewed, w.now)
	for i, m := range w.members {
		if node := m.Status.NodeRef.Name; node != "" {
			w.queue.Plane.Members[i].APIServer = signs[node]
		}
	}
}

// claim claims the queue of the remediation, if the steps that were decided on begin what only one may begin at a time. It returns the remediation that has
// claimed it already, though the caches do not show that: then these steps must not be taken.
func (r *Reconciler) claim(w *observed, step powercycle.Step) (ahead string) {
	if !w.begins(step) {
		return ""
	}
	queue := "machine " + string(w.machine.UID)
	if w.facts.ControlPlane {
		queue = "control plane " + w.machine.Namespace + "/" + w.machine.Spec.ClusterName
	}
	return r.Claims.Begin(queue, remediation.OfKind{Object: w.rem, Kind: r.Kind}, w.existing.All)
}

// begins reports whether step, or one that was taken before it in this reconcile, begins what only one remediation of a queue may begin.
func (w *observed) begins(step powercycle.Step) bool {
	return w.queue != nil && (step.Begins() || slices.ContainsFunc(w.taken, func(t taken) bool { return t.step.Begins() }))
}

// unclaim ends the claim of a remediation that begins nothing and has nothing under way. If the answer to its last write was lost, the remediation is read past
// the cache: the claim stays until the cache shows what came of that write.
func (r *Reconciler) unclaim(ctx context.Context, w *observed) error {
	key := client.ObjectKeyFromObject(w.rem)
	if w.facts.KeptOff || w.record.UnderWay() {
		return nil
	}
	if r.Claims.Lost(w.rem) {
		live := r.Kind.New()
		if err := r.Live.Get(ctx, key, live.Unwrapped()); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read %s %s: %w", r.Kind.Kind, key, err)
		} else if err == nil && consistency.Older(w.rem.GetResourceVersion(), live.GetResourceVersion()) {
			r.Claims.Written(w.rem, live.GetResourceVersion(), nil)
			r.written.Note(live)
			return consistency.ErrStale
		}
	}
	r.Claims.End(r.Kind.Kind, key)
	return nil
}
