package machinehealthcheck

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// judgements keep what the machines of each check came to, so that a reconcile judges only those that have changed: a change in a cluster of
// thousands of machines costs what changed. They hold results of pure functions and nothing else, so nothing can be decided on them that would
// be decided otherwise without them. (docs/adr/0056-a-verdict-is-kept-while-nothing-changes.md)
type judgements struct {
	mu     sync.Mutex
	checks map[types.NamespacedName]*judgement
}

// judgement are those of one check. Reconciles of one check follow each other, so it needs no lock.
type judgement struct {
	basis    basis
	round    uint64
	machines map[string]*kept // of the cluster, by name
	sorted   []*kept          // those that the check selects, by name
	targets  []target         // the storage of w.targets
}

// basis is what the verdicts of all machines of a check depend on, besides the machine and its node.
type basis struct {
	check                            types.UID
	generation                       int64
	cluster                          types.UID
	clusterPaused                    bool
	initialized, infrastructureReady bool
	link                             workload.Link
	starts                           [3]explain.Start
}

// kept is what one machine came to. The machine and its node are shared with the caches, which never change an object: another version of it is
// another pointer.
type kept struct {
	machine  *clusterv1.Machine
	round    uint64
	selected bool
	skipped  bool // its user wants it left alone
	healthy  bool // its conditions say already that it is healthy

	node    *corev1.Node
	known   health.Node
	at      time.Time // when it was judged; zero if it was not
	verdict health.Verdict
}

// of returns the judgement of the check of w, as far as it still holds.
func (j *judgements) of(w *observed) *judgement {
	is := basis{
		check: w.check.UID, generation: w.check.Generation, cluster: w.cluster.UID, clusterPaused: clusterPaused(w.cluster),
		initialized: w.initialized, infrastructureReady: w.infrastructureReady, link: w.link.Link, starts: w.starts,
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.checks == nil {
		j.checks = map[types.NamespacedName]*judgement{}
	}
	key := client.ObjectKeyFromObject(w.check)
	last := j.checks[key]
	switch {
	case last == nil || last.basis.check != is.check || last.basis.generation != is.generation: // the selector may be another one
		last = &judgement{basis: is, machines: map[string]*kept{}}
		j.checks[key] = last
	case last.basis != is:
		last.basis = is
		for _, m := range last.machines {
			m.at = time.Time{}
		}
	}
	return last
}

func (j *judgements) forget(check types.NamespacedName) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.checks, check)
}

// selects sorts the machines of the cluster into the targets of the check and those that their users want left alone.
func (j *judgement) selects(all []*clusterv1.Machine, selector labels.Selector) (targets, skipped []target) {
	j.round++
	other := len(all) != len(j.machines)
	for _, m := range all {
		is, known := j.machines[m.Name]
		if !known {
			is = &kept{}
			j.machines[m.Name] = is
		}
		if is.round = j.round; is.machine == m {
			continue
		}
		was := *is
		*is = kept{
			machine: m, round: j.round, selected: selector.Matches(labels.Set(m.Labels)), skipped: wantedAlone(m) != "", healthy: markedHealthy(m),
		}
		other = other || !known || is.selected != was.selected
	}
	if other {
		j.sort()
	}
	targets = slices.Grow(j.targets[:0], len(j.sorted))
	for _, is := range j.sorted {
		t := target{machine: is.machine, kept: is}
		if is.skipped {
			skipped = append(skipped, t)
			continue
		}
		targets = append(targets, t)
	}
	j.targets = targets
	return targets, skipped
}

// sort forgets the machines that are gone, and puts those that are selected into the order of their names.
func (j *judgement) sort() {
	j.sorted = j.sorted[:0]
	for name, is := range j.machines {
		switch {
		case is.round != j.round:
			delete(j.machines, name)
		case is.selected:
			j.sorted = append(j.sorted, is)
		}
	}
	slices.SortFunc(j.sorted, func(a, b *kept) int { return cmp.Compare(a.machine.Name, b.machine.Name) })
}

// holds reports whether the verdict is still the one that the machine would get.
func (is *kept) holds(node *corev1.Node, known health.Node, now time.Time) bool {
	return is != nil && !is.at.IsZero() && is.node == node && is.known == known && !now.Before(is.at) &&
		(is.verdict.Recheck.IsZero() || now.Before(is.verdict.Recheck))
}

// keep keeps the verdict that the machine got.
func (is *kept) keep(node *corev1.Node, known health.Node, now time.Time, v health.Verdict) {
	if is != nil {
		is.node, is.known, is.at, is.verdict = node, known, now, v
	}
}
