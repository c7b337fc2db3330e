// Package rule has what a rule says of an object: what blocks it, who acts on it, and what comes next. A decision fills it in, and conditions,
// events and the command line print it.
package rule

import (
	"strings"
	"time"
)

// Ref names an object.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is the kind, then the name with its namespace, if it has one.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Blocker is one thing that keeps a remediation from starting, or from going on.
type Blocker struct {
	// Reason is that of the condition or event that reports the blocker, where there is one.
	Reason string `json:"reason"`
	// Cause is the reason of the decision, where events and conditions have one Reason for several; empty if it is Reason.
	Cause string `json:"cause,omitempty"`
	// Text is one sentence or more, without a full stop at its end. It holds no age: it is the same as long as the facts are.
	Text string `json:"text"`
	// Brief is Text without what changes with other machines or hosts, for a condition of the machine; empty if Text has nothing of that.
	Brief string `json:"-"`
	// Until is when time alone ends the blocker; zero if it does not.
	Until time.Time `json:"until,omitzero"`
	// Fix is what a user has to do to end the blocker; empty if it ends without that.
	Fix string `json:"fix,omitempty"`
	// EndsWhen is what else ends the blocker, as a clause that follows "until"; empty if Text implies it.
	EndsWhen string `json:"endsWhen,omitempty"`
	// Next is what happens at Until, as a clause; empty if that is nothing more than that the blocker ends.
	Next string `json:"-"`
	// Object is what blocks, if that is one object: an older check, a request.
	Object Ref `json:"object,omitzero"`
	// Detail are the numbers or the name that belong to Reason, for the first line of a page.
	Detail string `json:"-"`
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
	At time.Time `json:"at,omitzero"`
	// NotBefore is before when it certainly does not happen; zero if that is not known.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Reason says what, for programs: one of the constants of package explain, or the reason of the blocker that ends or has to be ended, of the
	// condition that the owner of a machine reports, or of the step of a power cycle.
	Reason string `json:"reason,omitempty"`
	// Text says what.
	Text string `json:"text"`
	// Target is the name of the target of a check that it happens to, if it happens to one.
	Target string `json:"target,omitempty"`
	// Manual reports that a user has to do it.
	Manual bool `json:"manual,omitempty"`
}

// Same reports whether s is another, of any target of the same check.
func (s Step) Same(other Step) bool {
	_, after, named := strings.Cut(other.Text, ": ")
	return s == other || s.At.Equal(other.At) && s.Manual == other.Manual && named && after == s.Text
}

// Mode is who acts on a check.
type Mode string

const (
	// Acting is kubemend, which remediates what it finds.
	Acting Mode = "acting"
	// Observing is kubemend, which judges and writes nothing but records; Cluster API core acts on the check.
	Observing Mode = "observing"
	// Core is Cluster API core, which acts on the check, and kubemend does not reconcile it.
	Core Mode = "core"
	// Other is another controller, which serves the kind of the check, as kubemend does not.
	Other Mode = "other"
	// Paused is no controller, because a user has paused the check or its Cluster.
	Paused Mode = "paused"
	// None is no controller, for another reason, which ModeText of the check has.
	None Mode = "none"
	// Unknown is that of a check of which that is not known.
	Unknown Mode = "unknown"
)

// Sentence is which controller acts on a check.
func (m Mode) Sentence() string {
	switch m {
	case Acting:
		return "kubemend acts"
	case Observing:
		return "Cluster API core acts, kubemend observes"
	case Core:
		return "Cluster API core acts"
	case Other:
		return "another controller acts"
	case Paused:
		return "paused"
	case Unknown:
		return "it is not known which controller acts"
	case None:
	}
	return "no controller acts"
}

// Controller is which controller acts on a check, as a cell of a table.
func (m Mode) Controller() string {
	switch m {
	case Acting:
		return "kubemend"
	case Observing:
		return "core (kubemend observes)"
	case Core:
		return "core"
	case Other, Paused, None:
		return string(m)
	case Unknown:
	}
	return "?"
}

// InCharge is the controller that acts in place of kubemend.
func (m Mode) InCharge() string {
	if m == Other {
		return "another controller"
	}
	return "Cluster API core"
}
