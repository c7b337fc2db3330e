package machinehealthcheck

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// memory is what the reconciles of checks leave for the next ones: for metrics, for checks that are only observed, and until the caches
// show what was written. Nothing is decided on it that the API server does not know as well.
type memory struct {
	mu     sync.Mutex
	checks map[types.NamespacedName]remembered
	unread map[schema.GroupKind]*unread // kinds of power cycles, of all checks
}

// unread is that a kind could not be read since then, and at last.
type unread struct{ since, last time.Time }

// flight is a remediation that is in flight.
type flight struct{ machine, kind string }

// remembered is what a reconcile leaves for the next one of its check. It is zero for the first one, and for a reader that reconciles
// nothing.
type remembered struct {
	// lasts says that this process will see what comes next.
	lasts bool
	// away says that the check was not reconciled until now, as it was paused, not claimed, or without a Cluster. kubemend does not notice
	// then that the workload cluster becomes unreachable and reachable again, after which a cache may show nodes for half a minute as they
	// were before.
	away    bool
	cluster string
	reach   *machines.Report // the condition WorkloadClusterReachable
	decided machines.Memory
	// inFlight are the remediations in flight, by the UIDs of the machines; nil if that was never observed.
	inFlight map[types.UID]flight
	pass     pass
	// failed is how many reconciles in a row failed, stale how many since the last one found the cache to be stale.
	failed, stale int
	// warned is the restriction that the last event reported; nil if there was none.
	warned *string
	// wrote are the machines that it wrote, by name; true if the owner may have been asked to remediate it: the write failed, or was not answered.
	wrote map[string]bool
	// blocked is how many machines were blocked by what.
	blocked map[machines.Reason]int
	// statusAt is when this process last wrote the status of the check.
	statusAt time.Time
	// unread are the kinds of power cycles that could not be read.
	unread map[schema.GroupKind]*unread
}

// of is what is remembered of a check.
func (m *memory) of(check types.NamespacedName) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.checks[check]
	before.lasts, before.unread = true, maps.Clone(m.unread)
	return before
}

// keep remembers next, and what was read of power cycles.
func (m *memory) keep(next remembered, w *observed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(client.ObjectKeyFromObject(w.check), next)
	maps.Copy(m.unread, w.unread)
	maps.DeleteFunc(m.unread, func(_ schema.GroupKind, kind *unread) bool { return kind == nil })
}

func (m *memory) store(check types.NamespacedName, next remembered) {
	if m.checks == nil {
		m.checks, m.unread = map[types.NamespacedName]remembered{}, map[schema.GroupKind]*unread{}
	}
	m.checks[check] = next
}

// forget drops what is remembered of a check, which is gone or away. It returns its cluster, whether the check was known at all, and
// whether it was the last one of that cluster.
func (m *memory) forget(key types.NamespacedName, away bool) (cluster string, known, last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := m.checks[key]
	delete(m.checks, key)
	last = true
	for other, remembered := range m.checks {
		last = last && (other.Namespace != key.Namespace || remembered.cluster != gone.cluster)
	}
	if away {
		m.store(key, remembered{away: true})
	}
	return gone.cluster, gone.cluster != "", last
}

// after is what is to be remembered of w, of the plan for it and of what became of that.
func after(w *observed, p plan, done applied) remembered {
	next := remembered{
		cluster: w.check.Spec.ClusterName, reach: p.reach(), decided: p.Memory,
		pass:     pass{check: w.check.UID, generation: w.check.Generation, at: w.now, targets: w.targets, skipped: w.skipped},
		inFlight: w.before.inFlight, warned: w.before.warned, statusAt: w.before.statusAt, blocked: p.blocked(),
		wrote: map[string]bool{},
	}
	if errs, retry := done.failures(w); len(errs) > 0 || retry {
		next.failed = w.before.failed + 1
	}
	if w.remediation.Known {
		next.inFlight = map[types.UID]flight{}
		for _, i := range p.Open {
			if machine := w.targets[i].machine; p.Decisions[i].InFlight {
				next.inFlight[machine.UID] = flight{machine.Name, remediationKind(w)}
			}
		}
	}
	for _, o := range done.outcomes {
		next.note(w, o, remediationKind(w))
	}
	if done.status != nil {
		next.warned = ptr.To(warnedAfter(w, p, done.status))
		if !sameStatus(w.check.Status, done.status.Status) {
			next.statusAt = w.now
		}
	}
	return next
}

// note notes the remediation that an outcome began, or could not begin, and the machine that it wrote.
func (next *remembered) note(w *observed, o outcome, kind string) {
	if o.attempted() && o.err != nil {
		next.decided.Failed(string(o.target.machine.UID), w.now)
	}
	if o.saved != nil || o.unsure {
		next.wrote[o.target.machine.Name] = o.unsure
	}
	if o.requested && o.Step == machines.CreateRequest {
		next.decided.Began(string(o.target.machine.UID))
	}
	if o.requested && next.inFlight != nil {
		next.inFlight[o.target.machine.UID] = flight{o.target.machine.Name, kind}
	}
}

// after is what is to be remembered of a kind of power cycles that could not be read, or could, at now; nil if nothing is. If none was
// tried for longer than the retries of a check are apart, it is not known since when.
func (u *unread) after(failed bool, now time.Time) *unread {
	switch {
	case !failed:
		return nil
	case u == nil || now.After(u.last.Add(2*enqueue.RetryAtMost)):
		return &unread{since: now, last: now}
	}
	return &unread{since: u.since, last: now}
}

// until is until when that blocks machines on hosts.
func (u *unread) until() time.Time { return u.since.Add(taken) }

// remediationKind names who remediates: the kind of the requests, or the machine's owner.
func remediationKind(w *observed) string {
	if w.remediation.External {
		return w.remediation.kind.Kind
	}
	return "Owner"
}

// begunUncounted is how many remediations are in flight that were not before and that no reconcile counted: the answer to the write
// that began them was lost. While a check is only observed, it is others who begin them.
func begunUncounted(w *observed, p plan) int {
	if w.mode != machines.Active || !w.remediation.Known || w.before.inFlight == nil {
		return 0
	}
	begun := 0
	for _, i := range p.Open {
		if _, known := w.before.inFlight[w.targets[i].machine.UID]; !known && p.Decisions[i].InFlight {
			begun++
		}
	}
	return begun
}

// ended says how the remediations ended that were in flight before this reconcile and are not any more.
func ended(w *observed, p plan) map[ending]int {
	results := map[ending]int{}
	if !w.remediation.Known {
		return results
	}
	for id, before := range w.before.inFlight {
		if result := w.resultOf(p, id, before.machine); result != "" {
			results[ending{before.kind, result}]++
		}
	}
	return results
}

// resultOf is how a remediation has ended of the machine of that name and UID; empty if it goes on.
func (w *observed) resultOf(p plan, id types.UID, name string) string {
	if i, found := place(w.targets, name); found && w.targets[i].machine.UID == id {
		switch d := p.Decisions[i]; {
		case d.InFlight:
			return ""
		case d.Verdict.State == health.Healthy:
			return recoveredResult
		}
		return cancelledResult
	}
	if target := find(name, w.skipped); target != nil && target.machine.UID == id {
		return cancelledResult
	}
	return replacedResult
}

// ending is how a remediation of one kind can be over.
type ending struct{ kind, result string }
