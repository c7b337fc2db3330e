package policy

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

const (
	// heardWithin is how long nothing begins after the first policy was read, at most, while a check has not reported its targets.
	heardWithin = time.Minute
	// offeredFor is how long a free place is kept for the first target that waits for it. Its check may fail to take it.
	offeredFor = 5 * time.Second
	// stalledAfter is how long a record may have no new step until its remediation takes no place any more. Its target stays unavailable.
	stalledAfter = time.Hour
)

// The kinds of checks. A power cycle that no check of kubemend asked for counts as a Check of its own, of the kind of its request.
const (
	MachineHealthCheck = "MachineHealthCheck"
	NodeHealthCheck    = "NodeHealthCheck"
)

func isCheck(kind string) bool { return kind == MachineHealthCheck || kind == NodeHealthCheck }

// Check identifies what reports targets and asks for places.
type Check struct {
	Kind string
	types.NamespacedName
}

// pool stands for all checks of c's kind and namespace, whose machines take the same hosts.
func (c Check) pool() Check {
	c.Name = ""
	return c
}

// reporter is the controller of the checks of a kind. list returns all checks of the kind. wake enqueues one.
type reporter struct {
	list func() []reconcile.Request
	wake func(check reconcile.Request, in time.Duration)
}

// Ledger counts what policies limit, for all checks together. Checks report their targets, and ask for places before they begin.
type Ledger struct {
	Clock clock.PassiveClock
	// Installed reports whether the CRD exists. It is called until policies were read.
	Installed func(ctx context.Context) bool

	mu       sync.Mutex
	read     bool
	policies map[rule.Ref]*Policy
	checks   map[Check]map[types.UID]*entry
	records  map[types.NamespacedName]*entry
	groups   map[cliv1.LimitGroup]*group
	queue    map[*entry]bool // the targets that wait for a place
	news     map[*group]bool // the groups whose remediations may have proven themselves
	// heard are the checks that have reported since the time since, at which the first policy was read or a kind of checks was set up.
	heard map[Check]bool
	since time.Time
	// allHeard is set once all checks have reported.
	allHeard bool
	sources  map[string]reporter // by the kind of the checks
	changed  func(policy rule.Ref)
	replaced func()        // called when the policies have changed
	given    map[Check]int // how many places were given since the start, by pool
}

// entry is a target that a check reports, or the remediation of a record, with its groups.
type entry struct {
	*Target

	check   Check
	by      []*Policy // the policies that select it
	groups  []*group
	waits   bool           // it waits for a place
	blocked []rule.Blocker // what kept it from beginning when it last asked
	offered time.Time      // since when a place is offered that it has not taken; zero if none is
	// claimed is when it was given a place; zero without one, or if it is InFlight. lost says that its write got no response.
	claimed time.Time
	lost    bool
	// begun is when the record says that it began; zero if it is no record. stalled is when the remediation takes no place any more; zero
	// if it takes none, because its capacity is back or it has ended.
	begun, stalled time.Time
	// attempted says that the record does not say yet that the remediation has begun.
	attempted bool
}

// group is the set of targets to which a limit applies together.
type group struct {
	cliv1.LimitGroup

	limit  *mendv1.PolicyLimit
	policy *Policy
	size   int               // how many entries are in it
	judged map[types.UID]int // how many checks report each target that can be judged
	open   map[*entry]bool   // the entries that are not idle
	trials trials
}

// SetUp registers a kind of checks: list returns all of them, wake enqueues one. Nothing begins until they have reported.
func (l *Ledger) SetUp(kind string, list func() []reconcile.Request, wake func(check reconcile.Request, in time.Duration)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sources == nil {
		l.sources = map[string]reporter{}
	}
	l.sources[kind] = reporter{list, wake}
	l.since, l.allHeard = l.Clock.Now(), false
}

func (l *Ledger) all() []Check {
	var checks []Check
	for kind, source := range l.sources {
		for _, check := range source.list() {
			checks = append(checks, Check{kind, check.NamespacedName})
		}
	}
	return checks
}

func (l *Ledger) wake(check Check, in time.Duration) {
	if source, is := l.sources[check.Kind]; is {
		source.wake(reconcile.Request{NamespacedName: check.NamespacedName}, in)
	}
}

// Active reports whether there may be policies.
func (l *Ledger) Active(ctx context.Context) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.read {
		return l.Installed(ctx)
	}
	return len(l.policies) > 0
}

// OfHosts reports whether a policy needs to know the hosts of Machines.
func (l *Ledger) OfHosts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Values(l.policies)), (*Policy).OfHosts)
}

// Set replaces all policies, and enqueues all checks: a remediation may not be blocked any more, and checks may not have reported yet.
func (l *Ledger) Set(policies []*Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, former := len(l.policies), l.groups
	l.read, l.policies, l.groups, l.news = true, map[rule.Ref]*Policy{}, map[cliv1.LimitGroup]*group{}, map[*group]bool{}
	for _, p := range policies {
		l.policies[p.Ref] = p
	}
	for _, entries := range l.checks {
		for _, e := range entries {
			l.place(e)
		}
	}
	for _, e := range l.records {
		l.place(e)
	}
	for key, g := range l.groups {
		if same := former[key]; same != nil {
			g.trials = same.trials
		}
	}
	if before == 0 && len(policies) > 0 {
		l.heard, l.since, l.allHeard = map[Check]bool{}, l.Clock.Now(), false
	}
	for _, check := range l.all() {
		l.wake(check, 0)
	}
	if l.replaced != nil {
		l.replaced()
	}
}

