package machinehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func byName(target *Target, name string) int { return cmp.Compare(target.Name, name) }

// find returns the target of that name in one of the lists, which are sorted by name; nil if there is none.
func find(name string, lists ...[]*Target) *Target {
	for _, list := range lists {
		if at, found := slices.BinarySearchFunc(list, name, byName); found {
			return list[at]
		}
	}
	return nil
}

// observeMachines finds the Machines that the check selects, and their Nodes in the cache. Machines that are the same pointers in the cache
// stay in their order, since sorting thousands takes longer than judging them.
func (r *Reconciler) observeMachines(ctx context.Context, state *observed) error {
	list, err := r.machinesOf(ctx, client.ObjectKeyFromObject(state.Cluster))
	if err != nil {
		return err
	}
	state.answering = map[string]bool{"MachineSet": true, "KubeadmControlPlane": true} // of Cluster API
	maps.Copy(state.answering, state.before.answering)
	changed, same := sets.New(list...), []*Target(nil)
	if state.sameRules() {
		same = slices.DeleteFunc(slices.Concat(state.before.targets, state.before.skipped), func(last *Target) bool {
			return !changed.Has(last.Machine)
		})
	}
	for _, last := range same {
		changed.Delete(last.Machine)
	}
	for machine := range changed {
		if kind := AnsweringOwner(machine); kind != "" {
			state.answering[kind] = true
		}
	}
	for i := range state.Overlaps {
		other := &state.Overlaps[i]
		// A check stores its opinion before it acts. Read after the Machines, no opinion is older than they are.
		other.opinions = r.memory.of(types.NamespacedName{Namespace: state.Check.Namespace, Name: other.Name}).decided.Opinions
	}
	if state.view.Link == health.Up {
		state.identified = state.view.Identified()
	}
	state.Targets = make([]*Target, 0, len(list))
	for _, last := range same {
		state.add(Target{Machine: last.Machine, last: last})
	}
	for machine := range changed {
		if state.selector.Matches(labels.Set(machine.Labels)) {
			state.add(Target{Machine: machine, last: find(machine.Name, state.before.targets, state.before.skipped)})
		}
	}
	inOrder := func(a, b *Target) int { return byName(a, b.Name) }
	slices.SortFunc(state.Targets, inOrder)
	slices.SortFunc(state.Skipped, inOrder)
	if len(state.Targets)+len(state.Skipped) == 0 && r.Live != nil {
		state.SelectsNothing = r.noTemplateMatches(ctx, state)
	}
	return nil
}

// noTemplateMatches reports whether the selector of the check matches no template of a MachineDeployment or MachineSet in its Cluster.
// Machines may be created from a template later. A template that cannot be read may match.
func (r *Reconciler) noTemplateMatches(ctx context.Context, state *observed) bool {
	inCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: state.Cluster.Name}
	deployments, machineSets := &clusterv1.MachineDeploymentList{}, &clusterv1.MachineSetList{}
	for _, list := range []client.ObjectList{deployments, machineSets} {
		if err := r.Live.List(ctx, list, client.InNamespace(state.Check.Namespace), inCluster); err != nil {
			return false
		}
	}
	return !slices.ContainsFunc(deployments.Items, func(deployment clusterv1.MachineDeployment) bool {
		return state.selector.Matches(labels.Set(deployment.Spec.Template.Labels))
	}) && !slices.ContainsFunc(machineSets.Items, func(set clusterv1.MachineSet) bool {
		return state.selector.Matches(labels.Set(set.Spec.Template.Labels))
	})
}

