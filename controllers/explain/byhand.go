package explain

import (
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ByHandReason is why the remediation that a person asks for is requested, or is not.
type ByHandReason string

// The reasons.
const (
	// RequestedMark is that it is: by the annotation on the Machine, or by a HostRemediation.
	RequestedMark   ByHandReason = "RequestedMark"
	RequestedCycle  ByHandReason = "RequestedCycle"
	AlreadyMarked   ByHandReason = "AlreadyMarked"
	AlreadyInFlight ByHandReason = "AlreadyInFlight"
	NoMachine       ByHandReason = "NoMachine"
	MachineGoes     ByHandReason = "MachineDeleting"
	NodeCheckAlone  ByHandReason = "NodeCheckAlone" // a NodeHealthCheck judges the node, and no Machine is known for it
	NoneSelects     ByHandReason = "NoneSelects"
	ChecksNotRead   ByHandReason = "ChecksNotRead"
	LeftAlone       ByHandReason = "LeftAlone"  // by an annotation on the Machine
	NotActedOn      ByHandReason = "NotActedOn" // the check is paused, or has no manager
	OneTooMany      ByHandReason = "OneTooMany" // it would make one too many unhealthy, so that nothing is remediated
	WithoutOwner    ByHandReason = "WithoutOwner"
	NotInstalled    ByHandReason = "NotInstalled" // HostRemediations are not
	NotActedOnKind  ByHandReason = "NotServed"    // no manager acts on HostRemediations
	BudgetBlocks    ByHandReason = "BudgetBlocks" // a power cycle by hand waits for no budget, so it is not requested
	BudgetUnread    ByHandReason = "BudgetUnread"
	AnotherHost     ByHandReason = "AnotherHost" // the machine that the host names is on another one, or not surely on this one
)

// ByHand is what becomes of a remediation that a person asks for.
type ByHand struct {
	Reason ByHandReason
	// Machine is the name of the machine that is remediated, Check that of the check that judges it, Request that of the request that is made.
	Machine, Check, Request string
	// Attempts is how many a power cycle has.
	Attempts int
	// Leaves is the kind of the requests that the check makes, if their end does not remove the mark.
	Leaves string
	// Why is more about the reason, and Do what a person can do, as the explanation has them.
	Why, Do string
	// Waits reports that something blocks it at first.
	Waits bool
	// Earlier is who asked before.
	Earlier Attribution
}

// Changes reports whether anything is requested.
func (r *ByHand) Changes() bool { return r.Reason == RequestedMark || r.Reason == RequestedCycle }

// Refused reports whether what the person asked for would do harm, or nothing.
func (r *ByHand) Refused() bool {
	return !r.Changes() && r.Reason != AlreadyMarked && r.Reason != AlreadyInFlight
}

// Text is what will be so, or why nothing is requested and what to do instead.
func (r *ByHand) Text() string {
	text := r.text()
	if r.Do != "" {
		text += ". " + r.Do
	}
	return text
}

func (r *ByHand) text() string {
	switch r.Reason {
	case RequestedMark:
		return r.marked()
	case RequestedCycle:
		return fmt.Sprintf("HostRemediation %s power-cycles its host, in %d attempts at most. If Machine %s is not healthy after them, its owner is asked to "+
			"replace it, and the host is marked unhealthy", r.Request, r.Attempts, r.Machine)
	case AlreadyMarked:
		return r.alreadyMarked()
	case AlreadyInFlight:
		return fmt.Sprintf("Machine %s is being remediated already", r.Machine)
	case NoMachine:
		return "It belongs to no Machine"
	case MachineGoes:
		return fmt.Sprintf("Machine %s is being deleted: there is nothing left to remediate", r.Machine)
	case NodeCheckAlone:
		return r.Check + " judges it by what the node reports, and deletes a request for a healthy node: no annotation asks it for one"
	case OneTooMany:
		return fmt.Sprintf("Machine %s is healthy, and to mark it unhealthy would be one too many: %s would remediate nothing any more (%s)",
			r.Machine, r.Check, r.Why)
	case WithoutOwner:
		return fmt.Sprintf("Machine %s has no owner that could replace it", r.Machine)
	case NotInstalled:
		return "HostRemediations are not installed in the management cluster"
	case BudgetBlocks:
		return fmt.Sprintf("%s would not remediate Machine %s now, and a power cycle by hand waits for no limit: %s", r.Check, r.Machine, Clause(r.Why))
	case BudgetUnread:
		return fmt.Sprintf("Whether %s allows it is not known with your rights", r.Check)
	case AnotherHost:
		return fmt.Sprintf("Machine %s does not name this host as its own: %s", r.Machine, Clause(r.Why))
	case NoneSelects, ChecksNotRead, LeftAlone, NotActedOn, NotActedOnKind:
	}
	return r.Why
}

// alreadyMarked says that the annotation is there, and who asked for it.
func (r *ByHand) alreadyMarked() string {
	is := fmt.Sprintf("Machine %s has the annotation %s already", r.Machine, clusterv1.RemediateMachineAnnotation)
	if r.Earlier.By == "" {
		return is
	}
	return is + ", requested " + r.Earlier.Text()
}

// marked is what the annotation does.
func (r *ByHand) marked() string {
	parts := []string{fmt.Sprintf("the annotation %s marks Machine %s unhealthy for %s, whose limits count it like any other",
		clusterv1.RemediateMachineAnnotation, r.Machine, r.Check)}
	if r.Waits {
		parts = append(parts, "it waits for what blocks it")
	}
	if r.Leaves != "" {
		parts = append(parts, fmt.Sprintf("the machine stays unhealthy until the annotation is removed: kubectl mend reset machine/%s, "+
			"when its %s has done its work", r.Machine, r.Leaves))
	}
	return strings.Join(parts, "; ")
}

// MachineAnnotated is why a machine is left alone: by an annotation.
func MachineAnnotated(annotation string) string {
	return "The machine has the annotation " + annotation
}

// Announced is the line in which a plan of a person's is printed: what is done with an object, or why nothing is.
func Announced(verb, object string, changes, refused bool, text string) string {
	switch {
	case refused:
		verb = "cannot " + verb
	case !changes:
		verb = "nothing to do for"
	}
	return fmt.Sprintf("%s %s: %s", verb, object, text)
}

// What a person can do where kubectl mend remediate requests nothing.
var (
	// CycleOnce is for a machine that waits for a budget.
	CycleOnce = "To power-cycle one host beyond the limits, see docs/too-many-unhealthy.md"
	// DeleteMachine is for a machine that has no owner.
	DeleteMachine = "Delete it by hand"
	// RequestOfNode is for a node that a NodeHealthCheck judges.
	RequestOfNode = "Make a request from its template by hand, named after the node, and delete it when the node is healthy: docs/too-many-unhealthy.md. " +
		"The host of a Machine is power-cycled with kubectl mend remediate host/NAME"
)