// awaits returns until when the ledger waits for checks that have not reported; zero if all have.
func (l *Ledger) awaits(now time.Time) time.Time {
	until := l.since.Add(heardWithin)
	l.allHeard = l.allHeard || !now.Before(until) || !slices.ContainsFunc(l.all(), func(check Check) bool { return !l.heard[check] })
	if l.allHeard {
		return time.Time{}
	}
	return until
}

// hears notes that a check has reported.
func (l *Ledger) hears(check Check) {
	if l.heard != nil {
		l.heard[check] = true
	}
}

// Report replaces the targets of a check. A target with the same pointer has not changed. A claim that has not become a remediation by now
// has failed, unless the response to its write was lost a moment ago.
func (l *Ledger) Report(check Check, targets []*Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checks[check] == nil {
		if l.checks == nil {
			l.checks = map[Check]map[types.UID]*entry{}
		}
		l.checks[check] = make(map[types.UID]*entry, len(targets))
		defer l.knowRecordsOf(check)
	}
	known, awaited, freed := l.checks[check], !l.allHeard, false
	l.hears(check)
	for _, target := range targets {
		if e := known[target.UID]; e == nil || e.Target != target || !e.claimed.IsZero() {
			freed = l.replace(e, check, target) || freed
		}
	}
	if len(known) > len(targets) {
		here := make(map[types.UID]bool, len(targets))
		for _, target := range targets {
			here[target.UID] = true
		}
		for uid, e := range known {
			if !here[uid] {
				freed = true
				l.remove(e)
				delete(known, uid)
			}
		}
	}
	l.see()
	if freed || awaited {
		l.offer(check)
	}
}

// replace replaces e, which is nil for a new target, and reports whether that frees a place.
func (l *Ledger) replace(e *entry, check Check, target *Target) (freed bool) {
	now, next := l.Clock.Now(), &entry{Target: target, check: check}
	if e != nil {
		if e.lost && !target.InFlight && now.Sub(e.claimed) < begin.Settles {
			next.claimed, next.lost = e.claimed, true
		}
		freed = e.Unavailable && !target.Unavailable || e.occupies(now) && !next.occupies(now)
		l.remove(e)
	}
	l.checks[check][target.UID] = next
	l.place(next)
	return freed
}

// Forget removes a check that was deleted, or whose machines are not judged.
func (l *Ledger) Forget(check Check) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hears(check)
	for _, e := range l.checks[check] {
		l.remove(e)
	}
	delete(l.checks, check)
	l.offer(check)
}

// occupies reports whether e takes a place under maxInFlight.
func (e *entry) occupies(now time.Time) bool {
	if !e.begun.IsZero() {
		return now.Before(e.stalled)
	}
	return e.InFlight || !e.claimed.IsZero()
}

// idle reports whether e counts as a target and for nothing else.
func (e *entry) idle() bool {
	return !e.Unavailable && !e.InFlight && !e.waits && e.claimed.IsZero() && e.begun.IsZero()
}

// place adds e to its groups by the current policies.
func (l *Ledger) place(e *entry) {
	e.by, e.groups = e.by[:0], e.groups[:0]
	for _, p := range l.policies {
		if !p.Selects(e.Target) {
			continue
		}
		e.by = append(e.by, p)
		for i := range p.limits {
			limit := &p.limits[i]
			values, grouped := groupOf(limit, e.Target)
			if !grouped {
				continue
			}
			key := cliv1.LimitGroup{Policy: p.Ref, Limit: limit.Name, Group: values}
			g := l.groups[key]
			if g == nil {
				g = &group{LimitGroup: key, limit: limit, policy: p, judged: map[types.UID]int{}, open: map[*entry]bool{}}
				l.groups[key] = g
			}
			e.groups = append(e.groups, g)
			g.size++
			if limit.SlowStart == mendv1.SlowStartEnabled || limit.MaxPerHour != nil {
				l.news[g] = true
			}
			if !e.Unknown && e.begun.IsZero() {
				g.judged[e.UID]++
			}
		}
		l.tell(p)
	}
	slices.SortFunc(e.by, byName)
	slices.SortFunc(e.groups, func(a, b *group) int {
		return cmp.Or(strings.Compare(a.policy.String(), b.policy.String()), strings.Compare(a.limit.Name, b.limit.Name))
	})
	l.touch(e)
}

func byName(a, b *Policy) int { return strings.Compare(a.String(), b.String()) }

// touch updates the open entries of the groups of e after e has become idle, or is idle no more.
func (l *Ledger) touch(e *entry) {
	for _, g := range e.groups {
		if e.idle() {
			delete(g.open, e)
		} else {
			g.open[e] = true
		}
	}
}

func (l *Ledger) remove(e *entry) {
	delete(l.queue, e)
	for _, g := range e.groups {
		delete(g.open, e)
		if !e.Unknown && e.begun.IsZero() {
			g.judged[e.UID]--
			if g.judged[e.UID] == 0 {
				delete(g.judged, e.UID)
			}
		}
		g.size--
		if g.size == 0 {
			delete(l.groups, g.LimitGroup)
		}
	}
	for _, p := range e.by {
		l.tell(p)
	}
}

// see updates the trials of groups, also while no target waits.
func (l *Ledger) see() {
	now := l.Clock.Now()
	for g := range l.news {
		l.numbers(g, now)
	}
	clear(l.news)
}

func (l *Ledger) tell(p *Policy) {
	if l.changed != nil {
		l.changed(p.Ref)
	}
}
