package explain

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Remediation is the power cycle of a host of the API, with what pages and answers need besides.
type Remediation struct {
	cliv1.HostRemediation
	// Requested is who requested it with kubectl mend, when and why; empty if a controller did.
	Requested string
	// Conditions are those of the remediation, which say when each step was done.
	Conditions []metav1.Condition
}

// Over reports whether nothing follows the power cycle of the host: neither its owner nor a person has to act.
func (r *Remediation) Over() bool {
	state := powercycle.State(r.State)
	return state.Final() && state != powercycle.OwnerRequested && !r.Next.Manual
}

// Answer is the answer about r.
func (r *Remediation) Answer() Answer {
	a := Answer{State: InProgress, Reason: r.Reason}
	if r.Attempts > 0 && r.Attempt > 0 {
		a.Detail = fmt.Sprintf("attempt %d of %d", r.Attempt, r.Attempts)
	}
	if step := r.stepInCourse(); step != "" {
		a.By, a.Implied = "step "+step, true
	}
	state := powercycle.State(r.State)
	switch final, ended := finals[state]; {
	case ended:
		a.State, a.Implied = final, r.Reason == r.State
	case r.Reason == NoManager, r.Reason == NotServed, r.Next.Manual, len(r.Blockers) > 0 && !inCourse[powercycle.Reason(r.Reason)]:
		a.State = IsBlocked
	}
	return a
}

// finals are the final states of a remediation.
var finals = map[powercycle.State]AnswerState{
	powercycle.Succeeded: HasSucceeded, powercycle.OwnerRequested: HasRequestedOwner, powercycle.Failed: HasFailed, powercycle.Ended: HasEnded,
	powercycle.Stopped: WasStopped,
}

// CycleSteps are the steps of a power cycle, with the states of each, and the condition of the remediation that is True when it is done.
var CycleSteps = []struct {
	Name   string
	States []powercycle.State
	Done   string
}{
	{"power off", []powercycle.State{powercycle.Preparing, powercycle.PoweringOff}, infrav1.PoweredOffCondition},
	{"fence, move", []powercycle.State{powercycle.MovingWorkload}, infrav1.WorkloadMovedCondition},
	{"power on", []powercycle.State{powercycle.PoweringOn, powercycle.Rebooting, powercycle.Servicing}, infrav1.PoweredOnCondition},
	{"Ready", []powercycle.State{powercycle.Booting}, infrav1.NodeHealthyCondition},
}

// stepInCourse is the name of the step that r is at; empty if its reason says more than that, or it is at none.
func (r *Remediation) stepInCourse() string {
	if r.Reason != r.State && !inCourse[powercycle.Reason(r.Reason)] {
		return ""
	}
	for _, step := range CycleSteps {
		if slices.Contains(step.States, powercycle.State(r.State)) {
			return step.Name
		}
	}
	return ""
}

// inCourse are the reasons of what every power cycle may wait for.
var inCourse = map[powercycle.Reason]bool{
	powercycle.PowerSettlingReason: true, powercycle.AwaitingReceiptReason: true, powercycle.ReceiptGivenReason: true,
	powercycle.WatchingForLifeReason: true, powercycle.WorkloadMovingReason: true,
}

// CycledBy sets Cycle to the first of the known power cycles of t that has not left t to its owner, and was requested by the check or by
// a user.
func (t *Target) CycledBy(known []Remediation) {
	cycles := t.Requests
	if b := t.Blocker(RemediationUnderWay); b != nil {
		cycles = append(slices.Clip(cycles), b.Object)
	}
	for _, ref := range cycles {
		for i := range known {
			if r := &known[i]; t.Cycle == nil && r.Reference == ref && r.State != string(powercycle.OwnerRequested) {
				t.Cycle = r
			}
		}
	}
}

// UnderWay is a with the first of the power cycles that goes on although no check has asked for it: a person has.
func (a Answer) UnderWay(cycles []Remediation) Answer {
	if a.Action != "" || a.State != IsHealthy && a.State != NotChecked {
		return a
	}
	for i := range cycles {
		said := cycles[i].Answer()
		if said.State == InProgress || said.State == IsBlocked {
			a.Action, a.By, a.Reason = BeingRemediated, cycles[i].Reference.String(), said.Reason
			a.Detail, a.Implied = said.By, said.Implied
			return a
		}
	}
	return a
}

// CyclesNext is the next step of the first power cycle that has one. One that has requested owner remediation does not count if ownerNext,
// since then the next step is the owner's.
func CyclesNext(cycles []Remediation, ownerNext bool) Step {
	for i := range cycles {
		if next := cycles[i].Next; next != (Step{}) && (!ownerNext || cycles[i].State != string(powercycle.OwnerRequested)) {
			return next
		}
	}
	return Step{}
}
