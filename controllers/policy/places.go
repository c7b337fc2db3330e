package policy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// numbers are what the limit of g compares. A target counts once, by whatever check and record.
func (l *Ledger) numbers(g *group, now time.Time) numbers {
	unavailable, occupied, begun := map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]time.Time{}
	waits := map[types.UID]bool{}
	n := numbers{targets: len(g.judged)}
	for e := range g.open {
		if e.waits {
			waits[e.UID] = true
		}
	}
	n.waiting = len(waits)
	for e := range g.open {
		if l.asksItself(e) {
			continue
		}
		if !e.begun.IsZero() {
			g.trials.saw(e.UID, e.begun)
		}
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
			if holds := l.holds(e, l.Clock.Now()); len(holds) > 0 {
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
			e.blocked = l.blockers(e, p)
			blocked[e.UID] = e.blocked
			continue
		}
		e.claimed, e.waits = p.now, false
		if l.given == nil {
			l.given = map[Check]int{}
		}
		l.given[check.pool()]++
		delete(l.queue, e)
	}
	if len(blocked) > 0 && p.others {
		l.wake(check, offeredFor+time.Second)
	}
	return blocked
}

// Given is how many places were given since the start to checks of the kind and namespace of check, and since when targets of other ones
// have one that are not seen to be remediated.
func (l *Ledger) Given(check Check) (places int, begun map[types.UID]time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun = map[types.UID]time.Time{}
	for other, entries := range l.checks {
		for uid, e := range entries {
			if other.pool() == check.pool() && !e.claimed.IsZero() && l.checks[check][uid] == nil {
				begun[uid] = e.claimed
			}
		}
	}
	return l.given[check.pool()], begun
}

// Holds is what keeps the next step of a remediation that has begun from being taken, with the signals that there are now. Limits do not.
// For a target that its check reports no more the signals alone do.
func (l *Ledger) Holds(check Check, target types.UID, signals []place.Signal) []rule.Blocker {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, e := l.Clock.Now(), l.checks[check][target]
	switch until := l.awaits(now); {
	case e == nil && (!l.read || !until.IsZero()):
		return []rule.Blocker{place.Unread(until)}
	case e == nil:
		return place.Signalled(signals, place.WithoutPolicy, now)
	}
	seen := *e.Target
	seen.Signals = signals
	return l.holds(&entry{Target: &seen, by: e.by}, now)
}

// Waiting is what keeps targets of a check from being remediated: those that ask for a place from beginning, as when they last asked, and
// the others from the next step of what has begun. Nothing is asked for.
func (l *Ledger) Waiting(check Check) map[types.UID][]rule.Blocker {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	blocked := map[types.UID][]rule.Blocker{}
	for uid, e := range l.checks[check] {
		if blocked[uid] = e.blocked; !e.waits {
			blocked[uid] = l.holds(e, l.Clock.Now())
		}
	}
	return blocked
}

// GroupsOf are the groups of a target of a check, by its name.
func (l *Ledger) GroupsOf(check Check, target string) (groups []cliv1.LimitGroup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.checks[check] {
		for _, g := range e.groups {
			if e.Name == target {
				groups = append(groups, g.LimitGroup)
			}
		}
	}
	return groups
}

// Settle ends the claims of a check: what was not begun gives its place back. A begun one keeps it until a report shows the remediation;
// one whose answer was lost for as long as it may still be carried out.
func (l *Ledger) Settle(check Check, begun, lost map[types.UID]bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	freed := false
	for uid, e := range l.checks[check] {
		switch {
		case e.claimed.IsZero():
		case lost[uid]:
			e.lost = true
		case !begun[uid] && !e.lost:
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
			if e.occupies(now) && !l.asksItself(e) {
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
