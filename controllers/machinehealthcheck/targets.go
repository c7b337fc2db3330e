package machinehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/workload"
)

// pass is what a reconcile leaves of the targets for the next one: when their conditions turned, and the facts about those that do not
// change.
type pass struct {
	check            types.UID
	generation       int64
	at               time.Time
	targets, skipped []*Target
}

// place is where the Machine of that name is among targets, which are sorted by name; false if it is not among them.
func place(targets []*Target, name string) (at int, found bool) {
	return slices.BinarySearchFunc(targets, name, func(target *Target, name string) int { return cmp.Compare(target.Name, name) })
}

// find returns the target of that name in one of the lists; nil if there is none.
func find(name string, lists ...[]*Target) *Target {
	for _, list := range lists {
		if at, found := place(list, name); found {
			return list[at]
		}
	}
	return nil
}

func (r *Reconciler) observeMachines(ctx context.Context, state *observed) error {
	list, err := r.machinesOf(ctx, client.ObjectKeyFromObject(state.Cluster))
	if err != nil {
		return err
	}
	state.answering = map[string]bool{"MachineSet": true, "KubeadmControlPlane": true} // (Cluster API)
	maps.Copy(state.answering, state.before.answering)
	for _, machine := range list {
		if kind := AnsweringOwner(machine); kind != "" {
			state.answering[kind] = true
		}
	}
	list = slices.DeleteFunc(list, func(machine *clusterv1.Machine) bool { return !state.selector.Matches(labels.Set(machine.Labels)) })
	slices.SortFunc(list, func(a, b *clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	state.Targets = make([]*Target, 0, len(list))
	for i := range state.Overlaps {
		other := &state.Overlaps[i]
		// A check tells what it begins before it writes that: read after the Machines, no opinion is older than they are.
		other.opinions = r.memory.of(types.NamespacedName{Namespace: state.Check.Namespace, Name: other.Name}).decided.Opinions
	}
	for _, machine := range list {
		state.add(machine)
	}
	if len(list) == 0 && r.Live != nil {
		state.SelectsNothing = r.noTemplateMatches(ctx, state)
	}
	return nil
}

// noTemplateMatches reports whether the selector of the check matches the labels of no MachineDeployment's or MachineSet's template in its
// Cluster, from which Machines may be made later. What cannot be read may match.
func (r *Reconciler) noTemplateMatches(ctx context.Context, state *observed) bool {
	inCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: state.Cluster.Name}
	deployments, sets := &clusterv1.MachineDeploymentList{}, &clusterv1.MachineSetList{}
	for _, list := range []client.ObjectList{deployments, sets} {
		if err := r.Live.List(ctx, list, client.InNamespace(state.Check.Namespace), inCluster); err != nil {
			return false
		}
	}
	matches := func(template *clusterv1.MachineTemplateSpec) bool {
		return state.selector.Matches(labels.Set(template.Labels))
	}
	for i := range deployments.Items {
		if matches(&deployments.Items[i].Spec.Template) {
			return false
		}
	}
	for i := range sets.Items {
		if matches(&sets.Items[i].Spec.Template) {
			return false
		}
	}
	return true
}

// add adds a Machine that the check selects to the targets, or to those that their users want left alone.
func (state *observed) add(machine *clusterv1.Machine) {
	added, leftAlone := &Target{Machine: machine}, len(LeftAloneBy(machine)) > 0
	if owner := metav1.GetControllerOfNoCopy(machine); owner != nil {
		added.OwnerKindSilent = !state.answering[owner.Kind]
	}
	for i := range state.Overlaps {
		other := &state.Overlaps[i]
		if !other.selector.Matches(labels.Set(machine.Labels)) {
			continue
		}
		if !leftAlone {
			other.Shared++
		}
		switch {
		case other.Acting:
			opinion := other.opinions[machine.UID]
			opinion.Check, opinion.Older = other.Name, other.Older
			opinion.Heard = opinion.Heard || !state.before.lasts || state.Mode != Active // others tell nothing to who does not act
			added.Others = append(added.Others, opinion)
		case other.Older && added.OlderCheck == "":
			added.OlderCheck = other.Name
		}
	}
	if leftAlone {
		state.Skipped = append(state.Skipped, added)
	} else {
		state.Targets = append(state.Targets, added)
	}
}

// observeNodes finds out what is known of the Nodes of the targets. The facts about a target are those of the reconcile before if its
// objects are the very same in the cache: to state them costs ten times as much as to judge them.
func (r *Reconciler) observeNodes(ctx context.Context, state *observed) {
	state.stateLink()
	gone, before := r.findNodes(ctx, state), &state.before.pass
	for _, target := range slices.Concat(state.Targets, state.Skipped) {
		known := knownOf(state, target, gone)
		last := find(target.Machine.Name, before.targets, before.skipped)
		if last != nil && state.sameRules() && last.Machine == target.Machine && last.Node == target.Node && last.OtherNode == target.OtherNode &&
			last.Health.Node == known && last.OlderCheck == target.OlderCheck {
			target.Seen, target.Health = last.Seen, last.Health
		} else {
			state.stateHealth(target, known, last)
		}
	}
}

// stateHealth states what the verdict on target depends on, as far as it is a matter of its Machine, its Node and the other checks, given
// the target of that name in the reconcile before; nil if there was none.
func (state *observed) stateHealth(target *Target, known health.Node, last *Target) {
	facts := healthOf(state.Check.Spec.Checks, target.Machine, known, target.Node)
	target.Health = &facts
	target.Health.Signals = state.datedSignals(target, last, target.Health.Signals)
	target.Health.Lost = target.Seen.Lost
	target.Health.Other = otherOf(target)
	if known == health.NodeOther {
		// The machine may have had that name until the node took it, and its node until Cluster API missed that.
		missed := Since(ConditionOf(target, clusterv1.MachineNodeReadyCondition))
		starts := []time.Time{target.Health.AwaitedSince, target.OtherNode.CreationTimestamp.Time, missed}
		target.Health.AwaitedSince = slices.MaxFunc(starts, time.Time.Compare)
	}
	if target.Seen.Reached.After(target.Health.AwaitedSince) {
		target.Health.AwaitedSince = target.Seen.Reached
	}
}

// sameRules reports whether the reconcile before had the same rules about conditions.
func (state *observed) sameRules() bool {
	return state.before.pass.check == state.Check.UID && state.before.pass.generation == state.Check.Generation
}

// datedSignals are signals, the conditions of the target as they are written, each since when it counts given what this process saw of the
// target before.
func (state *observed) datedSignals(target, last *Target, signals []health.Signal) []health.Signal {
	var seen Seen
	if last != nil {
		var at time.Time // of a look with other rules it is not known which conditions it saw
		if state.sameRules() {
			at = state.before.pass.at
		}
		if last.Machine.UID == target.Machine.UID {
			seen = ptr.Deref(last.Seen, Seen{})
		}
		if seen.Machine.At = at; last.Node != nil || at.IsZero() {
			seen.Node.At = at
		}
	}
	state.dateStartup(target, &seen)
	onNode := slices.IndexFunc(signals, func(signal health.Signal) bool { return signal.Source == health.OnNode })
	if onNode < 0 {
		onNode = len(signals)
	}
	dated := signals[onNode:]
	ofMachine := health.Seen{Object: string(target.Machine.UID), At: state.Now, Signals: signals[:onNode]}
	seen.Machine = seen.Machine.Next(ofMachine, time.Time{}, false).Through(seen.Machine, state.outage)
	target.Seen = &seen
	seen.MachineStreaks, signals = seen.MachineStreaks.After(seen.Machine.Signals, state.Policy.Rules, false, state.outage.Ended)
	if target.Node == nil {
		return signals
	}
	if seen.Node.Object != string(target.Node.UID) {
		seen.NodeStreaks = nil
	}
	missed := state.outage.Now // the node may have turned twice
	ofNode := health.Seen{Object: string(target.Node.UID), At: state.Now, Signals: dated}
	seen.Node = seen.Node.Next(ofNode, target.Node.CreationTimestamp.Time, missed).Through(seen.Node, state.outage)
	var reported []health.Signal
	seen.NodeStreaks, reported = seen.NodeStreaks.Later(state.outage.Lasted()).After(seen.Node.Signals, state.Policy.Rules, missed, time.Time{})
	return slices.Concat(signals, reported)
}

// dateStartup notes for how long the workload cluster was out of reach since the Node of target is awaited.
func (state *observed) dateStartup(target *Target, seen *Seen) {
	if state.Link != health.Up {
		return
	}
	if state.outage.Now {
		seen.Lost += state.outage.Lasted()
	}
	awaited := target.Health.Node == health.NodeAwaited || target.Health.Node == health.NodeOther
	if !awaited || !seen.Awaited {
		seen.Lost = 0
	}
	if seen.Lost == 0 {
		seen.Reached = state.outage.Ended
	}
	seen.Awaited = awaited
}

// byCluster is an index of the machine cache itself, by the namespace and name of the Cluster. A list through the client copies every
// machine.
const byCluster = "kubemend.machinesByCluster"

// machineIndexer returns the store of the machines that c caches, indexed by cluster; nil if c is one of several namespaces, which has
// several.
func machineIndexer(ctx context.Context, c cache.Cache) (toolscache.Indexer, error) {
	informer, err := c.GetInformer(ctx, &clusterv1.Machine{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("cache Machines: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, nil
	}
	err = shared.AddIndexers(toolscache.Indexers{byCluster: func(obj any) ([]string, error) {
		machine, ok := obj.(*clusterv1.Machine)
		if !ok {
			return nil, fmt.Errorf("index a Machine by its cluster: it is a %T", obj)
		}
		return []string{client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}.String()}, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index Machines by cluster: %w", err)
	}
	return shared.GetIndexer(), nil
}

// machinesOf returns the machines of a cluster, in no order. They are shared: read only. Where there is a store of them, a
// machine that has not changed is the same pointer as the last time.
func (r *Reconciler) machinesOf(ctx context.Context, cluster client.ObjectKey) ([]*clusterv1.Machine, error) {
	if r.machines == nil {
		return listMachines(ctx, r.Client, cluster)
	}
	objs, err := r.machines.ByIndex(byCluster, cluster.String())
	if err != nil {
		return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
	}
	machines := make([]*clusterv1.Machine, len(objs))
	for i, obj := range objs {
		machines[i] = obj.(*clusterv1.Machine)
	}
	return machines, nil
}

// SlimMachine is the transform of the machine cache. It drops what is not read here: managed fields, what `kubectl apply` leaves in an
// annotation, bootstrap data, addresses, node details. Conditions are kept whole, in both flavours: they are lists that are written back
// as a whole. So is a failure that is final. Texts that nearly all machines have are in memory once.
func SlimMachine(obj any) (any, error) {
	machine, ok := obj.(*clusterv1.Machine)
	if !ok {
		return obj, nil
	}
	slim := &clusterv1.Machine{TypeMeta: machine.TypeMeta, ObjectMeta: machine.ObjectMeta}
	slim.ManagedFields = nil
	delete(slim.Annotations, corev1.LastAppliedConfigAnnotation)
	slim.Labels = make(map[string]string, len(machine.Labels))
	for key, value := range machine.Labels {
		slim.Labels[workload.Interned(key)] = workload.Interned(value)
	}
	slim.Spec = clusterv1.MachineSpec{
		ClusterName: workload.Interned(machine.Spec.ClusterName), ProviderID: machine.Spec.ProviderID,
		FailureDomain: machine.Spec.FailureDomain, InfrastructureRef: machine.Spec.InfrastructureRef,
		Deletion: machine.Spec.Deletion, Bootstrap: clusterv1.Bootstrap{ConfigRef: machine.Spec.Bootstrap.ConfigRef},
	}
	slim.Status = clusterv1.MachineStatus{
		NodeRef: machine.Status.NodeRef, FailureDomain: machine.Status.FailureDomain, Initialization: machine.Status.Initialization,
		Deletion: machine.Status.Deletion, Conditions: slices.Clone(machine.Status.Conditions), // in no more memory than they need
	}
	for i := range slim.Status.Conditions {
		cond := &slim.Status.Conditions[i]
		cond.Type, cond.Status = workload.Interned(cond.Type), workload.Interned(cond.Status)
		cond.Reason, cond.Message = workload.Interned(cond.Reason), workload.Interned(cond.Message)
	}
	if machine.Status.Deprecated != nil && machine.Status.Deprecated.V1Beta1 != nil {
		slim.Status.Deprecated = &clusterv1.MachineDeprecatedStatus{V1Beta1: &clusterv1.MachineV1Beta1DeprecatedStatus{}}
		slim.Status.Deprecated.V1Beta1.FailureReason = machine.Status.Deprecated.V1Beta1.FailureReason
		slim.Status.Deprecated.V1Beta1.FailureMessage = machine.Status.Deprecated.V1Beta1.FailureMessage
		older := slices.Clone(machine.GetV1Beta1Conditions())
		for i := range older {
			cond := &older[i]
			cond.Type, cond.Status = workload.Interned(cond.Type), workload.Interned(cond.Status)
			cond.Severity = workload.Interned(cond.Severity)
			cond.Reason, cond.Message = workload.Interned(cond.Reason), workload.Interned(cond.Message)
		}
		slim.SetV1Beta1Conditions(older)
	}
	return slim, nil
}

// SlimMetadata is the transform of caches of metadata and of everything else that is not judged. Of a check it keeps what was applied, by
// which a field is found that the API server has dropped.
func SlimMetadata(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
		if _, check := obj.(*clusterv1.MachineHealthCheck); !check {
			delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
		}
	}
	return obj, nil
}
