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

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

const (
	// heardWithin is how long nothing begins after the first policy was read, at most, while a check has not said yet what it counts.
	heardWithin = time.Minute
	// offeredFor is how long a free place is kept for the first that waits for it, whose check may fail to take it.
	offeredFor = 5 * time.Second
	// stalledAfter is how long a record may tell no step until its remediation takes no place any more. It stays unavailable.
	stalledAfter = time.Hour
)

// The kinds of checks. A power cycle that no check of kubemend asked for is one of its own, of the kind of its request.
const (
	MachineHealthCheck = "MachineHealthCheck"
	NodeHealthCheck    = "NodeHealthCheck"
)

// Check is what reports targets and asks for places.
type Check struct {
	Kind string
	types.NamespacedName
}

// reporter is the controller of the checks of a kind: list are all of them, wake has one reconciled.
type reporter struct {
	list func() []reconcile.Request
	wake func(check reconcile.Request, in time.Duration)
}

// Ledger is the one memory of what policies count. Checks report their targets, and ask for places before they begin.
type Ledger struct {
	Clock clock.PassiveClock
	// Installed reports whether there are RemediationPolicies at all; it is asked until they were read.
	Installed func(ctx context.Context) bool

	mu       sync.Mutex
	read     bool
	policies map[rule.Ref]*Policy
	checks   map[Check]map[types.UID]*entry
	records  map[types.NamespacedName]*entry
	groups   map[groupKey]*group
	queue    map[*entry]bool // those that wait
	news     map[*group]bool // those whose remediations may have turned out
	// heard are the checks that have reported since there are policies, since when that is so, and all that all have.
	heard    map[Check]bool
	since    time.Time
	allHeard bool
	sources  map[string]reporter // by the kind of the checks
	changed  func(policy rule.Ref)
}

// entry is a target, or a remediation by its record, in the groups that it belongs to.
type entry struct {
	*Target

	check   Check
	by      []*Policy // those that select it
	groups  []*group
	waits   bool      // it asks for a place
	offered time.Time // since when there is one for it, which it has not taken; zero otherwise
	// claimed is when it was given a place; zero if it has none, or if it is InFlight. lost says that the answer to the write was.
	claimed time.Time
	lost    bool
	// begun is when a record says that it began, stalled when that takes no place any more; zero for what is no record.
	begun, stalled time.Time
}

type groupKey struct {
	policy        rule.Ref
	limit, values string
}

// group is the targets to which a limit applies together.
type group struct {
	groupKey

	limit  *mendv1.PolicyLimit
	policy *Policy
	size   int               // of all entries
	judged map[types.UID]int // by how many checks
	open   map[*entry]bool   // those that are not idle, and records
	trials trials
}

// SetUp makes the ledger use list, which are all checks of a kind, and wake, which has one reconciled. What these count is waited for.
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

// all are the checks of all kinds.
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

// Set replaces all policies. The checks are reconciled: what was blocked may begin, and what is counted is not known yet.
func (l *Ledger) Set(policies []*Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, former := len(l.policies), l.groups
	l.read, l.policies, l.groups, l.news = true, map[rule.Ref]*Policy{}, map[groupKey]*group{}, map[*group]bool{}
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
}

// awaits is until when a check is waited for that has not reported yet; zero if all have.
func (l *Ledger) awaits(now time.Time) time.Time {
	until := l.since.Add(heardWithin)
	l.allHeard = l.allHeard || !now.Before(until) || !slices.ContainsFunc(l.all(), func(check Check) bool { return !l.heard[check] })
	if l.allHeard {
		return time.Time{}
	}
	return until
}

// hears notes that a check has said what it counts.
func (l *Ledger) hears(check Check) {
	if l.heard != nil {
		l.heard[check] = true
	}
}

