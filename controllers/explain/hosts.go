package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// OutOfService returns what a user has to do about a host that is marked so that no machine is put on it; zero if it is not marked.
func OutOfService(h *bmov1alpha1.BareMetalHost) Step {
	if !host.Unhealthy(h) {
		return Step{}
	}
	return Step{Reason: HostOutOfService, Manual: true,
		Text: fmt.Sprintf("repair the host, then remove its marks: kubectl mend reset host/%s -n %s", h.Name, h.Namespace)}
}

// PowerHolds are the annotations that change the power of a host and belong to no existing remediation.
type PowerHolds struct {
	// Orphaned belong to remediations that do not exist any more. Foreign were not set by a remediation.
	Orphaned, Foreign []string
}

// HoldsOf returns the power holds of h. unknown has the UIDs of remediations that h names and that do not exist.
func HoldsOf(h *bmov1alpha1.BareMetalHost, unknown []types.UID) PowerHolds {
	var holds PowerHolds
	marks := host.AllMarks(h)
	for _, name := range slices.Sorted(maps.Keys(h.Annotations)) {
		uid, marked := marks[name]
		switch {
		case !strings.HasPrefix(name, bmov1alpha1.RebootAnnotationPrefix), name == infrav1.RebootAnnotation: // it asks for one reboot only
		case !marked:
			holds.Foreign = append(holds.Foreign, name)
		case slices.Contains(unknown, uid):
			holds.Orphaned = append(holds.Orphaned, name)
		}
	}
	return holds
}

// Held adds to a, the answer about h, what the power holds do.
func (p PowerHolds) Held(a Answer, h *bmov1alpha1.BareMetalHost) Answer {
	holds := slices.Concat(p.Foreign, p.Orphaned)
	if len(holds) == 0 || !h.Spec.Online || a.Action != "" {
		return a
	}
	a.Action, a.Reason, a.Implied, a.Detail = KeptPoweredOff, string(powercycle.HostKeptOffReason), true, strings.Join(holds, ", ")
	if h.Status.PoweredOn {
		a.Action = AboutToBePoweredOff
	}
	return a
}

// Next returns what happens to h because of the power holds, and what a user has to do; each is zero if there is nothing.
func (p PowerHolds) Next(h *bmov1alpha1.BareMetalHost) (next, todo Step) {
	if !h.Spec.Online || len(p.Foreign)+len(p.Orphaned) == 0 {
		return Step{}, Step{}
	}
	next.Reason = string(powercycle.HostKeptOffReason)
	if next.Text = "the host stays powered off"; h.Status.PoweredOn {
		next.Text = "the Bare Metal Operator powers the host off"
	}
	if len(p.Orphaned) > 0 {
		next.Text += fmt.Sprintf("; a manager of kubemend removes %s when its --orphan-grace-period (5m unless set) is over",
			strings.Join(p.Orphaned, ", "))
	}
	if len(p.Foreign) > 0 {
		todo = Step{Reason: string(powercycle.HostKeptOffReason), Manual: true,
			Text: fmt.Sprintf("if the host is to be on, remove %s from it", strings.Join(p.Foreign, ", "))}
	}
	return next, todo
}

// OutOfService returns the answer about a host that is out of service, or a if a already says that something is wrong.
func (a Answer) OutOfService(reason string) Answer {
	switch {
	case a == NoMachineOfHost:
		return Answer{State: IsBlocked, Reason: reason, Detail: a.Detail}
	case a.State == IsHealthy && a.Action == "":
		return Answer{State: IsBlocked, Reason: reason, Detail: "its Machine is healthy"}
	}
	return a
}

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
