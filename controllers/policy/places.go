package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// numbers counts the group g. A target counts once, however many checks and records it has.
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
		if !e.occupies(now) || e.Observed && waits[e.UID] { // its request exists and asks for a place itself
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

// Ask gives a place to each target of a check that may begin now, and returns what blocks the others. The caller begins those that have a
// place, and calls Settle. A remediation that has begun keeps its place for its next step, which limits do not block (see holds).
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

// Given returns how many places the checks of check's kind and namespace were given since the start. begun has the targets of other such
// checks that have a place but whose remediation was not reported yet, and since when.
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

// Holds returns what blocks the next step of a remediation that has begun, with the current signals. Limits do not block it. If the check
// does not report the target any more, only signals can block it.
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

// Waiting returns what blocks the targets of a check: for targets that wait for a place, what blocked them when they last asked; for
// others, what would block the next step. It asks for no place.
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

// GroupsOf returns the groups that a target of a check belongs to, by the target's name.
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

// Settle ends the claims of a check. A target that was not begun loses its place. A target that was begun keeps it until a report shows the
// remediation. If the response to the write was lost, the target keeps it as long as the write may still take effect.
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

// pass is one calculation of which targets may begin: what it has counted, and which targets it has offered a place.
type pass struct {
	now     time.Time
	awaits  time.Time
	numbers map[*group]numbers
	ahead   map[*group]int
	offered map[*entry]bool
	others  bool // places were offered to other checks, too
}

// offer finds which waiting targets may begin, in their order, and enqueues their checks except asks, which takes its places itself.
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

// inOrder returns the waiting targets in the order in which they may begin. It compares, one after the other: the last refusal (never
// refused is first), whether the target is marked by hand, how many remediations its Cluster has under way (fewest first), since when it is
// due, and the name. The remediations of a Cluster count over all groups, so that two groups never wait for each other.
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
			a.Due.Compare(b.Due), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.check.Name, b.check.Name),
		)
	})
}

// ends says what ends each limit that is reached.
var ends = map[string]string{
	place.GroupUnavailable: "fewer targets are unavailable",
	place.GroupInFlight:    "fewer remediations are under way, and the ones ahead in the order have begun",
	place.GroupRate:        "fewer remediations have begun within an hour",
	place.SlowStart:        "the capacity of the remediations under way has been back for five minutes",
}

// blockers returns what blocks e, after the targets that p has offered places; none if e may begin.
func (l *Ledger) blockers(e *entry, p *pass) []rule.Blocker {
	if !p.awaits.IsZero() {
		return []rule.Blocker{place.Unread(p.awaits)}
	}
	blockers := l.holds(e, p.now)
	for _, policy := range e.by {
		if policy.mode == mendv1.PolicyObserves && isCheck(e.Kind) { // a power cycle of Cluster API core has no check
			blockers = append(blockers, rule.Blocker{
				Reason: place.ObservedByPolicy, Detail: policy.Namespace + "/" + policy.Name, Object: policy.Ref,
				Text:     fmt.Sprintf("%s has mode Observe, so no new remediation of its targets begins", policy.Ref),
				EndsWhen: "it has another mode",
			})
		}
	}
	for _, g := range e.groups {
		if l.lifted(g.policy) {
			continue
		}
		n, counted := p.numbers[g]
		if !counted {
			n = l.numbers(g, p.now)
			p.numbers[g] = n
		}
		n.inFlight, n.claimed = n.inFlight+p.ahead[g], n.claimed+p.ahead[g]
		limit := g.reachedBy(n, p.now)
		if limit.reason == "" {
			continue
		}
		about := LimitText(g.LimitGroup)
		b := rule.Blocker{
			Reason: limit.reason, Detail: limit.arithmetic, Text: fmt.Sprintf("The %s is reached: %s", about, limit.arithmetic),
			Until: limit.until, Brief: "The " + about + " is reached", Object: g.policy.Ref, EndsWhen: ends[limit.reason],
		}
		blockers = append(blockers, b)
	}
	return blockers
}

// holds returns what blocks even the next step of a remediation that has begun. Limits and modes do not.
func (l *Ledger) holds(e *entry, now time.Time) []rule.Blocker {
	if !l.read {
		return []rule.Blocker{place.Unread(time.Time{})}
	}
	var blockers []rule.Blocker
	for _, policy := range e.by {
		if hold, holds := policy.held(); holds {
			blockers = append(blockers, hold)
		}
		if policy.Invalid != "" {
			blockers = append(blockers, rule.Blocker{
				Reason: place.PolicyInvalid, Detail: policy.Namespace + "/" + policy.Name, Object: policy.Ref,
				Text: fmt.Sprintf("%s is invalid, so nothing that it selects is remediated: %s", policy.Ref, policy.Invalid),
				Fix:  fmt.Sprintf("Correct %s, or delete it", policy.Ref),
			})
		}
		if until := policy.Closed(e.Live, now); !until.IsZero() {
			blockers = append(blockers, rule.Blocker{
				Reason: place.ClosedWindow, Detail: "until " + stamp(until), Until: until, Object: policy.Ref,
				Text: fmt.Sprintf("The windows of %s allow no remediation to begin now", policy.Ref), EndsWhen: "its windows allow it",
			})
		}
	}
	return append(blockers, place.Signalled(e.Signals, e.blockWhile(), now)...)
}

// blockWhile returns the signals of others that block e. A tenant's policy cannot remove the signals that block without a policy.
func (e *entry) blockWhile() []mendv1.Signal {
	var while []mendv1.Signal
	said := false
	for _, p := range e.by {
		while = append(while, p.blockWhile...)
		said = said || p.everywhere && p.blockWhile != nil
	}
	if said {
		return while
	}
	return append(while, place.WithoutPolicy...)
}
