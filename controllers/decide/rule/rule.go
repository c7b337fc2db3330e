// Package rule has what a rule says of an object: what blocks it, who acts on it, and what comes next. A decision fills it in, and
// conditions, events and the command line print it.
package rule

import (
	"strings"
	"time"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Ref names an object.
type Ref = cliv1.Reference

// Blocker is one thing that keeps a remediation from starting, or from going on.
type Blocker struct {
	// Reason is that of the condition or event that reports the blocker, where there is one.
	Reason string
	// Cause is the reason of the decision, where events and conditions have one Reason for several; empty if it is Reason.
	Cause string
	// Text is one sentence or more, without a full stop at its end. It holds no age: it is the same as long as the facts are.
	Text string
	// Brief is Text without what changes with other machines or hosts, for a condition of the machine; empty if Text has nothing of that.
	Brief string
	// Until is when time alone ends the blocker; zero if it does not.
	Until time.Time
	// Fix is what a user has to do to end the blocker; empty if it ends without that.
	Fix string
	// EndsWhen is what else ends the blocker, as a clause that follows "until"; empty if Text implies it.
	EndsWhen string
	// Next is what happens at Until, as a clause; empty if that is nothing more than that the blocker ends.
	Next string
	// Object is what blocks, if that is one object: an older check, a request.
	Object Ref
	// Detail are the numbers or the name that belong to Reason, for the first line of a page.
	Detail string
}

// Document is b for programs.
func (b *Blocker) Document() cliv1.Blocker {
	document := cliv1.Blocker{Reason: b.Reason, Cause: b.Cause, Until: cliv1.Moment(b.Until), Fix: b.Fix, Message: b.Text}
	if b.Object != (Ref{}) {
		object := b.Object
		document.Object = &object
	}
	return document
}

// Name is the reason, with its cause where that is one of many with the same event.
func (b *Blocker) Name() string {
	if b.Reason == nhcv1.EventRemediationSkipped && b.Cause != "" {
		return b.Reason + " (" + b.Cause + ")"
	}
	return b.Reason
}

// MissingPermission is the reason of what the reader may not read, while the manager may.
const MissingPermission = "MissingPermission"

// Unreadable blocks what depends on the requests of a kind, or their templates, which the reader may not read.
func Unreadable(kind string) Blocker {
	return Blocker{
		Reason: MissingPermission, Detail: kind + "s",
		Text: kind + "s and their templates could not be read with your rights, and the manager may read them",
		Fix:  "Ask as a user who may read " + kind + "s and their templates",
	}
}

// Step is the next thing that happens, or what a user has to do.
type Step struct {
	// At is when, at the latest; zero if it does not depend on time.
	At time.Time
	// NotBefore is before when it certainly does not happen; zero if that is not known.
	NotBefore time.Time
	// Reason says what, for programs: one of the constants of package explain, or the reason of the blocker that ends or has to be ended,
	// of the condition that the owner of a machine reports, or of the step of a power cycle.
	Reason string
	// Text says what.
	Text string
	// Target is the name of the target of a check that it happens to, if it happens to one.
	Target string
	// Manual reports that a user has to do it.
	Manual bool
}

// Document is s for programs; nil if there is no next step.
func (s Step) Document() *cliv1.Step {
	if s == (Step{}) {
		return nil
	}
	_, target, named := strings.Cut(s.Target, " ") // of a node its kind is named too
	if !named {
		target = s.Target
	}
	return &cliv1.Step{
		Reason: s.Reason, Time: cliv1.Moment(s.At), NotBefore: cliv1.Moment(s.NotBefore), Target: target, Manual: s.Manual, Message: s.Text,
	}
}

// Same reports whether s is another, of any target of the same check.
func (s Step) Same(other Step) bool {
	_, after, named := strings.Cut(other.Text, ": ")
	return s == other || s.At.Equal(other.At) && s.Manual == other.Manual && named && after == s.Text
}