// add adds a target to the targets, or to the skipped machines. If nothing has changed, it adds the target of the reconcile before: making
// thousands of targets takes longer than judging them.
func (state *observed) add(target Target) {
	machine, last := target.Machine, target.last
	switch {
	case state.view.Link != health.Up:
	case last != nil && last.Machine == machine && state.identified.Has(last.Node):
		target.Node = last.Node // looking it up takes longer
	default:
		if target.Node, target.OtherNode = state.view.NodeOf(machine); machine.Status.NodeRef.Name == "" {
			target.Node = nil // Cluster API has not found it yet
		}
	}
	if owner := metav1.GetControllerOfNoCopy(machine); owner != nil {
		target.OwnerKindSilent = !state.answering[owner.Kind]
	}
	leftAlone := len(LeftAloneBy(machine)) > 0
	state.hear(&target, leftAlone)
	added := last
	if state.sameFacts(&target, last) && last.OwnerKindSilent == target.OwnerKindSilent && len(last.Others)+len(target.Others) == 0 {
		added.Request, added.Ownership, added.Cycle, added.Host, added.Unusable = nil, NoRequest, nil, nil, nil
	} else {
		changed := target // a copy, so that target is not allocated on the heap
		added = &changed
	}
	if leftAlone {
		state.Skipped = append(state.Skipped, added)
	} else {
		state.Targets = append(state.Targets, added)
	}
}

// hear adds the opinions of other checks that select target, and counts the targets that they share.
func (state *observed) hear(target *Target, leftAlone bool) {
	for i := range state.Overlaps {
		other := &state.Overlaps[i]
		if !other.selector.Matches(labels.Set(target.Machine.Labels)) {
			continue
		}
		if !leftAlone {
			other.Shared++
		}
		switch {
		case other.Acting:
			opinion := other.opinions[target.UID]
			opinion.Check, opinion.Older = other.Name, other.Older
			opinion.Heard = opinion.Heard || !state.before.lasts || state.Mode != Active // only checks that act wait for opinions
			target.Others = append(target.Others, opinion)
		case other.Older && target.OlderCheck == "":
			target.OlderCheck = other.Name
		}
	}
}

// observeNodes finds out what is known of the Nodes of the targets. A target whose objects are the same in the cache keeps its facts:
// building them costs ten times as much as judging them.
func (r *Reconciler) observeNodes(ctx context.Context, state *observed) {
	state.stateLink()
	gone := r.findNodes(ctx, state)
	for _, list := range [][]*Target{state.Targets, state.Skipped} {
		for i, target := range list {
			known, last := knownOf(state, target, gone), target.last
			if target.Health != nil { // it is that of the reconcile before
				if target.Health.Node == known {
					continue
				}
				changed := *target // a copy: this reconcile may fail, and the next one needs the old target
				changed.quiet, changed.place, last = nil, nil, target
				list[i], target = &changed, &changed
			}
			if target.last = nil; state.sameFacts(target, last) && last.Health.Node == known {
				target.Seen, target.Health, target.quiet, target.place = last.Seen, last.Health, last.quiet, last.place
			} else {
				state.stateHealth(target, known, last)
			}
		}
	}
}

// stateHealth sets the facts of the verdict that concern target alone. last is its target in the reconcile before; nil if there was none.
func (state *observed) stateHealth(target *Target, known health.Node, last *Target) {
	facts := healthOf(state.Check.Spec.Checks, target.Machine, known, target.Node)
	target.Health = &facts
	target.Health.Signals = state.datedSignals(target, last, target.Health.Signals)
	target.Health.Lost = target.Seen.Lost
	target.Health.Other = otherOf(target)
	if known == health.NodeOther {
		// The Machine's own node may have existed until the other node took its name, or until Cluster API missed it.
		missed := Since(ConditionOf(target, clusterv1.MachineNodeReadyCondition))
		starts := []time.Time{target.Health.AwaitedSince, target.OtherNode.CreationTimestamp.Time, missed}
		target.Health.AwaitedSince = slices.MaxFunc(starts, time.Time.Compare)
	}
	if target.Seen.Reached.After(target.Health.AwaitedSince) {
		target.Health.AwaitedSince = target.Seen.Reached
	}
}

// sameFacts reports whether the verdict on target depends on the same objects and rules as that on last, which may be nil.
func (state *observed) sameFacts(target, last *Target) bool {
	return last != nil && state.sameRules() && last.Machine == target.Machine && last.Node == target.Node &&
		last.OtherNode == target.OtherNode && last.OlderCheck == target.OlderCheck
}

// sameRules reports whether the reconcile before had the same rules about conditions.
func (state *observed) sameRules() bool {
	return state.before.decided.Check == state.Check.UID && state.before.generation == state.Check.Generation
}

