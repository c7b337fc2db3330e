package hostremediation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/workload"
)

// queueRecheck is how soon to read the queue again: no event tells a waiting remediation that another one, a machine or a node has changed.
const queueRecheck = 10 * time.Second

// placeInQueue observes whether the remediation may begin. The queue is read once in a reconcile, and only if a step depends on it. The
// only error is ErrStale: a cache lags behind.
func (r *Reconciler) placeInQueue(ctx context.Context, obs *observed) error {
	if !obs.facts.Queues() || obs.machine == nil {
		return nil
	}
	if obs.queue == nil {
		if err := r.readQueue(ctx, obs); errors.Is(err, consistency.ErrStale) {
			return err
		}
	}
	obs.queue.Self = obs.queued()
	obs.queue.ManagerHere = r.Self.on(obs)
	if obs.facts.Ahead = obs.queue.Ahead(obs.now); len(obs.facts.Ahead) == 0 {
		obs.facts.Ahead = r.placeless(ctx, obs)
	}
	if len(obs.facts.Ahead) > 0 {
		obs.recheckAfter(queueRecheck)
	}
	return nil
}

// readQueue reads what the remediation may have to wait for. If reading fails, a remediation that is about to begin waits, and one that has
// begun goes on.
func (r *Reconciler) readQueue(ctx context.Context, obs *observed) error {
	obs.queue = &powercycle.Queue{Machine: obs.machine.Name, KeptOffFor: host.KeptOffByOthers(obs.found.Host, obs.record.By(obs.rem))}
	reader := client.Reader(r.Client)
	if obs.confirms {
		reader = r.Live
	}
	var err error
	obs.existing, err = r.Installed.In(ctx, reader, obs.rem.GetNamespace())
	if err == nil {
		obs.queue.SameMachine = queuedOf(obs.existing, obs.machine, obs.rem)
		if obs.inPlane() {
			obs.queue.Plane, err = r.readPlane(ctx, obs)
		}
	}
	if err != nil {
		obs.queue.Unasked = workload.Plain(err)
		return err
	}
	return nil
}

// queued returns obs as an entry of its own queue.
func (obs *observed) queued() powercycle.Queued {
	return powercycle.Queued{
		Memory: obs.record.Memory, Name: obs.rem.GetName(), UID: string(obs.rem.GetUID()), Created: obs.rem.GetCreationTimestamp().Time,
	}
}

// queuedOf returns the remediations that m owns, except self, as entries of the queue.
func queuedOf(existing remediation.Existing, m *clusterv1.Machine, self client.Object) []powercycle.Queued {
	var queue []powercycle.Queued
	for _, rem := range existing.Of(m) {
		if rem.GetUID() == self.GetUID() {
			continue
		}
		rec, err := remediation.RecordOf(rem)
		waits := powercycle.Reason(rem.GetAnnotations()[mendv1.WaitsForAnnotation])
		queue = append(queue, powercycle.Queued{
			Memory: rec.Memory, Name: rem.Kind.Kind + " " + rem.GetName(), UID: string(rem.GetUID()),
			Created:    rem.GetCreationTimestamp().Time,
			Unreadable: err != nil, Leaves: !rem.GetDeletionTimestamp().IsZero() || annotations.HasPaused(rem) ||
				waits == powercycle.RemediationLoopReason || waits == powercycle.WaitingForPolicyReason,
		})
	}
	return queue
}

// observeMembership finds out whether the machine counts as a member of a control plane. Some members have no label on their Machine, only
// on their Node, which is unreadable while the API does not answer, maybe because the members are down. So if no Machine of the cluster has
// the label, a machine whose Node was never seen counts as a member, and such machines are power-cycled one at a time.
func (r *Reconciler) observeMembership(ctx context.Context, obs *observed) error {
	switch {
	case obs.facts.ControlPlane || obs.node != nil:
		obs.record.MayControl = false
	case obs.machine != nil && obs.facts.WhyUnseen != "" && obs.record.NodeUID == "" && obs.facts.Queues():
		list := &clusterv1.MachineList{}
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(obs.machine.Namespace), client.MatchingLabels{
			clusterv1.ClusterNameLabel: obs.machine.Spec.ClusterName,
		}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
			return fmt.Errorf("list the control-plane machines of cluster %s: %w", obs.machine.Spec.ClusterName, err)
		}
		obs.record.MayControl = len(list.Items) == 0
	}
	return nil
}

// inPlane reports whether the machine is or may be a member of a control plane, and has to wait for the other members.
func (obs *observed) inPlane() bool { return obs.facts.ControlPlane || obs.record.MayControl }

