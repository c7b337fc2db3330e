package machinehealthcheck

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// target is one Machine that the check selects, as one reconcile finds it.
type target struct {
	machine *clusterv1.Machine // shared with the cache: read only
	node    *corev1.Node       // shared with the cache too; nil if the cache has none, or the workload cluster cannot be read
	other   *corev1.Node       // the Node that has the name of the Machine's and another provider ID; nil if there is none
	known   health.Node        // what is known of the Machine's Node
	older   string             // the name of an older check that selects the Machine too and acts on it; empty if none does
	turns   *turns
	// facts are what the fields above come to; nil if they were not asked for yet.
	facts *machines.Target

	// request is the one that the provider would act on, whoever made it.
	request *remediationrequest.Metadata
	// cycle is a power cycle of the Machine in progress that this check did not ask for; nil if there is none.
	cycle *remediationrequest.Metadata
	// unusable is why no request can be made for the Machine from the template; nil if one can, or if that was not tried.
	unusable error
}

// turns are the conditions that the check has rules about, with their status and when this process saw them turn: the stamps in them are
// of the clocks of others. Those of a Node that cannot be read now are kept.
type turns struct{ machine, node health.Seen }

// pass is what a reconcile leaves of the targets for the next one: when their conditions turned, and the facts about those that do not
// change.
type pass struct {
	check            types.UID
	generation       int64
	at               time.Time
	targets, skipped []*target
}

// place is where the Machine of that name is among targets, which are sorted by name; false if it is not among them.
func place(targets []*target, name string) (at int, found bool) {
	return slices.BinarySearchFunc(targets, name, func(target *target, name string) int { return cmp.Compare(target.machine.Name, name) })
}

// find returns the target of that name in one of the lists; nil if there is none.
func find(name string, lists ...[]*target) *target {
	for _, list := range lists {
		if at, found := place(list, name); found {
			return list[at]
		}
	}
	return nil
}

// observeMachines reads the Machines that the check selects.
func (r *Reconciler) observeMachines(ctx context.Context, w *observed) error {
	list, err := r.machinesOf(ctx, client.ObjectKeyFromObject(w.cluster))
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(machine *clusterv1.Machine) bool { return !w.selector.Matches(labels.Set(machine.Labels)) })
	slices.SortFunc(list, func(a, b *clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	w.targets = make([]*target, 0, len(list))
	for _, other := range w.others {
		w.overlaps = append(w.overlaps, machines.Overlap{Name: other.name, Older: other.older})
	}
	for _, machine := range list {
		w.add(machine)
	}
	return nil
}

// add adds a Machine that the check selects to the targets, or to those that their users want left alone.
func (w *observed) add(machine *clusterv1.Machine) {
	added, leftAlone := &target{machine: machine}, len(leftAloneBy(machine)) > 0
	for i, other := range w.others {
		if !other.selector.Matches(labels.Set(machine.Labels)) {
			continue
		}
		if !leftAlone {
			w.overlaps[i].Shared++
		}
		if other.older && added.older == "" {
			added.older = other.name
		}
	}
	if leftAlone {
		w.skipped = append(w.skipped, added)
	} else {
		w.targets = append(w.targets, added)
	}
}

// observeNodes finds out what is known of the Nodes of the targets. The facts about a target are those of the reconcile before if its
// objects are the very same in the cache: to state them costs ten times as much as to judge them.
func (r *Reconciler) observeNodes(ctx context.Context, w *observed) {
	gone, before := r.findNodes(ctx, w), &w.before.pass
	for _, target := range slices.Concat(w.targets, w.skipped) {
		target.known = knownOf(w, target, gone)
		last := find(target.machine.Name, before.targets, before.skipped)
		if last != nil && w.sameRules() && last.machine == target.machine && last.node == target.node && last.other == target.other &&
			last.known == target.known && last.older == target.older {
			target.turns, target.facts = last.turns, last.facts
		} else {
			target.facts = w.plainFacts(target)
		}
	}
}

// sameRules reports whether the reconcile before had the same rules about conditions.
func (w *observed) sameRules() bool {
	return w.before.pass.check == w.check.UID && w.before.pass.generation == w.check.Generation
}

// datedSignals are signals, the conditions of the target as they are written, each since when it counts given what this process saw of the
// target before.
func (w *observed) datedSignals(target *target, signals []health.Signal) []health.Signal {
	var seen turns
	if last := find(target.machine.Name, w.before.pass.targets, w.before.pass.skipped); last != nil {
		var at time.Time // of a look with other rules it is not known which conditions it saw
		if w.sameRules() {
			at = w.before.pass.at
		}
		seen = ptr.Deref(last.turns, turns{})
		if seen.machine.At = at; last.node != nil || at.IsZero() {
			seen.node.At = at
		}
	}
	onNode := slices.IndexFunc(signals, func(signal health.Signal) bool { return signal.Source == health.OnNode })
	if onNode < 0 {
		onNode = len(signals)
	}
	ofMachine := health.Seen{Object: string(target.machine.UID), At: w.now, Signals: signals[:onNode]}
	seen.machine = seen.machine.Next(ofMachine, time.Time{}, false)
	target.turns = &seen
	if target.node == nil {
		return seen.machine.Signals
	}
	ofNode := health.Seen{Object: string(target.node.UID), At: w.now, Signals: signals[onNode:]}
	seen.node = seen.node.Next(ofNode, target.node.CreationTimestamp.Time, false)
	return slices.Concat(seen.machine.Signals, seen.node.Signals)
}
