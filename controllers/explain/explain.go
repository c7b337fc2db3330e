// Package explain describes decisions: the verdict on a machine or a node with its findings, the action, what blocks it, and the next step.
// It renders sentences from reasons and arguments, for conditions, events and the command line. What programs read is in package
// api/cli/v1alpha1; the JSON of the types here is for golden files alone.
package explain

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

type (
	// Ref names an object.
	Ref = rule.Ref
	// Blocker is why something does not begin, or does not go on.
	Blocker = rule.Blocker
	// Step is what is done next.
	Step = rule.Step
	// Mode is who acts on a check.
	Mode = rule.Mode
)

// The modes of checks.
const (
	Acting    = rule.Acting
	Observing = rule.Observing
	Core      = rule.Core
	Other     = rule.Other
	Paused    = rule.Paused
	None      = rule.None
	Unknown   = rule.Unknown
)

// ActionNotReadable ends the sentence about a timeout that expires, if a blocker with the reason MissingPermission remains then.
const ActionNotReadable = "; the action then is not known with your rights"

// ErrUnread wraps the error of a read that failed for the reader, for lack of rights or for any other reason. It says nothing about the rights of the
// manager, and a controller that acts never gets it.
var ErrUnread = errors.New("it was not read")

// Finding is a reason to count a machine or a node as unhealthy, as soon as its timeout has expired.
type Finding struct {
	Reason health.Reason `json:"reason"`
	// Text is the message of the condition; as long as the timeout has not expired, Observed.
	Text string `json:"text"`
	// Observed is what is observed, whether the timeout has expired or not.
	Observed string `json:"-"`
	// Signal is the condition that it is about; zero if it is about none.
	Signal health.Signal `json:"-"`
	// Since is when the timeout began; zero if there is none.
	Since   time.Time       `json:"since,omitzero"`
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// Expires is when the timeout expires; zero if there is none. Expired reports that it has.
	Expires time.Time `json:"expires,omitzero"`
	Expired bool      `json:"expired"`
	// SinceReason is why the timeout began at Since, and not when the condition last changed, as a clause; empty if it did.
	SinceReason string `json:"sinceReason,omitempty"`
}

// IgnoredFinding is a finding that does not count, because it may be out of date.
type IgnoredFinding struct {
	Reason health.Doubt `json:"reason"`
	// Text is what is observed.
	Text string `json:"text"`
	// Why is why it does not count, as a clause.
	Why string `json:"why"`
}

// Milestone is a moment of a machine's start-up. The start-up timeout is counted from the latest one.
type Milestone struct {
	// Text is what has happened, as a clause: "the machine was created".
	Text   string    `json:"text"`
	At     time.Time `json:"at"`
	Latest bool      `json:"latest"`
}

// Check describes a check and its targets.
type Check struct {
	Ref
	Cluster string `json:"cluster,omitempty"`
	Mode    Mode   `json:"mode"`
	// ModeText is why the mode is another one than acting.
	ModeText string `json:"modeText,omitempty"`
	// ModeDetail is ModeText in a few words.
	ModeDetail string `json:"-"`

	Population budget.Population `json:"population"`
	// CountedByStatus reports that not all targets were read, and that the others are those that the status of the check counts; StatusChanged is when
	// that last changed, if the API server says.
	CountedByStatus bool          `json:"countedByStatus,omitempty"`
	StatusChanged   time.Time     `json:"statusChanged,omitzero"`
	Limits          budget.Limits `json:"limits"`
	// Limit is the limit as the spec has it, such as "unhealthyLessThanOrEqualTo 40%".
	Limit string `json:"limit"`
	// Remaining is how many more targets may become unhealthy before no remediation starts any more.
	Remaining int `json:"remaining"`
	// Reason and Text are those of the condition RemediationAllowed; both empty if it has no message.
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
	// Conditions are those that the check has after a reconcile at this moment; a check that kubemend does not act on keeps those that it has.
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// NodesUnknown is why the nodes of the workload cluster cannot be judged, NodesUnknownSince since when the manager cannot reach them; empty if they can.
	NodesUnknown      string    `json:"nodesUnknown,omitempty"`
	NodesUnknownSince time.Time `json:"nodesUnknownSince,omitzero"`

	// Targets are all that the check selects, sorted by name, with those that it skips.
	Targets []Target `json:"targets,omitempty"`
	// ReadErrors are what could not be read; the explanation does without.
	ReadErrors []string `json:"readErrors,omitempty"`
	// Next is the next thing that happens when its time comes; zero if there is none.
	Next Step `json:"next,omitzero"`
}

