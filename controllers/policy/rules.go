package policy

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// The reasons for which policies let no remediation begin, in the order in which they are said.
const (
	PoliciesUnread   = "PoliciesUnread"
	PolicyInvalid    = "PolicyInvalid"
	ClosedWindow     = "ClosedWindow"
	GroupUnavailable = "GroupUnavailable"
	GroupInFlight    = "GroupInFlight"
)

// Reasons are all of them.
var Reasons = []string{PoliciesUnread, PolicyInvalid, ClosedWindow, GroupUnavailable, GroupInFlight}

// Of is what of blockers is for a reason, by whatever policies and limits, as one; zero if there is none.
func Of(reason string, blockers []rule.Blocker) (words rule.Blocker) {
	for _, b := range blockers {
		switch {
		case b.Reason != reason:
		case words.Reason == "":
			words = b
		default:
			words.Text += ". " + b.Text
			words.Brief = cmp.Or(words.Brief, words.Text) + ". " + cmp.Or(b.Brief, b.Text)
			if b.Until.After(words.Until) {
				words.Until = b.Until
			}
		}
	}
	return words
}

// blockers is what keeps e from beginning, after those to whom p has given a place: none if it may begin.
func (l *Ledger) blockers(e *entry, p *pass) []rule.Blocker {
	var blockers []rule.Blocker
	if !l.read || !p.awaits.IsZero() {
		return []rule.Blocker{{
			Reason: PoliciesUnread, Text: "What RemediationPolicies say, and what they count, was not read yet since the manager was started",
			EndsWhen: "it is", Until: p.awaits,
		}}
	}
	for _, policy := range e.by {
		ref := rule.Ref{Kind: "RemediationPolicy", Namespace: policy.Namespace, Name: policy.Name}
		if policy.invalid != "" {
			blockers = append(blockers, rule.Blocker{
				Reason: PolicyInvalid, Detail: policy.String(), Object: ref,
				Text: fmt.Sprintf("RemediationPolicy %s, %s: nothing that it selects is remediated", policy, policy.invalid),
				Fix:  "Correct RemediationPolicy " + policy.String() + ", or delete it",
			})
		}
		if until := policy.closed(e.Live, p.now); !until.IsZero() {
			blockers = append(blockers, rule.Blocker{
				Reason: ClosedWindow, Detail: "until " + until.UTC().Format(time.RFC3339), Until: until, Object: ref,
				Text: "By its windows RemediationPolicy " + policy.String() + " lets nothing begin now", EndsWhen: "its windows allow it",
			})
		}
	}
	for _, g := range e.groups {
		n, counted := p.numbers[g]
		if !counted {
			n = g.numbers(p.now)
			p.numbers[g] = n
		}
		n.inFlight += p.ahead[g]
		reason, arithmetic := exceeded(g.limit, n)
		if reason == "" {
			continue
		}
		about := g.policy.limitText(g.limit, g.values)
		b := rule.Blocker{
			Reason: reason, Detail: arithmetic, Text: fmt.Sprintf("The %s is reached: %s", about, arithmetic),
			Brief: "The " + about + " is reached", Object: rule.Ref{Kind: "RemediationPolicy", Namespace: g.policy.Namespace, Name: g.policy.Name},
			EndsWhen: "fewer are under way, and those that are due for longer have begun",
		}
		if reason == GroupUnavailable {
			b.EndsWhen = "fewer are unavailable"
		}
		blockers = append(blockers, b)
	}
	return blockers
}