func (r *Reconciler) readPlane(ctx context.Context, obs *observed) (*controlplane.Plane, error) {
	view, api := r.planeAPI(ctx, obs)
	members, err := r.membersOf(ctx, obs, view, api)
	if err != nil {
		return nil, err
	}
	plane := &controlplane.Plane{API: api}
	for _, m := range members {
		member, err := r.memberOf(ctx, obs, m.machine)
		if err != nil {
			return nil, err
		}
		if api == controlplane.Answers && !member.Joining {
			member.Node, member.Etcd, member.Away = controlplane.Silent, controlplane.EtcdOf(m.node), place.InMaintenance(m.node)
			if health.Ready(m.node) {
				member.Node = controlplane.Alive
			}
		}
		plane.Members = append(plane.Members, member)
	}
	r.readLeases(ctx, obs, plane, members)
	return plane, nil
}

// planeAPI returns whether the API of obs's cluster answers, and the nodes if it does. If the API refuses to list the nodes, it counts as
// silent: nothing tells which members are alive, and so whether a majority is.
func (r *Reconciler) planeAPI(ctx context.Context, obs *observed) (workload.View, controlplane.API) {
	if obs.cluster == nil {
		return workload.View{}, controlplane.NoAnswer
	}
	ctx, done := obs.answering(ctx)
	defer done()
	view, err := r.Clusters.View(ctx, client.ObjectKeyFromObject(obs.cluster), obs.now)
	switch {
	case err != nil || view.Link == workload.Down:
		return view, controlplane.NoAnswer // an error means no answer
	case view.Link == workload.Up:
		return view, controlplane.Answers
	}
	return view, controlplane.Connecting
}

// planeMember is a machine of a control plane, with its node; nil if the node was not seen.
type planeMember struct {
	machine *clusterv1.Machine
	node    *corev1.Node
}

// membersOf returns the members of the control plane of obs's cluster, its own machine first. Members are Machines with Cluster API's
// label, Machines whose nodes have a label (some distributions use a MachineDeployment for the control plane), and Machines whose
// remediations have stored that they are members, because nodes are unreadable while the API does not answer. They are shared: read only.
func (r *Reconciler) membersOf(ctx context.Context, obs *observed, view workload.View, api controlplane.API) ([]planeMember, error) {
	list := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(obs.machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: obs.machine.Spec.ClusterName}); err != nil {
		return nil, fmt.Errorf("list the machines of cluster %s: %w", obs.machine.Spec.ClusterName, err)
	}
	remembered := map[types.UID]bool{}
	for _, rem := range obs.existing.All {
		rec := remediation.Remembered(rem)
		if owner := remediation.OwnerOf(rem); owner != nil && (rec.ControlPlane || rec.MayControl && api != controlplane.Answers) {
			remembered[owner.UID] = true
		}
	}
	var members []planeMember
	add := func(machine *clusterv1.Machine) {
		member := planeMember{machine: machine}
		if api == controlplane.Answers {
			member.node, _ = view.NodeOf(machine)
		}
		_, labelled := machine.Labels[clusterv1.MachineControlPlaneLabel]
		if machine == obs.machine || labelled || remembered[machine.UID] || controlplane.IsMember(member.node) {
			members = append(members, member)
		}
	}
	add(obs.machine)
	for i := range list.Items {
		if machine := &list.Items[i]; machine.UID != obs.machine.UID {
			add(machine)
		}
	}
	if obs.confirms {
		return members, r.confirmMembers(ctx, members[1:])
	}
	return members, nil
}

// confirmMembers reads the Machines of members again, past the cache, which may not show yet that one is being replaced. If one is gone,
// the error is ErrStale.
func (r *Reconciler) confirmMembers(ctx context.Context, members []planeMember) error {
	for i := range members {
		machine, key := &clusterv1.Machine{}, client.ObjectKeyFromObject(members[i].machine)
		err := r.Live.Get(ctx, key, machine)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("read machine %s: %w", key, err)
		case err != nil || machine.UID != members[i].machine.UID:
			return consistency.ErrStale
		}
		members[i].machine = machine
	}
	return nil
}