// Target is one machine, or node, that a check selects.
type Target struct {
	Ref
	// Node is the name of a machine's node; empty if it has none yet. Machine is that of a node; nil if it is not known.
	Node    string `json:"node,omitempty"`
	Machine *Ref   `json:"machine,omitempty"`

	State health.State `json:"-"`
	// Verdict is State in letters.
	Verdict string `json:"verdict"`
	// Class is where the limits count the target; empty if they do not.
	Class    budget.Class `json:"class,omitempty"`
	Findings []Finding    `json:"findings,omitempty"`
	// Ignored are findings that do not count.
	Ignored []IgnoredFinding `json:"ignoredFindings,omitempty"`
	// Startup are the milestones that the start-up timeout is counted from, as long as the machine has no node.
	Startup []Milestone `json:"startup,omitempty"`
	// Skipped is why the target is not judged: a user has annotated it. Empty if it is judged.
	Skipped string `json:"skipped,omitempty"`

	// Action is what is done about an unhealthy target, as a clause: "asks its owner, MachineSet md-0-abc, to remediate it".
	Action string `json:"action"`
	// Act is Action for programs.
	Act Act `json:"act"`
	// StartsNow reports that a reconcile at this moment starts the action. Then there are no blockers.
	StartsNow bool `json:"startsNow,omitempty"`
	// Blockers are all that keep the action from starting, in the order in which the controller asks.
	Blockers []Blocker `json:"blockers,omitempty"`
	// Requests are the remediation requests for the target that exist, also those of other makers.
	Requests []Ref `json:"requests,omitempty"`
	// InFlight reports that the target is being remediated, InFlightSince since when.
	InFlight      bool      `json:"inFlight,omitempty"`
	InFlightSince time.Time `json:"inFlightSince,omitzero"`
	// PutOff reports that the owner of a machine was asked to replace it, and has put that off.
	PutOff bool `json:"putOff,omitempty"`
	// Refused reports that the owner was asked to replace the machine, and says that it cannot.
	Refused bool `json:"refused,omitempty"`
	// Remediator is what a remediation that begins is made of: a kind of requests, or the owner of a machine.
	Remediator string `json:"-"`
	// Ownerless reports that a machine which its owner is to replace has none.
	Ownerless bool `json:"-"`
	// OwnerAsked reports that the owner was asked to replace the machine. Owner is its name, OwnerReason what it reports.
	OwnerAsked  bool   `json:"-"`
	Owner       string `json:"-"`
	OwnerReason string `json:"-"`
	// Cycle is the power cycle that remediates the target, if there is one that was read and has not requested owner remediation.
	Cycle *Remediation `json:"-"`
	// Report is what the remediator has reported: the owner of the machine, the controller of the request, the escalation.
	Report string `json:"report,omitempty"`
	// Next is the next thing that happens to the target.
	Next Step `json:"next,omitzero"`
}

// Remediation describes the remediation of a host.
type Remediation struct {
	Ref
	Machine Ref    `json:"machine,omitzero"`
	Node    string `json:"node,omitempty"`
	Host    string `json:"host,omitempty"`
	// Requested is who requested it with kubectl mend, when and why; empty if a controller did.
	Requested string `json:"requested,omitempty"`
	// Phase is that of the API, State that of the power cycle.
	Phase    string `json:"phase,omitempty"`
	State    string `json:"state"`
	Attempt  int    `json:"attempt"`
	Attempts int    `json:"attempts"`
	// Reason and Text are those of the step that a reconcile at this moment takes: what is done, or waited for.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// Acts reports that the step does something.
	Acts           bool      `json:"acts,omitempty"`
	AttemptStarted time.Time `json:"attemptStarted,omitzero"`
	StateSince     time.Time `json:"stateSince,omitzero"`
	// Deadline is when the state times out; zero if it does not.
	Deadline time.Time `json:"deadline,omitzero"`
	// Conditions are those of the remediation, which say when each step was done.
	Conditions []metav1.Condition `json:"-"`
	// Evidence is what the step was decided on, one observation each.
	Evidence []string  `json:"evidence,omitempty"`
	Blockers []Blocker `json:"blockers,omitempty"`
	// ReadErrors are what could not be read; the explanation does without.
	ReadErrors []string `json:"readErrors,omitempty"`
	Next       Step     `json:"next,omitzero"`
}

// InProgress reports whether the power cycle of the host goes on, and has not requested owner remediation.
func (r *Remediation) InProgress() bool { return r.State != "" && !powercycle.State(r.State).Final() }

// Over reports whether nothing follows the power cycle of the host: neither its owner nor a person has to act.
func (r *Remediation) Over() bool {
	state := powercycle.State(r.State)
	return state.Final() && state != powercycle.OwnerRequested && !r.Next.Manual
}

// Findings are those of a verdict at now.
func Findings(v health.Verdict, now time.Time) []Finding {
	found := make([]Finding, 0, len(v.Findings))
	for _, f := range v.Findings {
		is := Finding{
			Reason: f.Reason, Text: f.Observed(), Observed: f.Observed(), Signal: f.Signal, Expires: f.Due, Expired: f.DueAt(now),
			SinceReason: f.Late.Since(),
		}
		if is.Expired {
			is.Text = f.Text()
			if f.Other.Name != "" {
				is.Text += ". " + f.Other.Text()
			}
		}
		if !f.Due.IsZero() {
			is.Since = f.Due.Add(-f.Limit)
			is.Timeout = metav1.Duration{Duration: f.Limit}
		}
		found = append(found, is)
	}
	return found
}

// IgnoredFindings are the findings of v that do not count, with the reasons.
func IgnoredFindings(v health.Verdict) []IgnoredFinding {
	all := make([]IgnoredFinding, 0, len(v.Void))
	for _, void := range v.Void {
		is := IgnoredFinding{Reason: void.Doubt, Text: void.Finding.Observed(), Why: "its node says otherwise now"}
		switch {
		case void.Finding.Reason == health.NodeStartup:
			is.Why = "its timeout stands still, as Cluster API has not reconciled the machine since a pause"
		case void.Doubt == health.NotSincePause:
			is.Why = "it was written before a pause, and Cluster API has not reconciled the machine since"
		}
		all = append(all, is)
	}
	return all
}

// Soonest is the first of the next steps of targets that happen when their time comes; zero if there is none.
func Soonest(targets []Target) Step {
	var next Step
	for i := range targets {
		if t := &targets[i]; !t.Next.At.IsZero() && (next.At.IsZero() || t.Next.At.Before(next.At)) {
			next = Step{At: t.Next.At, Reason: t.Next.Reason, Target: t.Name, Text: t.Name + ": " + t.Next.Text}
		}
	}
	return next
}
