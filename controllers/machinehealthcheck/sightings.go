package machinehealthcheck

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// target is one machine that the check selects. One that was observed does not change: another version of the machine or of its node is another target.
type target struct {
	name    string
	machine *clusterv1.Machine // shared with the cache: read only
	node    *corev1.Node       // as the cache has it, shared too; nil if it has none, or cannot be asked
	other   *corev1.Node       // in the way of knowing it; nil if nothing is
	known   health.Node        // what is known of it
	// ofMachine and ofNode are the conditions that rules are about, as seen last: those of a node that cannot be seen now, too.
	ofMachine, ofNode health.Seen
	// others are the places of the other checks that select the machine too, older is the name of one of them that acts on it.
	others []int
	older  string
	// facts are what all this comes to; nil if it was not asked for yet.
	facts *machines.Target

	// What follows is of one reconcile, on a copy of the target.

	// request is the one that the provider would act on, of any maker.
	request *remediationrequest.Metadata
	// cycle is a power cycle of the machine that is under way and that this check did not ask for; nil if there is none.
	cycle *remediationrequest.Metadata
	// unusable is why no request can be made for it from the template, as far as that was looked at.
	unusable error
}

// placeOf is where the machine of that name is among targets, which are sorted by name; false if it is not there.
func placeOf(targets []*target, name string) (place int, found bool) {
	return slices.BinarySearchFunc(targets, name, func(t *target, name string) int { return cmp.Compare(t.name, name) })
}

// with is targets with t as the one of that name, or without any if t is nil. It changes targets.
func with(targets []*target, name string, t *target) []*target {
	switch place, found := placeOf(targets, name); {
	case found && t != nil:
		targets[place] = t
	case found:
		return slices.Delete(targets, place, place+1)
	case t != nil:
		return slices.Insert(targets, place, t)
	}
	return targets
}

// sighting is what a reconcile has read of the machines of a check, for the next one, which reads again those that events were about since: the others are
// as they were. It does not change once the reconcile is over, and without it a reconcile finds the same. (docs/adr/0075-a-reconcile-reads-what-has-changed.md)
type sighting struct {
	basis  sightingBasis
	others []otherCheck
	until  position  // the events before it were about what was read
	full   time.Time // when all machines were read
	at     time.Time // when it was made

	targets, skipped []*target // sorted by name; skipped are those that the user wants left alone
	names            []string  // of targets
	said             []string  // status.targets of the check, if they are those names
	facts            []*machines.Target
	unseen           []string           // targets whose node the cache does not have
	overlaps         []machines.Overlap // as others, with how many targets they select too
}

// sightingBasis is what an observation of a machine depends on, besides the machine, its node and the other checks.
type sightingBasis struct {
	check       types.UID
	generation  int64
	cluster     client.ObjectKey
	initialized bool
	nodes       workload.Origin
}

// target is the target of that name; nil if there is none.
func (s *sighting) target(name string) *target {
	if s == nil {
		return nil
	}
	for _, those := range [][]*target{s.targets, s.skipped} {
		if place, found := placeOf(those, name); found {
			return those[place]
		}
	}
	return nil
}

// sight reads the machines of the check: those that may have changed since the reconcile before, or all of them, if those are not known. That no event was
// missed is relied on until the next resync.
func (r *Reconciler) sight(ctx context.Context, w *observed) error {
	key := client.ObjectKeyFromObject(w.cluster)
	is := &sighting{others: w.others, full: w.now, at: w.now, basis: sightingBasis{
		check: w.check.UID, generation: w.check.Generation, cluster: key, initialized: w.initialized, nodes: w.link.Origin(),
	}}
	if w.sighting = is; r.machines == nil {
		return r.sightAll(ctx, w)
	}
	was, since := w.before.sighting, position{}
	if was != nil {
		since = was.until
	}
	changed, until, known := r.journal.since(key, since)
	if is.until = until; was != nil && was.basis == is.basis && slices.EqualFunc(was.others, is.others, otherCheck.same) {
		w.last = was
	}
	if !known || w.last == nil || w.now.Before(was.full) || r.Resync > 0 && !w.now.Before(was.full.Add(r.Resync)) {
		return r.sightAll(ctx, w)
	}
	is.full, is.names, is.said, is.facts = was.full, was.names, was.said, was.facts
	is.targets, is.skipped, is.overlaps = slices.Clone(was.targets), slices.Clone(was.skipped), slices.Clone(was.overlaps)
	changed = slices.Concat(changed, w.before.wrote, w.before.unsure, was.unseen)
	slices.Sort(changed)
	for _, name := range slices.Compact(changed) {
		m, err := r.machineOf(key, name)
		if err != nil {
			return err
		}
		w.add(name, m)
	}
	return nil
}

// sightAll reads all machines of the cluster.
func (r *Reconciler) sightAll(ctx context.Context, w *observed) error {
	all, err := r.machinesOf(ctx, client.ObjectKeyFromObject(w.cluster))
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	w.sighting.targets = make([]*target, 0, len(all))
	for _, other := range w.others {
		w.sighting.overlaps = append(w.sighting.overlaps, machines.Overlap{Name: other.name, Older: other.older})
	}
	for _, m := range all {
		w.add(m.Name, m)
	}
	return nil
}