// memberOf returns m as a member of the control plane, except for its node and API server.
func (r *Reconciler) memberOf(ctx context.Context, obs *observed, m *clusterv1.Machine) (controlplane.Member, error) {
	own, found := m.UID == obs.machine.UID, obs.found
	if !own {
		var err error
		if found, err = r.Hosts.Of(ctx, m); err != nil {
			return controlplane.Member{}, err
		}
	}
	member := controlplane.Member{
		Name: m.Name, Joining: m.Status.NodeRef.Name == "", Off: found.Host != nil && !found.Host.PoweredOn,
	}
	switch {
	case !m.DeletionTimestamp.IsZero():
		member.ReplacedBy, member.ReplacedSince = "Machine "+m.Name, m.DeletionTimestamp.Time
	case collections.IsUnhealthyAndOwnerRemediated(m):
		asked := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition)
		member.ReplacedBy, member.ReplacedSince = "Machine "+m.Name, asked.LastTransitionTime.Time
	}
	if own {
		return member, nil
	}
	keptOff := ""
	if host.KeptOffByOthers(found.Host, host.Remediation{}) != "" {
		keptOff = "BareMetalHost " + found.Host.Name + " is kept powered off"
	}
	// A remediation that waits until a person resets its host must not block the rest of its control plane.
	obeys := found.Is == powercycle.HostOurs && obeys(found.Host.Power) && !host.Disproved(found.Host)
	return powercycle.Disrupted(member, keptOff, obeys, queuedOf(obs.existing, m, obs.rem)), nil
}

// obeys reports whether a host would power off if asked.
func obeys(p powercycle.Power) bool { return p.Wanted && p.KeptOffBy == "" && p.Unmanaged == "" }

// readLeases adds to plane what leases show, if a step depends on that: which API servers renew theirs, and which nodes are in maintenance.
// Leases are read past the cache. If those of one kind cannot be read, the others count; if none can, only the nodes count.
func (r *Reconciler) readLeases(ctx context.Context, obs *observed, plane *controlplane.Plane, members []planeMember) {
	if r.Reader == nil || plane.API != controlplane.Answers || controlplane.Majority(len(members)) == 0 {
		return
	}
	ctx, done := obs.answering(ctx)
	defer done()
	reader, err := r.Reader(ctx, client.ObjectKeyFromObject(obs.cluster))
	if err == nil {
		renewed, unread := workload.APIServers(ctx, reader)
		signs := controlplane.Servers(renewed, obs.now)
		for i, m := range members {
			plane.Members[i].APIServer = signs[m.machine.Status.NodeRef.Name]
		}
		err = errors.Join(unread, readMaintenance(ctx, reader, plane, members, obs.now))
	}
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the leases of the control plane; its nodes alone say which members are alive",
			"reason", workload.Plain(err))
	}
}

// readMaintenance notes which nodes have a lease: the Node Maintenance Operator, or a NodeHealthCheck of that cluster, may power them off
// at any moment. A lease of an earlier node with the same name does not count.
func readMaintenance(ctx context.Context, reader client.Reader, plane *controlplane.Plane, members []planeMember, now time.Time) error {
	for i, m := range members {
		if m.node == nil {
			continue
		}
		lease, key := &coordinationv1.Lease{}, client.ObjectKey{
			Namespace: nhcv1.DefaultLeaseNamespace, Name: nhcv1.LeasePrefix + strings.ToLower(m.node.Name),
		}
		if err := client.IgnoreNotFound(reader.Get(ctx, key, lease)); err != nil {
			return fmt.Errorf("read lease %s: %w", key, err)
		}
		if controlplane.Leased(lease, m.node, "", now) {
			plane.Members[i].Away = true
		}
	}
	return nil
}

// scopes returns the machine and its control plane: in each of them only one remediation begins at a time.
func (obs *observed) scopes() []string {
	scopes := []string{"machine " + string(obs.machine.UID)}
	if obs.inPlane() {
		scopes = append(scopes, "control plane "+obs.machine.Namespace+"/"+obs.machine.Spec.ClusterName)
	}
	return scopes
}

// reportBusy writes into the status that obs waits while another remediation begins. The steps that were decided are dropped.
func (r *Reconciler) reportBusy(ctx context.Context, obs *observed) error {
	obs.record, _ = remediation.RecordOf(obs.stored)
	obs.facts = r.factsOf(obs)
	obs.facts.Ahead = []powercycle.Ahead{{Text: begin.ErrBusy.Error()}}
	state := cmp.Or(obs.facts.State, powercycle.Pending)
	step := powercycle.Step{Do: powercycle.Wait, From: state, Next: state, Reason: powercycle.WaitingInQueueReason}
	obs.remember(step)
	return r.writeStatus(ctx, obs, step, nil)
}

// begins reports whether this reconcile takes a step that only one remediation of a queue may take at a time.
func (obs *observed) begins(step powercycle.Step) bool {
	return obs.queue != nil && (step.Begins() || slices.ContainsFunc(obs.taken, func(t taken) bool { return t.step.Begins() }))
}