// datedSignals returns signals, each counting from its timestamp, or from what this process saw if the timestamp is missing or wrong.
func (state *observed) datedSignals(target, last *Target, signals []health.Signal) []health.Signal {
	var seen Seen
	if last != nil {
		var at time.Time // zero after a look with other rules: it may have missed conditions
		if state.sameRules() {
			at = state.before.at
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
	missed := state.outage.Now // during the outage the node may have turned twice
	ofNode := health.Seen{Object: string(target.Node.UID), At: state.Now, Signals: dated}
	seen.Node = seen.Node.Next(ofNode, target.Node.CreationTimestamp.Time, missed).Through(seen.Node, state.outage)
	var reported []health.Signal
	streaks := seen.NodeStreaks.Later(state.outage.Lasted())
	seen.NodeStreaks, reported = streaks.After(seen.Node.Signals, state.Policy.Rules, missed, time.Time{})
	return slices.Concat(signals, reported)
}

// dateStartup notes how long the workload cluster was out of reach while the Node of target is awaited.
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

// staleCache is how long to wait for a cache that is known to be behind the API server.
const staleCache = time.Second

// findNodes asks the workload cluster about the nodes of targets that the cache does not have: the cache may be stale, and a Machine counts
// as unhealthy at once when its node is deleted. It skips the nodes of machines being deleted, which are deleted too. It returns the names
// of the nodes that do not exist.
func (r *Reconciler) findNodes(ctx context.Context, state *observed) (gone map[string]bool) {
	if state.view.Link != health.Up {
		return nil
	}
	gone = map[string]bool{}
	var missing []string
	for _, target := range slices.Concat(state.Targets, state.Skipped) {
		if target.Node != nil || target.OtherNode != nil {
			continue
		}
		switch name := target.Machine.Status.NodeRef.Name; {
		case name == "" || Deleting(target.Machine) || len(LeftAloneBy(target.Machine)) > 0:
		case state.confirmedGone(target):
			gone[name] = true
		default:
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return gone
	}
	present, err := r.Clusters.NodesExist(ctx, client.ObjectKeyFromObject(state.Cluster), missing)
	if err != nil {
		// Only these machines stay unknown.
		state.Trouble = append(state.Trouble, fmt.Errorf("find out whether nodes %s are gone: %w", strings.Join(missing, ", "), err))
		return gone
	}
	for _, name := range missing {
		if present[name] {
			state.lookAgainIn(staleCache)
		} else {
			gone[name] = true
		}
	}
	return gone
}

// confirmedGone reports whether an earlier reconcile has confirmed and written that the node of target is gone, and the remediation has
// begun. Before a remediation begins, an old confirmation, perhaps by another writer, is confirmed again.
func (state *observed) confirmedGone(target *Target) bool {
	if failed := Failed(target.Machine); failed == nil || failed.Status != metav1.ConditionFalse ||
		failed.Reason != clusterv1.MachineHealthCheckNodeDeletedReason {
		return false
	}
	asked := ConditionOf(target.Machine, OwnerRemediated)
	mayStart := state.Template.External || asked == nil || asked.Status != metav1.ConditionFalse
	return !mayStart || state.requestOf(target.Machine.Name) != nil
}

// knownOf returns what is known of the node of target; gone has the names of the nodes that do not exist.
func knownOf(state *observed, target *Target, gone map[string]bool) health.Node {
	if target.Node != nil {
		return health.NodePresent
	}
	name := target.Machine.Status.NodeRef.Name
	switch {
	case name == "" && (state.view.Link == health.Up || !state.Initialized()):
		// Before the control plane is initialized there is no API server to ask; the first control-plane machine is awaited.
		return health.NodeAwaited
	case gone[name]:
		return health.NodeGone
	case target.OtherNode != nil && !otherOf(target).Twin() && ConditionTrue(target.Machine, clusterv1.MachineNodeReadyCondition) == nil:
		return health.NodeOther // Cluster API, which finds nodes by provider ID, sees none Ready
	}
	return health.NodeUnseen
}
