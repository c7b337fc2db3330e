// Package explain puts what the controllers think into an explanation: the verdict, what it rests on, what would be done, what holds that back,
// and the next thing that happens. It is made of looks alone, and decides nothing.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/budget"
	"github.com/kubemend/kubemend/controllers/health"
	"github.com/kubemend/kubemend/controllers/look"
)

// Explanation is why something is remediated, or is not. It is the JSON of `kubectl mend explain`.
type Explanation struct {
	Subject look.Ref `json:"subject"`
	// At is the moment for which all of it holds.
	At time.Time `json:"at"`
	// Verdict is the answer in one sentence, without full stop.
	Verdict string `json:"verdict"`
	// Is says what belongs together, such as a machine's cluster, node and host.
	Is []Fact `json:"is,omitempty"`
	// Checks are those that select it, the one that acts first. Their targets are those that the explanation is about.
	Checks []Check `json:"checks,omitempty"`
	// NotSelectedBy are checks that it might be expected to be selected by.
	NotSelectedBy []Unselected `json:"notSelectedBy,omitempty"`
	// Remediations are those of its host.
	Remediations []look.Remediation `json:"remediations,omitempty"`
	// Notes are what to know of the explanation itself: what could not be read, that no manager runs.
	Notes []string `json:"notes,omitempty"`
	// Next is the next thing that happens, or what a person has to do.
	Next look.Step `json:"next"`
}

// Fact is one thing that is known.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Check is a check, with what is needed to understand its arithmetic.
type Check struct {
	look.Check
	// NotHealthy are the targets that the limits count, by what they are.
	NotHealthy []Group `json:"notHealthy,omitempty"`
}

// Group are the names of targets that are counted alike.
type Group struct {
	Class budget.Class `json:"class"`
	Names []string     `json:"names"`
}

// Unselected is a check that does not select the subject, and why.
type Unselected struct {
	look.Ref
	Why string `json:"why"`
}

// About returns c with those of its targets that the explanation is about.
func About(c look.Check, concerns func(look.Target) bool) Check {
	about := Check{Check: c, NotHealthy: notHealthy(c.Targets)}
	about.Targets = nil
	for _, t := range c.Targets {
		if concerns(t) {
			about.Targets = append(about.Targets, t)
		}
	}
	return about
}

// notHealthy are the targets that the limits count, in the order in which their sum has them.
func notHealthy(targets []look.Target) []Group {
	var groups []Group
	for _, class := range []budget.Class{budget.Unhealthy, budget.Suspect, budget.Starting, budget.Recovering, budget.Deleting, budget.Unjudged} {
		var names []string
		for _, t := range targets {
			if t.Class == class {
				names = append(names, t.Name)
			}
		}
		if len(names) > 0 {
			groups = append(groups, Group{class, names})
		}
	}
	return groups
}

// Conclude sets the verdict and the next step from all that was found, and puts the check that acts first.
func (e *Explanation) Conclude() {
	slices.SortStableFunc(e.Checks, func(a, b Check) int { return cmp.Compare(rank(a), rank(b)) })
	e.Verdict, e.Next = e.verdict(), e.next()
}

// rank orders checks by how much they have to say: first the one that acts on the target, last those that leave it alone.
func rank(c Check) int {
	switch {
	case len(c.Targets) == 0:
		return 4
	case c.Targets[0].Left != "":
		return 3
	case overlapped(c.Targets[0]):
		return 2
	case c.Stance != look.Acting:
		return 1
	}
	return 0
}

func overlapped(t look.Target) bool {
	return slices.ContainsFunc(t.Holds, func(h look.Hold) bool { return h.Reason == mendv1.OverlapReason })
}

func (e *Explanation) verdict() string {
	if len(e.Checks) == 0 || len(e.Checks[0].Targets) == 0 {
		return "No check selects it: nobody judges it, and nothing is done about it"
	}
	return Sentence(e.Checks[0].Targets[0], e.At)
}

// next is what the remediation of the host does next, if one is at work, else what the check does.
func (e *Explanation) next() look.Step {
	for i := range e.Remediations {
		if r := &e.Remediations[i]; r.Next != (look.Step{}) {
			return r.Next
		}
	}
	if len(e.Checks) > 0 && len(e.Checks[0].Targets) > 0 {
		if next := e.Checks[0].Targets[0].Next; next != (look.Step{}) {
			return next
		}
		return look.Step{Text: "Nothing, until something changes"}
	}
	return look.Step{Text: "If it is to be judged, make a check that selects it, or give it the labels that one asks for", Person: true}
}

// Sentence is the verdict on a target in one sentence.
func Sentence(t look.Target, now time.Time) string {
	switch {
	case t.Left != "":
		return "It is left alone: " + t.Left
	case t.State == health.Unhealthy:
		return "It is unhealthy, " + doing(t) + because(t.Findings, true)
	case t.State == health.Suspect, t.State == health.Starting:
		return awaited(t, now)
	case t.State == health.Unjudged && len(t.Holds) > 0:
		return "It cannot be judged: " + t.Holds[0].Text
	case t.State == health.Unjudged:
		return "It cannot be judged"
	case t.InFlight:
		return "It is healthy, and its remediation is not over yet"
	}
	return "It is healthy: nothing is held against it"
}

// doing is what is done about an unhealthy target.
func doing(t look.Target) string {
	switch {
	case t.InFlight:
		return "and is being remediated"
	case t.Begins:
		return "and its remediation begins now"
	}
	return "and is not remediated"
}

// because are the findings that count, or the first of those that do not yet.
func because(findings []look.Finding, counts bool) string {
	for _, f := range findings {
		if f.Counts == counts {
			return ": " + f.Text
		}
	}
	return ""
}

func awaited(t look.Target, now time.Time) string {
	is := "It is suspect"
	if t.State == health.Starting {
		is = "Its first node is waited for"
	}
	first := slices.IndexFunc(t.Findings, func(f look.Finding) bool { return !f.Counts })
	if first < 0 {
		return is + ", without end"
	}
	due := t.Findings[first].Due
	for _, f := range t.Findings {
		if !f.Counts && f.Due.Before(due) {
			due = f.Due
		}
	}
	return fmt.Sprintf("%s, and counts as unhealthy from %s on%s", is, due.In(now.Location()).Format(time.DateTime), because(t.Findings, false))
}