// Report replaces what is known of the targets of a check: a target that is the same pointer has not changed. A claim that is not seen to
// have become a remediation has failed, unless its answer was lost a moment ago.
func (l *Ledger) Report(check Check, targets []*Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.checks[check]
	if known == nil {
		if l.checks == nil {
			l.checks = map[Check]map[types.UID]*entry{}
		}
		known = make(map[types.UID]*entry, len(targets))
		l.checks[check] = known
		defer l.knowRecordsOf(check)
	}
	awaited := !l.allHeard
	l.hears(check)
	freed, seen := false, 0
	for _, target := range targets {
		e := known[target.UID]
		if e != nil {
			seen++
		}
		if e != nil && e.Target == target && e.claimed.IsZero() {
			continue
		}
		next := &entry{Target: target, check: check}
		if e != nil {
			if e.lost && !target.InFlight && l.Clock.Since(e.claimed) < begin.Settles {
				next.claimed, next.lost = e.claimed, true
			}
			freed = freed || e.Unavailable && !target.Unavailable || e.occupies(l.Clock.Now()) && !next.occupies(l.Clock.Now())
			l.remove(e)
		} else {
			seen++
		}
		known[target.UID] = next
		l.place(next)
	}
	if seen < len(known) {
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

// Forget forgets a check that is gone, or whose machines are not judged.
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

// Record counts the remediation of an open record, whose target may be gone. It can only make numbers larger. target is nil for a record
// that is closed, gone, or not begun.
func (l *Ledger) Record(record types.NamespacedName, target *Target, begun, stepped time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.records[record]
	if before != nil {
		l.remove(before)
		delete(l.records, record)
	}
	if target == nil {
		if before != nil {
			l.offer(Check{})
		}
		return
	}
	if l.records == nil {
		l.records = map[types.NamespacedName]*entry{}
	}
	check := Check{target.Kind, types.NamespacedName{Namespace: target.Namespace, Name: target.Check}}
	if check.Kind == NodeHealthCheck {
		check.Namespace = ""
	}
	if before != nil { // it may know the labels of a target that is gone
		target = before.Target
	}
	e := &entry{Target: target, check: check, begun: begun, stalled: stepped.Add(stalledAfter)}
	e.Target = l.known(e)
	l.records[record] = e
	l.place(e)
}

// known is the target of a record with what its check has reported, of it or of others: a record tells no labels.
func (l *Ledger) known(e *entry) *Target {
	if same := l.checks[e.check][e.UID]; same != nil {
		return same.Target
	}
	if e.ClusterLabels != nil {
		return e.Target
	}
	for _, other := range l.checks[e.check] {
		target := *e.Target
		target.ClusterLabels, target.CheckLabels = other.ClusterLabels, other.CheckLabels
		return &target
	}
	return e.Target
}

func (l *Ledger) knowRecordsOf(check Check) {
	for _, e := range l.records {
		if e.check == check {
			l.remove(e)
			e.Target = l.known(e)
			l.place(e)
		}
	}
}

// occupies reports whether e takes a place under maxInFlight.
func (e *entry) occupies(now time.Time) bool {
	if !e.stalled.IsZero() {
		return now.Before(e.stalled)
	}
	return e.InFlight || !e.claimed.IsZero()
}

// idle reports whether e is counted as a target and nothing else.
func (e *entry) idle() bool {
	return !e.Unavailable && !e.InFlight && !e.waits && e.claimed.IsZero() && e.stalled.IsZero()
}

// place puts e into the groups that it belongs to by the policies that are there.
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
			key := groupKey{p.Ref, limit.Name, values}
			g := l.groups[key]
			if g == nil {
				g = &group{groupKey: key, limit: limit, policy: p, judged: map[types.UID]int{}, open: map[*entry]bool{}}
				l.groups[key] = g
			}
			e.groups = append(e.groups, g)
			g.size++
			if limit.SlowStart == mendv1.SlowStartEnabled || limit.MaxPerHour != nil {
				l.news[g] = true
			}
			if !e.Unknown && e.stalled.IsZero() {
				g.judged[e.UID]++
			}
		}
		l.tell(p)
	}
	slices.SortFunc(e.by, func(a, b *Policy) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(e.groups, func(a, b *group) int {
		return cmp.Or(strings.Compare(a.policy.String(), b.policy.String()), strings.Compare(a.limit.Name, b.limit.Name))
	})
	l.touch(e)
}

// touch notes that e is idle or not.
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
		if !e.Unknown && e.stalled.IsZero() {
			if g.judged[e.UID]--; g.judged[e.UID] == 0 {
				delete(g.judged, e.UID)
			}
		}
		if g.size--; g.size == 0 {
			delete(l.groups, g.groupKey)
		}
	}
	for _, p := range e.by {
		l.tell(p)
	}
}

// see lets groups see how their remediations turn out, whether somebody waits or not.
func (l *Ledger) see() {
	now := l.Clock.Now()
	for g := range l.news {
		g.numbers(now)
	}
	clear(l.news)
}

func (l *Ledger) tell(p *Policy) {
	if l.changed != nil {
		l.changed(p.Ref)
	}
}

// numbers are what the limit of g compares. A target counts once, by whatever check and record.
func (g *group) numbers(now time.Time) numbers {
	unavailable, occupied, begun := map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]time.Time{}
	waits := map[types.UID]bool{}
	n := numbers{targets: len(g.judged)}
	for e := range g.open {
		if e.waits && !waits[e.UID] {
			n.waiting++
			waits[e.UID] = true
		}
	}
	for e := range g.open {
		if e.Unknown && e.claimed.IsZero() && !e.InFlight {
			continue
		}
		if e.Unavailable || !e.stalled.IsZero() {
			unavailable[e.UID] = true
		}
		if !e.occupies(now) || e.Observed && waits[e.UID] { // its request is there, and asks for its place
			continue
		}
		if occupied[e.UID] = true; e.claimed.IsZero() {
			begun[e.UID] = cmp.Or(e.begun, begun[e.UID], now)
		}
	}
	n.unavailable, n.inFlight, n.claimed = len(unavailable), len(occupied), len(occupied)-len(begun)
	g.trials.observe(begun, unavailable, now)
	return n
}

