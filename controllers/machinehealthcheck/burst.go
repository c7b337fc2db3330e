package machinehealthcheck

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// The first change of a quiet check is looked at without waiting for those that come with it. Where a limit counts them that is too early to begin
// anything: when three nodes vanish, or come back, one of them does first, and for a moment few enough machines are unhealthy. So nothing begins
// for a machine within a merge window after it was first seen not healthy, nor for any within one after few enough are. It is time that counts and
// not passes: a timer may end a moment after the first change. What a reconcile says of a machine waits for nothing.
// (docs/adr/0035-the-first-change-waits-for-nothing.md)

// awaitBurst marks the targets of w for which nothing begins in this reconcile.
//
// It rests on what this process has seen, and not on what the check says: a status that cannot be written would stop it for ever. A process that
// has seen nothing yet lets a window pass for every machine, and so needs not know how it was before.
func (m *memory) awaitBurst(w *observed) {
	if !limited(w.check) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.checks[client.ObjectKeyFromObject(w.check)]
	for i := range w.targets {
		t := &w.targets[i]
		if !w.startable(t) {
			continue
		}
		if until := last.quietSince(t.machine.UID, w.now).Add(enqueue.MergeWindow); w.now.Before(until) {
			t.sudden = until
		}
	}
}

// quietSince is from when on a merge window has to pass before anything begins for a machine: when it was first seen not healthy, or few enough were.
func (is *remembered) quietSince(machine types.UID, now time.Time) time.Time {
	if is == nil || is.stormy {
		return now // if few enough are unhealthy in this reconcile, it is the first one
	}
	since, known := is.bad[machine]
	if !known {
		return now
	}
	return later(since, is.calm)
}

// afterBurst is when to look again because something would have begun in this reconcile; zero if nothing would.
func afterBurst(w *observed, s summary) time.Time {
	var next time.Time
	if s.grant.Reason == budget.Enough || s.grant.Reason == budget.AtWork {
		for i := range w.targets {
			next = health.Earliest(next, w.targets[i].sudden)
		}
	}
	return next
}

// anySudden reports whether nothing begins for a machine because of what may be a burst.
func anySudden(w *observed) bool {
	return slices.ContainsFunc(w.targets, func(t target) bool { return !t.sudden.IsZero() })
}

// limited reports whether more unhealthy machines could forbid to remediate any.
func limited(check *clusterv1.MachineHealthCheck) bool {
	trigger := check.Spec.Remediation.TriggerIf
	most := trigger.UnhealthyLessThanOrEqualTo
	return trigger.UnhealthyInRange != "" || most != nil && most.String() != "100%"
}

// noteBurst remembers what awaitBurst needs of the reconcile before; was is what was remembered until now, or nil.
func (is *remembered) noteBurst(w *observed, s summary, was *remembered) {
	if was == nil {
		was = &remembered{}
	}
	is.bad, is.calm, is.stormy = map[types.UID]time.Time{}, was.calm, s.grant.ShortCircuited()
	if was.stormy && !is.stormy {
		is.calm = w.now
	}
	for i := range w.targets {
		if t := &w.targets[i]; t.verdict.State != health.Healthy {
			since, known := was.bad[t.machine.UID]
			if !known {
				since = w.now
			}
			is.bad[t.machine.UID] = since
		}
	}
}
