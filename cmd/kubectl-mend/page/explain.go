// Package page lays out explanations for a terminal: columns, headings, colours and wrapping. Its sentences are those of package explain, and it decides
// nothing.
package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Explanation is why something is remediated, or is not. It is the JSON of `kubectl mend explain`.
type Explanation struct {
	Subject explain.Ref `json:"subject"`
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
	// Unread are the kinds of checks that could not be read: there may be some that select it.
	Unread []string `json:"unread,omitempty"`
	// Remediations are those of its host.
	Remediations []explain.Remediation `json:"remediations,omitempty"`
	// Notes are what to know of the explanation itself: what could not be read, that no manager runs.
	Notes []string `json:"notes,omitempty"`
	// Next is the next thing that happens, or what a person has to do.
	Next explain.Step `json:"next"`
}

// Fact is one thing that is known.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Check is a check, with what is needed to understand its arithmetic.
type Check struct {
	explain.Check
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
	explain.Ref
	Why string `json:"why"`
}

// About returns c with those of its targets that the explanation is about.
func About(c explain.Check, concerns func(explain.Target) bool) Check {
	about := Check{Check: c, NotHealthy: notHealthy(c.Targets)}
	about.Targets = nil
	if c.CountedByStatus {
		about.NotHealthy = nil // the names of most are not known
	}
	for _, t := range c.Targets {
		if concerns(t) {
			about.Targets = append(about.Targets, t)
		}
	}
	return about
}

// notHealthy are the targets that the limits count, in the order in which their sum has them.
func notHealthy(targets []explain.Target) []Group {
	var groups []Group
	for _, class := range []budget.Class{budget.Unhealthy, budget.Pending, budget.Starting, budget.Recovering, budget.Deleting, budget.Unknown} {
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

// without goes on without the checks of a kind, if it is for the user's rights that they could not be read.
func (e *Explanation) without(kind string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	e.Unread = append(e.Unread, kind)
	return nil
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
	case c.Mode != explain.Acting:
		return 1
	}
	return 0
}

// QueueUnread reports whether the explanation lacks a place in the queue of remediations, which all machines of a check are needed for.
func (e *Explanation) QueueUnread() bool {
	return slices.ContainsFunc(e.Checks, func(c Check) bool {
		return slices.ContainsFunc(c.Targets, func(t explain.Target) bool { return t.BlockedBy(string(machines.QueueUnread)) })
	})
}

func overlapped(t explain.Target) bool {
	return slices.ContainsFunc(t.Blockers, func(h explain.Blocker) bool { return h.Reason == mendv1.OverlapReason })
}

func (e *Explanation) verdict() string {
	switch {
	case len(e.Checks) > 0 && len(e.Checks[0].Targets) > 0:
		return e.Checks[0].VerdictOn(&e.Checks[0].Targets[0], func(at time.Time) string { return text.Clock(at, e.At) })
	case len(e.Checks) > 0:
		return "It is not judged: " + explain.Clause(whyAlone(&e.Checks[0].Check))
	case len(e.Unread) > 0:
		return fmt.Sprintf("It cannot be told which checks select it: %s could not be read", strings.Join(e.Unread, " and "))
	}
	return "No check selects it: nobody judges it, and nothing is done about it"
}

// whyAlone is why a check that selects something does not look at it.
func whyAlone(c *explain.Check) string {
	return cmp.Or(c.Because, c.Text, c.String()+" does not look at it")
}

// next is what the remediation of the host does next, if one is at work, else what the check does. What was handed over to the owner of the
// machine is the owner's.
func (e *Explanation) next() explain.Step {
	owners := false
	if len(e.Checks) > 0 && len(e.Checks[0].Targets) > 0 {
		t := &e.Checks[0].Targets[0]
		owners = t.InFlight && t.Next != (explain.Step{})
	}
	if next := e.ofRemediations(owners); next != (explain.Step{}) {
		return next
	}
	switch {
	case len(e.Checks) > 0 && len(e.Checks[0].Targets) > 0:
		return cmp.Or(e.Checks[0].Targets[0].Next, nothing)
	case len(e.Checks) > 0:
		return cmp.Or(e.Checks[0].Next, nothing)
	case len(e.Unread) > 0:
		return explain.Step{Text: "Ask as somebody who may read them", Person: true}
	}
	return explain.Step{Text: "If it is to be judged, make a check that selects it, or give it the labels that one asks for", Person: true}
}

// ofRemediations is what the first remediation does next that does anything. Owners says that one that was handed over does not count.
func (e *Explanation) ofRemediations(owners bool) explain.Step {
	for i := range e.Remediations {
		r := &e.Remediations[i]
		if over := r.State == string(powercycle.OwnerRequested); r.Next != (explain.Step{}) && (!over || !owners) {
			return r.Next
		}
	}
	return explain.Step{}
}

// nothing is what happens next to what is well, or is waited for in a way that has no end of its own.
var nothing = explain.Step{Text: "Nothing, until something changes"}
