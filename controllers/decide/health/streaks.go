package health

import (
	"slices"
	"time"
)

// Streak is a time for which a condition has been in one bad status or the other.
type Streak struct {
	Began time.Time
	// Turned is when it turned to the present one.
	Turned time.Time
	// Longest is the longest timeout of the statuses since then.
	Longest time.Duration
}

// Streaks are those of one object, by the type of the condition.
//
// A kubelet that dies halfway turns Ready from Unknown to False and back, and each turn starts the condition's clock anew: 299 s of one
// and 299 s of the other are ten minutes without a node, and no rule is ever met. So its statuses count together, for the longest of their
// timeouts.
type Streaks map[string]Streak

// After is what s is with an object of which those conditions are seen now, judged by rules, and the conditions since when they count
// together. A process that was blind since has not seen whether an object that has turned was healthy in between. Reached is when the
// workload cluster was reached again after an outage: of what may have been written blind before nothing counts. ConnectionDown says
// nothing about a Machine, so it is no part of such a time.
func (s Streaks) After(seen []Signal, rules []Rule, blind bool, reached time.Time) (next Streaks, together []Signal) {
	together = slices.Clone(seen)
	for i := range together {
		c := &together[i]
		at := slices.IndexFunc(rules, func(rule Rule) bool { return rule.matches(*c) })
		if at < 0 || c.Source == OnMachine && c.Reason == ConnectionDown {
			continue
		}
		rule := &rules[at]
		streak, known := s[c.Type]
		if unseen := blind && !c.Since.Equal(streak.Turned); !known || unseen || c.Since.Before(streak.Began) {
			streak = Streak{Began: c.Since}
		}
		if (remote[c.Type] || writtenBlind(*c)) && streak.Began.Before(reached) {
			streak.Began = reached.Add(Settling)
		}
		streak.Turned, streak.Longest = c.Since, max(streak.Longest, rule.For)
		if from := streak.Began.Add(streak.Longest - rule.For); from.Before(c.Since) {
			c.Since = from
		}
		if next == nil {
			next = Streaks{}
		}
		next[c.Type] = streak
	}
	return next, together
}

// Later are the streaks of s, each so much later.
func (s Streaks) Later(by time.Duration) Streaks {
	if by == 0 {
		return s
	}
	next := make(Streaks, len(s))
	for kind, streak := range s {
		streak.Began, streak.Turned = streak.Began.Add(by), streak.Turned.Add(by)
		next[kind] = streak
	}
	return next
}