// Ask gives a place to each of the targets of a check that may begin now, and returns what blocks the others. Who was given one begins, or
// gives it back (Settle). The next step of what has begun has its place, and waits for what Holds.
func (l *Ledger) Ask(check Check, waiting []types.UID) map[types.UID][]rule.Blocker {
	l.mu.Lock()
	defer l.mu.Unlock()
	blocked, asking := map[types.UID][]rule.Blocker{}, []*entry(nil)
	for _, uid := range waiting {
		e := l.checks[check][uid]
		if e == nil || !e.claimed.IsZero() {
			continue
		}
		if e.InFlight {
			if holds := l.holds(e); len(holds) > 0 {
				blocked[uid] = holds
			}
			continue
		}
		e.waits, e.offered = true, time.Time{}
		if l.queue == nil {
			l.queue = map[*entry]bool{}
		}
		l.queue[e] = true
		l.touch(e)
		asking = append(asking, e)
	}
	p := l.offer(check)
	for _, e := range asking {
		if !p.offered[e] {
			blocked[e.UID] = l.blockers(e, p)
			continue
		}
		e.claimed, e.waits = p.now, false
		delete(l.queue, e)
	}
	if len(blocked) > 0 && p.others {
		l.wake(check, offeredFor+time.Second)
	}
	return blocked
}

// Holds is what keeps the next step of a remediation that has begun from being taken. Limits do not.
func (l *Ledger) Holds(check Check, target types.UID) []rule.Blocker {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.checks[check][target]; e != nil {
		return l.holds(e)
	}
	return nil
}

func (l *Ledger) holds(e *entry) []rule.Blocker {
	return l.blockers(&entry{Target: e.Target, by: e.by}, &pass{now: l.Clock.Now()})
}

// Settle ends the claims of a check: what was not begun gives its place back. A begun one keeps it until a report shows the remediation;
// one whose answer was lost for as long as it may still be carried out.
func (l *Ledger) Settle(check Check, begun, lost func(types.UID) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	freed := false
	for uid, e := range l.checks[check] {
		switch {
		case e.claimed.IsZero():
		case lost(uid):
			e.lost = true
		case !begun(uid) && !e.lost:
			e.claimed, freed = time.Time{}, true
			l.touch(e)
		}
	}
	if freed {
		l.offer(check)
	}
}

// pass is one look at who may begin: what it has counted, and to whom it has given a place.
type pass struct {
	now     time.Time
	awaits  time.Time
	numbers map[*group]numbers
	ahead   map[*group]int
	offered map[*entry]bool
	others  bool // some of other checks
}

// offer finds out which of those that wait may begin, in their order, and wakes their checks but for one that asks by itself.
func (l *Ledger) offer(asks Check) *pass {
	p := &pass{now: l.Clock.Now(), numbers: map[*group]numbers{}, ahead: map[*group]int{}, offered: map[*entry]bool{}}
	p.awaits = l.awaits(p.now)
	for _, e := range l.inOrder(p.now) {
		passed := !e.offered.IsZero() && p.now.Sub(e.offered) >= offeredFor
		if passed || len(l.blockers(e, p)) > 0 {
			continue
		}
		p.offered[e] = true
		for _, g := range e.groups {
			p.ahead[g]++
		}
		if e.check == asks {
			continue
		}
		p.others = true
		if e.offered.IsZero() {
			e.offered = p.now
			l.wake(e.check, 0)
		}
	}
	return p
}

// inOrder are those that wait, in the order in which they may begin: last those that could not be begun when tried, the longest ago
// first; those marked by hand, of the Cluster with the fewest remediations under way, due for the longest time, by name. The Cluster counts
// over all groups, so that two groups never wait for each other.
func (l *Ledger) inOrder(now time.Time) []*entry {
	if len(l.queue) == 0 {
		return nil
	}
	flying := map[string]map[types.UID]bool{}
	for _, g := range l.groups {
		for e := range g.open {
			if e.occupies(now) {
				cluster := e.Namespace + "/" + e.Cluster
				if flying[cluster] == nil {
					flying[cluster] = map[types.UID]bool{}
				}
				flying[cluster][e.UID] = true
			}
		}
	}
	byHand := func(e *entry) int {
		if e.ByHand {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(l.queue), func(a, b *entry) int {
		return cmp.Or(
			a.Refused.Compare(b.Refused), cmp.Compare(byHand(a), byHand(b)),
			cmp.Compare(len(flying[a.Namespace+"/"+a.Cluster]), len(flying[b.Namespace+"/"+b.Cluster])),
			a.Due.Compare(b.Due), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.check.Name, b.check.Name),
		)
	})
}
