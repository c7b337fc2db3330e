package machinehealthcheck

import (
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// memory is what reconciles remember of each other: for metrics, for checks that are only observed, and until the caches have
// caught up. Nothing is decided on it that the API server does not know as well.
type memory struct {
	mu     sync.Mutex
	checks map[types.NamespacedName]*remembered
	unread map[schema.GroupKind]*unread // kinds of power cycles, of all checks
}

// unread is that a kind could not be read since then, and at last.
type unread struct{ since, last time.Time }

// flight is a remediation that is in flight.
type flight struct{ machine, kind string }

type remembered struct {
	cluster  string
	reach    metav1.Condition
	inFlight map[types.UID]flight // nil if that was never seen
	failed   int                  // reconciles in a row that failed
	stale    int                  // reconciles since then that found the cache to be stale
	decided  machines.Memory
	sighting *sighting
	warned   *string // see observed.warned
	// wrote are the machines that the last reconcile has written, and statusAt is when the status of the check was written last.
	wrote    []string
	unsure   []string // see observed.unsure
	statusAt time.Time
}

// remember notes the remediations that a reconcile, which ended at now, began, and those that it could not begin. It may have taken longer than a cache lags:
// what it began counts from its end.
func (m *memory) remember(w *observed, outcomes []outcome, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.checks[client.ObjectKeyFromObject(w.check)]
	for _, o := range outcomes {
		if o.attempted() && o.err != nil {
			last.decided.Failed(string(o.target.machine.UID), w.now)
		}
		if o.unsure {
			last.unsure = append(last.unsure, o.target.machine.Name)
		}
		if o.saved != nil {
			last.wrote = append(last.wrote, o.saved.Name)
		}
		if o.requested {
			if o.Step == machines.CreateRequest {
				last.decided.Began(string(o.target.machine.UID), remediationKind(w), now)
			}
			if last.inFlight != nil {
				last.inFlight[o.target.machine.UID] = flight{o.target.machine.Name, remediationKind(w)}
			}
		}
	}
}

// recall hands what is remembered to w.
func (m *memory) recall(w *observed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w.remembers, w.wasUnread = true, maps.Clone(m.unread)
	if last, found := m.checks[client.ObjectKeyFromObject(w.check)]; found {
		w.warned, w.memory, w.before, w.reached = last.warned, last.decided, last.sighting, &last.reach
		w.wrote, w.unsure, w.stale, w.statusAt = last.wrote, last.unsure, last.stale, last.statusAt
	}
}

// after is what is to be remembered of a kind of power cycles that could not be read, or could, at now; nil if nothing is. If nobody has tried for
// longer than the retries of a check are apart, nobody knows since when.
func (is *unread) after(failed bool, now time.Time) *unread {
	switch {
	case !failed:
		return nil
	case is == nil || now.After(is.last.Add(2*enqueue.RetryAtMost)):
		return &unread{since: now, last: now}
	}
	return &unread{since: is.since, last: now}
}

// until is until when that blocks machines on hosts.
func (is *unread) until() time.Time { return is.since.Add(taken) }

// pass remembers w, and what it comes to, and returns what was in flight in the reconcile before; nil if that is not known, or if it is not known what is now.
func (m *memory) pass(w *observed, s plan) map[types.UID]flight {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checks == nil {
		m.checks = map[types.NamespacedName]*remembered{}
	}
	key := client.ObjectKeyFromObject(w.check)
	is := &remembered{
		cluster: w.check.Spec.ClusterName, reach: w.reach, decided: s.Memory, sighting: w.sighting,
	}
	was, found := m.checks[key]
	m.checks[key] = is
	if found {
		is.failed, is.inFlight, is.warned, is.statusAt = was.failed, was.inFlight, was.warned, was.statusAt
	}
	m.keepUnread(w)
	if !w.remediation.seen() {
		return nil
	}
	before := is.inFlight
	is.inFlight = map[types.UID]flight{}
	for _, i := range s.Open {
		if m := w.targets[i].machine; s.Decisions[i].InFlight {
			is.inFlight[m.UID] = flight{m.Name, remediationKind(w)}
		}
	}
	return before
}

func (m *memory) keepUnread(w *observed) {
	for kind, is := range w.unread {
		if is == nil {
			delete(m.unread, kind)
			continue
		}
		if m.unread == nil {
			m.unread = map[schema.GroupKind]*unread{}
		}
		m.unread[kind] = is
	}
}

// saved remembers that the status of the check was written, and the restriction of which the last event tells.
func (m *memory) saved(w *observed, p plan, next *clusterv1.MachineHealthCheck) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.checks[client.ObjectKeyFromObject(w.check)]
	is.warned = ptr.To(w.warnedAfter(p, next))
	if !sameStatus(w.check.Status, next.Status) {
		is.statusAt = w.now
	}
}

