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

// observeMachines finds the Machines that the check selects, and their Nodes in the cache. A Machine that is the same pointer in the cache
// keeps its Target and its place in the order, since building thousands of Targets takes longer than judging them. All Targets are built
// anew if the check or the kinds of answering owners have changed. add builds one anew if its Node or another check's opinion has changed.
func (r *Reconciler) observeMachines(ctx context.Context, state *observed) error {
	list, err := r.machinesOf(ctx, client.ObjectKeyFromObject(state.Cluster))
	if err != nil {
		return err
	}
	changed := sets.New(list...)
	same := slices.DeleteFunc(slices.Concat(state.before.targets, state.before.skipped), func(last *Target) bool {
		there := changed.Has(last.Machine)
		changed.Delete(last.Machine)
		return !there
	})
	state.answering = map[string]bool{"MachineSet": true, "KubeadmControlPlane": true} // of Cluster API
	maps.Copy(state.answering, state.before.answering)
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
	if !state.sameRules() || len(state.answering) != len(state.before.answering) {
		changed, same = sets.New(list...), nil
	}
	state.Targets = make([]*Target, 0, len(list))
	if state.view.Link == health.Up {
		state.identified = state.view.Identified()
	}
	for _, last := range same {
		state.add(last.Machine, last, true)
	}
	inOrder := func(a, b *clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) }
	for _, machine := range slices.SortedFunc(maps.Keys(changed), inOrder) {
		if state.selector.Matches(labels.Set(machine.Labels)) {
			state.add(machine, find(machine.Name, state.before.targets, state.before.skipped), false)
		}
	}
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

// add adds a selected Machine to the targets, or to the skipped machines. last is its target in the reconcile before; same says that the
// Machine and the rules of the check have not changed since.
func (state *observed) add(machine *clusterv1.Machine, last *Target, same bool) {
	found := state.heard(machine)
	switch {
	case state.view.Link != health.Up:
	case same && state.identified.Has(last.Node):
		found.Node = last.Node
	default:
		if found.Node, found.OtherNode = state.view.NodeOf(machine); machine.Status.NodeRef.Name == "" {
			found.Node = nil // Cluster API has not found it yet
		}
	}
	added := last
	if same && last.Node == found.Node && last.OtherNode == found.OtherNode && last.OlderCheck == found.OlderCheck &&
		len(last.Others)+len(found.Others) == 0 {
		added.Request, added.Ownership, added.Cycle, added.Host, added.Unusable = nil, NoRequest, nil, nil, nil
	} else {
		changed := found // a copy, so that found is not allocated on the heap
		changed.leftAlone = len(LeftAloneBy(machine)) > 0
		if owner := metav1.GetControllerOfNoCopy(machine); owner != nil {
			changed.OwnerKindSilent = !state.answering[owner.Kind]
		}
		added, changed.last = &changed, last
	}
	list := &state.Targets
	if added.leftAlone {
		list = &state.Skipped
	}
	at := len(*list)
	if !same {
		at, _ = slices.BinarySearchFunc(*list, machine.Name, byName)
	}
	*list = slices.Insert(*list, at, added)
}

// heard returns machine as a target with the opinions of other checks.
func (state *observed) heard(machine *clusterv1.Machine) Target {
	target := Target{Machine: machine}
	for i := range state.Overlaps {
		other := &state.Overlaps[i]
		if !other.selector.Matches(labels.Set(machine.Labels)) {
			continue
		}
		if len(LeftAloneBy(machine)) == 0 {
			other.Shared++
		}
		switch {
		case other.Acting:
			opinion := other.opinions[machine.UID]
			opinion.Check, opinion.Older = other.Name, other.Older
			opinion.Heard = opinion.Heard || !state.before.lasts || state.Mode != Active // only checks that act wait for opinions
			target.Others = append(target.Others, opinion)
		case other.Older && target.OlderCheck == "":
			target.OlderCheck = other.Name
		}
	}
	return target
}

// observeNodes finds out what is known of the Nodes of the targets. A target whose objects are the same in the cache keeps its facts:
// building them costs ten times as much as judging them.
func (r *Reconciler) observeNodes(ctx context.Context, state *observed) {
	state.stateLink()
	gone := r.findNodes(ctx, state)
	for _, list := range [][]*Target{state.Targets, state.Skipped} {
		for i, target := range list {
			known, last := knownOf(state, target, gone), target
			if target.Health == nil {
				last, target.last = target.last, nil
			}
			switch {
			case last == nil || !state.sameRules() || last.Machine != target.Machine || last.Node != target.Node ||
				last.OtherNode != target.OtherNode || last.OlderCheck != target.OlderCheck || last.Health.Node != known:
				again := *target // a copy: the reconcile may fail, and the next one needs the old target
				again.quiet, again.place, list[i] = nil, nil, &again
				state.stateHealth(&again, known, last)
			case last != target:
				target.Seen, target.Health = last.Seen, last.Health
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
