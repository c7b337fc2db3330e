package policy

import (
	"fmt"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

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