// lag is how long the cache is waited for that a reconcile of the check has found to be stale.
func (m *memory) lag(key types.NamespacedName) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, found := m.checks[key]
	if !found {
		return consistency.Lag
	}
	last.stale++
	return consistency.Wait(last.stale)
}

// tries counts the reconciles in a row that failed, with this one.
func (m *memory) tries(key types.NamespacedName, failed bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, found := m.checks[key]
	if !found {
		return 0
	}
	last.failed++
	if !failed {
		last.failed = 0
	}
	return last.failed
}

// forget drops what is remembered of a check. It returns its cluster, whether the check was known at all, and whether it was the
// last one of that cluster.
func (m *memory) forget(key types.NamespacedName) (cluster string, known, last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone, found := m.checks[key]
	if !found {
		return "", false, false
	}
	delete(m.checks, key)
	for other, remembered := range m.checks {
		if other.Namespace == key.Namespace && remembered.cluster == gone.cluster {
			return gone.cluster, true, false
		}
	}
	return gone.cluster, true, true
}

// remediationKind names who remediates: the kind of the requests, or the machine's owner.
func remediationKind(w *observed) string {
	if w.remediation.external {
		return w.remediation.kind.Kind
	}
	return "Owner"
}

// begunUncounted is how many remediations are in flight that were not before and that no reconcile counted: the answer to the write
// that began them was lost. While a check is only observed, it is others who begin them.
func begunUncounted(w *observed, p plan, before map[types.UID]flight) int {
	if w.mode != acting || before == nil {
		return 0
	}
	n := 0
	for _, i := range p.Open {
		if _, known := before[w.targets[i].machine.UID]; !known && p.Decisions[i].InFlight {
			n++
		}
	}
	return n
}

// ended says how the remediations ended that were in flight before this reconcile and are not any more.
func ended(w *observed, p plan, before map[types.UID]flight) map[ending]int {
	results := map[ending]int{}
	for id, was := range before {
		if result := w.resultOf(p, id, was.machine); result != "" {
			results[ending{was.kind, result}]++
		}
	}
	return results
}

// resultOf is how a remediation has ended of the machine of that name and UID; empty if it goes on.
func (w *observed) resultOf(p plan, id types.UID, name string) string {
	if i, found := placeOf(w.targets, name); found && w.targets[i].machine.UID == id {
		switch d := p.Decisions[i]; {
		case d.InFlight:
			return ""
		case d.Verdict.State == health.Healthy:
			return recoveredResult
		}
		return cancelledResult
	}
	if i, found := placeOf(w.skipped, name); found && w.skipped[i].machine.UID == id {
		return cancelledResult
	}
	return replacedResult
}

// ending is how a remediation of one kind can be over.
type ending struct{ kind, result string }

// away are the checks that are not reconciled for now, as they are paused, not claimed, or without a Cluster. Nobody notices then that
// their workload cluster goes out of reach and comes back, after which a cache may show nodes for half a minute as they were before.
type away struct {
	mu     sync.Mutex
	checks map[types.NamespacedName]bool
}

// leave notes that a check is not reconciled from now on.
func (a *away) leave(check types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.checks == nil {
		a.checks = map[types.NamespacedName]bool{}
	}
	a.checks[check] = true
}

// back reports whether a check was not reconciled until now, and forgets that.
func (a *away) back(check types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.checks[check]
	delete(a.checks, check)
	return was
}