// add notes that m is the machine of that name; nil if the cluster has none.
func (w *observed) add(name string, m *clusterv1.Machine) {
	var is, skips *target
	switch {
	case m == nil || !w.selector.Matches(labels.Set(m.Labels)):
	case len(leftAloneBy(m)) > 0:
		skips = w.targetOf(name, m)
	default:
		is = w.targetOf(name, m)
		w.fresh = append(w.fresh, is)
	}
	if place, found := placeOf(w.sighting.targets, name); found {
		w.sighting.share(w.sighting.targets[place], -1)
	}
	w.sighting.share(is, 1)
	targets := with(w.sighting.targets, name, is)
	if len(targets) != len(w.sighting.targets) {
		w.sighting.names, w.sighting.said, w.sighting.facts = nil, nil, nil // others are at other places
	}
	w.sighting.targets, w.sighting.skipped = targets, with(w.sighting.skipped, name, skips)
}

// targetOf is m, which has that name, with the other checks that select it too.
func (w *observed) targetOf(name string, m *clusterv1.Machine) *target {
	t := &target{name: name, machine: m}
	for i, other := range w.others {
		if !other.selector.Matches(labels.Set(m.Labels)) {
			continue
		}
		if t.others = append(t.others, i); other.older && t.older == "" {
			t.older = other.name
		}
	}
	return t
}

// look says of signals, which are those of t as they are written, since when they count, given what this process saw of t before.
func (w *observed) look(t *target, signals []health.Signal) []health.Signal {
	if last, was := w.before.sighting, w.before.sighting.target(t.name); was != nil {
		at := last.at
		if last.basis.generation != w.check.Generation { // there were other rules
			at = time.Time{}
		}
		if t.ofMachine, t.ofNode, t.ofMachine.At = was.ofMachine, was.ofNode, at; was.node != nil || at.IsZero() {
			t.ofNode.At = at
		}
	}
	nodes := slices.IndexFunc(signals, func(s health.Signal) bool { return s.Source == health.OnNode })
	if nodes < 0 {
		nodes = len(signals)
	}
	t.ofMachine = t.ofMachine.Next(health.Seen{Object: string(t.machine.UID), At: w.now, Signals: signals[:nodes]}, time.Time{}, false)
	if t.node == nil {
		return t.ofMachine.Signals
	}
	now := health.Seen{Object: string(t.node.UID), At: w.now, Signals: signals[nodes:]}
	t.ofNode = t.ofNode.Next(now, t.node.CreationTimestamp.Time, false)
	return slices.Concat(t.ofMachine.Signals, t.ofNode.Signals)
}

// share counts n more targets, which are as t, among those that others select too.
func (s *sighting) share(t *target, n int) {
	if t == nil {
		return
	}
	for _, i := range t.others {
		s.overlaps[i].Shared += n
	}
}

// complete completes the targets that were read with what is known of their nodes, given the names of those that are gone. A target that is as it was before
// is the very same one, and so are the facts about it, which tells a decision that nothing has to be judged again.
func (w *observed) complete(gone map[string]bool) {
	is := w.sighting
	for _, t := range w.fresh {
		t.known = knownOf(w, t, gone)
		was := w.last.target(t.name)
		if was != nil && was.facts != nil && was.machine == t.machine && was.node == t.node &&
			was.other == t.other && was.known == t.known {
			t.facts, t.ofMachine, t.ofNode = was.facts, was.ofMachine, was.ofNode
		} else {
			t.facts = w.plainFacts(t)
		}
		if t.node == nil && t.machine.Status.NodeRef.Name != "" && w.link.Link == workload.Up {
			is.unseen = append(is.unseen, t.name)
		}
	}
	if is.facts == nil {
		is.names, is.facts = make([]string, len(is.targets)), make([]*machines.Target, len(is.targets))
		for i, t := range is.targets {
			is.names[i], is.facts[i] = t.name, t.facts
		}
	} else if len(w.fresh) > 0 {
		is.facts = slices.Clone(is.facts)
		for _, t := range w.fresh {
			place, _ := placeOf(is.targets, t.name)
			is.facts[place] = t.facts
		}
	}
}

// release removes the machines that the reconcile wrote, when it ends. The next one reads them again, but own writes do not enqueue it: until then the
// former versions would stay in memory beside those in the cache, after the first reconcile all of them.
func (s *sighting) release(wrote []string) {
	for _, name := range wrote {
		for _, those := range [][]*target{s.targets, s.skipped} {
			if place, found := placeOf(those, name); found {
				was := those[place]
				those[place] = &target{name: name, others: was.others, node: was.node, ofMachine: was.ofMachine, ofNode: was.ofNode}
			}
		}
	}
}

// alter changes a target for this reconcile alone.
func (w *observed) alter(place int, change func(*target)) {
	if len(w.altered) == 0 {
		w.targets = slices.Clone(w.targets)
	}
	t := *w.targets[place]
	change(&t)
	w.targets[place], w.altered = &t, append(w.altered, place)
}

// machine is the machine of that name as it was read; nil if there is none.
func (w *observed) machine(name string) *clusterv1.Machine {
	if t := w.sighting.target(name); t != nil {
		return t.machine
	}
	return nil
}
