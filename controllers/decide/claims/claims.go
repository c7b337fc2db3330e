// Package claims decides which MachineHealthChecks kubemend claims, and which it releases, because of a label on their Cluster or their Namespace.
//
// It only decides on claims by that label. A claim that somebody made on the check itself is none of its business.
package claims

// Label is what the label says on one object.
type Label int

// What a label can say.
const (
	Absent  Label = iota
	Act           // the checks are to be claimed
	Invalid       // it has a value that is not defined, which changes nothing
	Unread        // the object was not read, or may not be
)

// Source is the kind of the object whose label asks for a claim. It is also what a claim carries.
type Source string

// The sources, the first of which counts if both ask.
const (
	Cluster   Source = "Cluster"
	Namespace Source = "Namespace"
)

// Pause is what the pause annotation of a check says.
type Pause int

// What the annotation can say.
const (
	NotPaused Pause = iota
	Claimed         // kubemend acts on the check
	Paused          // no controller acts on it
)

// Facts are what is known of one check.
type Facts struct {
	// Covered says that the check is one that this manager looks at.
	Covered bool
	// Ending says that the check or its Cluster is being deleted.
	Ending bool
	// Cluster and Namespace are what the labels of these say.
	Cluster, Namespace Label
	// Pause is what the check's annotation says.
	Pause Pause
	// By is what asked for the claim that the check has by a label; empty if it has none.
	By Source
}

// Action is what is done about a check.
type Action string

// The actions.
const (
	Claim   Action = "Claim"
	Release Action = "Release"
	Leave   Action = "Leave"
)

// Reason is why.
type Reason string

// The reasons.
const (
	Asked          Reason = "Asked"          // Claim: a label asks for it
	NoLongerAsked  Reason = "NoLongerAsked"  // Release: no label asks for it any more
	NotCovered     Reason = "NotCovered"     // another manager looks at the check, or none
	BeingDeleted   Reason = "BeingDeleted"   // the check, or its Cluster
	AlreadyClaimed Reason = "AlreadyClaimed" // by the label
	ClaimedByHand  Reason = "ClaimedByHand"  // on the check itself
	PausedByHand   Reason = "PausedByHand"   // a label asks for a claim, but the check is paused for all controllers
	NotAsked       Reason = "NotAsked"       // no label asks for a claim, and there is none by a label
	InvalidLabel   Reason = "InvalidLabel"   // the only label has a value that is not defined
	LabelUnread    Reason = "LabelUnread"    // it is not known whether a label still asks for the claim
)

// Plan is what is done about a check, and why.
type Plan struct {
	Action Action
	Reason Reason
	// By is the object whose label asks for a claim; empty if none does.
	By Source
}

// Decide decides what is done about a check.
//
// What is not known releases nothing: a Cluster that is not there yet, as during a move, or a label with a typing error must not return checks.
func Decide(f Facts) Plan {
	by := f.asks()
	leave := func(r Reason) Plan { return Plan{Action: Leave, Reason: r, By: by} }
	switch {
	case !f.Covered:
		return leave(NotCovered)
	case f.Ending:
		return leave(BeingDeleted)
	case by != "":
		return f.asked(by)
	case f.invalid():
		return leave(InvalidLabel)
	case f.By == "":
		return leave(NotAsked)
	case f.Cluster == Unread, f.Namespace == Unread && f.By == Namespace:
		return leave(LabelUnread)
	}
	return Plan{Action: Release, Reason: NoLongerAsked}
}

// asked is what is done about a check that a label asks to claim.
func (f Facts) asked(by Source) Plan {
	p := Plan{Action: Leave, By: by}
	switch {
	case f.Pause == Paused:
		p.Reason = PausedByHand
	case f.Pause == Claimed && f.By != "":
		p.Reason = AlreadyClaimed
	case f.Pause == Claimed:
		p.Reason = ClaimedByHand
	default:
		p.Action, p.Reason = Claim, Asked
	}
	return p
}

// asks is the object whose label asks for a claim; empty if there is none.
func (f Facts) asks() Source {
	switch {
	case f.Cluster == Act:
		return Cluster
	case f.Namespace == Act:
		return Namespace
	}
	return ""
}

func (f Facts) invalid() bool { return f.Cluster == Invalid || f.Namespace == Invalid }
