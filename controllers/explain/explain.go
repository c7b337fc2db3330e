// Package explain describes decisions: the verdict on a machine, a node or a host with its findings, the action, what blocks it, and the next step.
// It renders sentences from reasons and arguments, for conditions, events and the command line, whose JSON its types are.
package explain

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Mode is who acts on a check.
type Mode string

const (
	// Acting is kubemend, which remediates what it finds.
	Acting Mode = "acting"
	// Observing is kubemend, which judges and writes nothing; Cluster API core acts on the check.
	Observing Mode = "observing"
	// Core is Cluster API core, which acts on the check, and kubemend does not look at it.
	Core Mode = "core"
	// Other is another controller, which serves the kind of the check, as kubemend does not.
	Other Mode = "other"
	// Paused is nobody, because somebody asked for that.
	Paused Mode = "paused"
	// Nobody is nobody, although nobody asked for that. Because says why.
	Nobody Mode = "nobody"
)

// NotSeenByYou is the reason of what is not known since whoever looks may not read it, while the controller may.
const NotSeenByYou = "NotSeenByYou"

// UntoldThen follows on what happens at some moment, where a hold with that reason is left then.
const UntoldThen = "; what is done about it then cannot be told with your rights"

// ErrUnread is what the error is of a read whose answer whoever looks does not have: because they may not read it, or for any other reason. The
// error itself is the one of who has tried. It says nothing about the rights of a controller, and a controller that acts never gets it.
var ErrUnread = errors.New("it was not read")

// TemplatesUnread is what it means that whoever looks may not read the requests of a kind, or their templates: what the controller makes of them is
// not known.
func TemplatesUnread(kind string) Blocker {
	return Blocker{
		Reason: NotSeenByYou, Text: kind + "s and their templates could not be read with your rights, and the manager may read them",
		Person: "Ask as somebody who may read " + kind + "s and their templates",
	}
}

// Ref names an object as a person would look for it.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is the object as commands take it, such as machine/name, with its namespace in front if it has one.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Blocker is one thing that keeps a remediation from beginning, or from going on.
type Blocker struct {
	// Reason is a word, the same as in the condition or event that says so where there is one.
	Reason string `json:"reason"`
	// Cause is the reason of the decision, where events and conditions have one Reason for several; empty if it is Reason.
	Cause string `json:"cause,omitempty"`
	// Text is one sentence or more, without a full stop at its end, which does not change while nothing but time does.
	Text string `json:"text"`
	// Until is when time alone ends it; zero if it does not.
	Until time.Time `json:"until,omitzero"`
	// Person is what a person has to do to end it; empty if nobody has to do anything.
	Person string `json:"person,omitempty"`
	// Ends is what ends it otherwise, as a clause that follows "until"; empty if that goes without saying.
	Ends string `json:"ends,omitempty"`
}

// Finding is something that is held against a machine or a node.
type Finding struct {
	Reason health.Reason `json:"reason"`
	// Text is the sentence of the condition.
	Text string `json:"text"`
	// Since is from when on it counts the time; zero if it counts at once.
	Since time.Time       `json:"since,omitzero"`
	Limit metav1.Duration `json:"limit,omitzero"`
	// Due is when it counts; zero if at once. Counts says that this has come.
	Due    time.Time `json:"due,omitzero"`
	Counts bool      `json:"counts"`
	// Late says why it counts only from Since on, and not from when the condition turned, as a clause; empty if it does.
	Late string `json:"late,omitempty"`
}

// Doubt is something that would be held against a machine if it were known to be so still.
type Doubt struct {
	Reason health.Doubt `json:"reason"`
	// Text is the sentence that the condition would have.
	Text string `json:"text"`
	// Why is why it does not count, as a clause.
	Why string `json:"why"`
}

// Start is one of the moments of which the latest is from when on a machine's first node is waited for.
type Start struct {
	// What has happened, as a clause: "the machine was created".
	What string    `json:"what"`
	At   time.Time `json:"at"`
	// Counts says that it is the latest one.
	Counts bool `json:"counts"`
}

// Step is the next thing that will happen, or what a person has to do.
type Step struct {
	// At is when, at the latest; zero if it is not time that it waits for.
	At time.Time `json:"at,omitzero"`
	// Text says what.
	Text string `json:"text"`
	// Target is what it happens to, where that is one target of a check.
	Target string `json:"target,omitempty"`
	// Person says that it is a person who has to do it.
	Person bool `json:"person,omitempty"`
}

// Check describes a check and its targets.
type Check struct {
	Ref
	Cluster string `json:"cluster,omitempty"`
	Mode    Mode   `json:"mode"`
	// Because says why nobody acts, or who else does.
	Because string `json:"because,omitempty"`

	Population budget.Population `json:"population"`
	// CountedByStatus says that not all targets were read, and that the others are those that the status of the check counts; StatusChanged is when
	// that last changed, if the API server says.
	CountedByStatus bool          `json:"countedByStatus,omitempty"`
	StatusChanged   time.Time     `json:"statusChanged,omitzero"`
	Limits          budget.Limits `json:"limits"`
	// Limit is the limit as the spec has it, such as "unhealthyLessThanOrEqualTo 40%".
	Limit string `json:"limit"`
	// Remaining is how many more may turn bad before nothing is started any more.
	Remaining int `json:"remaining"`
	// Reason and Text are those of the condition that says whether remediation is allowed; both empty if it is, and nothing is to be said.
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
	// Conditions are those that the check has after a reconcile at this moment: that of a check that is not acted on leaves them as they are.
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Unseen says why the nodes of the workload cluster cannot be judged, UnseenSince since when; empty if they can.
	Unseen      string    `json:"unseen,omitempty"`
	UnseenSince time.Time `json:"unseenSince,omitzero"`

	// Targets are all that the check watches, by name; also those that the user wants left alone, whose Left says why.
	Targets []Target `json:"targets,omitempty"`
	// Trouble is what could not be read, and was done without.
	Trouble []string `json:"trouble,omitempty"`
	// Next is the next thing that time alone makes happen; zero if nothing.
	Next Step `json:"next,omitzero"`
}

