package explain

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Remediation is the power cycle of a host, and what pages and answers need besides the API.
type Remediation struct {
	cliv1.HostRemediation
	// Requested says who requested it with kubectl mend, when and why; empty if a controller did.
	Requested string
	// Conditions are those of the remediation, which say when each step was done.
	Conditions []metav1.Condition
}

// Answer returns the answer about r.
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

// CycleSteps are the steps of a power cycle, each with its states and the condition that is True once it is done.
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

// stepInCourse returns the name of the current step of r; empty if there is none, or if the reason of r says more.
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

// inCourse are the reasons to wait that every power cycle may have.
var inCourse = map[powercycle.Reason]bool{
	powercycle.PowerSettlingReason: true, powercycle.AwaitingReceiptReason: true, powercycle.ReceiptGivenReason: true,
	powercycle.WatchingForLifeReason: true, powercycle.WorkloadMovingReason: true,
}

// CycledBy sets Cycle to the first known power cycle that remediates t, for the check or a user, and has not requested owner remediation.
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

// UnderWay adds to a the first power cycle in progress that no check has requested, but a user.
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

// CyclesNext returns the next step of the first power cycle that has one. If ownerNext is set, it skips cycles that have asked the owner.
func CyclesNext(cycles []Remediation, ownerNext bool) Step {
	for i := range cycles {
		if next := cycles[i].Next; next != (Step{}) && (!ownerNext || cycles[i].State != string(powercycle.OwnerRequested)) {
			return next
		}
	}
	return Step{}
}
