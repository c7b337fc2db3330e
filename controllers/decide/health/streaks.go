package health

import (
	"slices"
	"time"
)

// Streak is a time span in which a condition always had an unhealthy status, though not always the same one.
type Streak struct {
	Began time.Time
	// Turned is the last transition, to the present status.
	Turned time.Time
	// Longest is the longest timeout of the statuses in the streak.
	Longest time.Duration
}

// Streaks are the streaks of one object, by the type of the condition.
//
// If a kubelet fails intermittently, Ready alternates between Unknown and False, and each transition starts the timeout again: after 299 s
// of Unknown and 299 s of False the node was down for ten minutes, but no rule has matched for five. So the statuses count together, for
// the longest of their timeouts.
type Streaks map[string]Streak

// After returns the streaks with the conditions seen now, and these conditions with the time since when they count together.
//
// If the process was blind since the last reconcile, a condition that has changed starts a new streak, because the object may have been
// healthy in between. Reached is when the last outage of the workload cluster ended: if the writer of a condition may have lost the cluster
// too, the streak begins only when the writer has surely checked the condition again. A condition with the reason ConnectionDown is in no
// streak, because it says nothing about the Machine.
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

// Later returns s with all times moved by a duration.
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