// Target is one machine, or node, that a check watches.
type Target struct {
	Ref
	// Node is the name of a machine's node; empty if it has none yet. Machine is that of a node's machine; empty if it is not known.
	Node    string `json:"node,omitempty"`
	Machine *Ref   `json:"machine,omitempty"`

	State   health.State `json:"-"`
	Verdict string       `json:"verdict"` // State in letters
	// Class is where the limits count it; empty if they do not.
	Class    budget.Class `json:"class,omitempty"`
	Findings []Finding    `json:"findings,omitempty"`
	// Doubted are what else would be held against it, and does not count.
	Doubted []Doubt `json:"doubted,omitempty"`
	// Starts are the moments that start-up is counted from, only while a first node is waited for.
	Starts []Start `json:"starts,omitempty"`
	// Left says why the target is not judged at all: its user wants it left alone. Empty if it is.
	Left string `json:"left,omitempty"`

	// Would is what is done about it when it is unhealthy: "asks its owner, MachineSet md-0-abc, to replace it".
	Would string `json:"would"`
	// Begins says that a pass at this moment begins that. Nothing holds it back then.
	Begins bool `json:"begins,omitempty"`
	// Blockers is everything that keeps it from beginning, in the order in which the controller asks.
	Blockers []Blocker `json:"blockers,omitempty"`
	// Underway are the requests for it that exist, whoever made them. UnderwaySince is since when its remediation is under way, if it is.
	Underway      []Ref     `json:"underway,omitempty"`
	InFlight      bool      `json:"inFlight,omitempty"`
	UnderwaySince time.Time `json:"underwaySince,omitzero"`
	// Answer is what the one who remediates has said so far: the owner of the machine, the provider, the ladder.
	Answer string `json:"answer,omitempty"`
	// Next is the next thing that will happen to it.
	Next Step `json:"next,omitzero"`
}

// Remediation describes the remediation of a host.
type Remediation struct {
	Ref
	Machine Ref    `json:"machine,omitzero"`
	Node    string `json:"node,omitempty"`
	Host    string `json:"host,omitempty"`
	// Phase is that of the API, State that of the power cycle.
	Phase    string `json:"phase,omitempty"`
	State    string `json:"state"`
	Attempt  int    `json:"attempt"`
	Attempts int    `json:"attempts"`
	// Reason and Text are those of the step that a pass at this moment takes: what is done, or waited for.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// Acts says that the step does something.
	Acts  bool      `json:"acts,omitempty"`
	Began time.Time `json:"began,omitzero"` // of the attempt
	Since time.Time `json:"since,omitzero"` // of the state
	// Deadline is when the patience with the state ends; zero if nothing is waited for.
	Deadline time.Time `json:"deadline,omitzero"`
	// Evidence is what the step was decided on, one observation each.
	Evidence []string  `json:"evidence,omitempty"`
	Blockers []Blocker `json:"blockers,omitempty"`
	// Trouble is what could not be read, and was done without.
	Trouble []string `json:"trouble,omitempty"`
	Next    Step     `json:"next,omitzero"`
}

// Findings are those of a verdict at now.
func Findings(v health.Verdict, now time.Time) []Finding {
	found := make([]Finding, 0, len(v.Findings))
	for _, f := range v.Findings {
		is := Finding{Reason: f.Reason, Text: f.Detail, Due: f.Due, Counts: f.DueAt(now), Late: Late(f.Late)}
		if !f.Due.IsZero() {
			is.Since = f.Due.Add(-f.Limit)
			is.Limit = metav1.Duration{Duration: f.Limit}
		}
		found = append(found, is)
	}
	return found
}

// Late is why a finding counts from later than from when the condition turned, as a clause; empty if there is no doubt.
func Late(d health.Doubt) string {
	switch d {
	case health.NotSincePause:
		return health.Settling.String() + " after a pause in which nobody wrote it anew"
	case health.NotSinceOutage:
		return health.Settling.String() + " after an outage in which nobody could see it"
	case health.NodeDiffers:
	}
	return ""
}

// Doubted is what does not count in v, with the reasons.
func Doubted(v health.Verdict) []Doubt {
	all := make([]Doubt, 0, len(v.Void))
	for _, void := range v.Void {
		is := Doubt{Reason: void.Doubt, Text: void.Finding.Detail, Why: "its node says otherwise now"}
		switch {
		case void.Finding.Reason == health.NodeStartup:
			is.Why = "its time stands still, as Cluster API has not looked at the machine since a pause"
		case void.Doubt == health.NotSincePause:
			is.Why = "it was written before a pause, and Cluster API has not looked at the machine since"
		}
		all = append(all, is)
	}
	return all
}

// Soonest is the first of the next things that time alone makes happen to targets, with the name of the one that it happens to; zero if there
// is none.
func Soonest(targets []Target) Step {
	var next Step
	for i := range targets {
		if t := &targets[i]; !t.Next.At.IsZero() && (next.At.IsZero() || t.Next.At.Before(next.At)) {
			next = Step{At: t.Next.At, Target: t.Name, Text: t.Name + ": " + t.Next.Text}
		}
	}
	return next
}
