package explain

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

const (
	// seeToTheBMC is what to do about all that a host's power is to blame for.
	seeToTheBMC   = "see to the BMC: its address, credentials, network"
	repairTheHost = "repair the host, then remove both unhealthy annotations"
)

// persons are what a person has to do, by the reason of a step, or of what a remediation ended for. docs/conditions.md says the same.
var persons = map[powercycle.Reason]string{
	powercycle.NoOwnerReason:    "add the owner reference",
	powercycle.NoStrategyReason: "set spec.strategy.type, also of the template",
	powercycle.QueueTimedOutReason: "see to the members of the control plane that it waits for; to power-cycle the host all the same, do it by hand, " +
		"or delete what is ahead of it",
	powercycle.ManagerRunsHereReason: "run two replicas, on two nodes, with --leader-elect",
	powercycle.HostMismatchReason:    "see spec.consumerRef of the host, and the annotation metal3.io/BareMetalHost of the Metal3Machine",
	powercycle.HostKeptOffReason: "when it is to be on again, remove the annotation, and delete the remediation if it has failed; " +
		"the check makes another if the machine is still unhealthy",
	powercycle.HostSwitchedOffReason: "when it is to be on again, delete the remediation; the check makes another if the machine is still unhealthy",
	powercycle.HostNotReadyReason:    "unpause, attach or provision the host",
	powercycle.HostGoneReason:        "register the host again, or delete the Machine",
	powercycle.HostExternalReason:    "repair the host; to replace it, delete the Machine, and provision the new one as this one was",
	powercycle.OwnerlessReason:       "repair the host, or delete the Machine: it has no owner that could replace it",
	powercycle.HostServicedReason:    "wait for its end; if it hangs, see the BareMetalHost's error and its HostFirmwareSettings and HostFirmwareComponents",
	powercycle.OperatorSilentReason:  "see that the Bare Metal Operator and Ironic run, and why they do nothing about this host",
	powercycle.FencingImpossibleReason: "see that the Bare Metal Operator and Ironic run and read this host's BMC; if you know that the host is off, put " +
		"the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute on its node by hand, and remove it afterwards",
	powercycle.PowerOffFailedReason: seeToTheBMC, powercycle.PowerOffTimedOutReason: seeToTheBMC,
	powercycle.PowerOnFailedReason: seeToTheBMC, powercycle.PowerOnTimedOutReason: seeToTheBMC, powercycle.RebootTimedOutReason: seeToTheBMC,
	powercycle.SignOfLifeReason: "see that the host's BMC address is that of this very host, and that the BMC reads its power; " +
		"look whether data of what ran on the node is damaged; then delete the remediation, and run kubectl mend reset host/NAME",
	powercycle.PowerOffDisprovedReason: "see that the host's BMC address is that of this very host, and that the BMC reads its power; then run " +
		"kubectl mend reset host/NAME, or remove its annotation kubemend.io/power-off-disproved",
	powercycle.HoldRemovedReason:        "find out who removed the annotation that kept it powered off",
	powercycle.PoweredOnAgainReason:     "find out who powers it on",
	powercycle.NodeMismatchReason:       "see which machine the node belongs to: its spec.providerID, and those of the Machines",
	powercycle.WorkloadStuckReason:      "check the finalizers of what is left, and the CSI driver's detach",
	powercycle.ClusterUnreachableReason: "see to its API server, unless this host is what it needs",
	powercycle.NodeStillUnhealthyReason: "look at the host's console",
	powercycle.OwnerRequestedReason:     repairTheHost,
	powercycle.RequestingOwnerReason:    repairTheHost,
	powercycle.TimedOutByCheckReason: "if it should have had longer, give that step of the check a longer timeout: " +
		"all attempts together may take 3 x timeoutSeconds x (retryLimit + 1)",
	powercycle.PausedReason: "end the pause when it may go on",
	powercycle.UnfenceTimedOutReason: "remove the taint node.kubernetes.io/out-of-service and the annotation kubemend.io/fenced-by by hand; " +
		"see why it was refused",
}

// reliefs are the reasons of steps that wait for something else than that the host, the workload or the node does what it was asked, with
// what would be otherwise if the wait was over. Behind one of them there may be another. If nil, it cannot be known what comes then.
var reliefs = map[powercycle.Reason]func(*powercycle.Facts){
	powercycle.PausedReason:             func(f *powercycle.Facts) { f.Paused = false },
	powercycle.WaitingInQueueReason:     func(f *powercycle.Facts) { f.First = true },
	powercycle.QueueTimedOutReason:      func(f *powercycle.Facts) { f.First = true },
	powercycle.ManagerRunsHereReason:    func(f *powercycle.Facts) { f.First, f.ManagerHere = true, false },
	powercycle.HostMismatchReason:       func(f *powercycle.Facts) { f.Host = powercycle.HostOurs },
	powercycle.HostKeptOffReason:        func(f *powercycle.Facts) { f.KeptOffByOthers = false },
	powercycle.HostNotReadyReason:       func(f *powercycle.Facts) { f.Acts = true },
	powercycle.PowerOffFailedReason:     func(f *powercycle.Facts) { f.PowerFails = false },
	powercycle.PowerOnFailedReason:      func(f *powercycle.Facts) { f.PowerFails = false },
	powercycle.PowerSettlingReason:      func(f *powercycle.Facts) { f.WasOff = false },
	powercycle.WorkloadMovingReason:     func(f *powercycle.Facts) { f.Drained = true },
	powercycle.ClusterUnreachableReason: nil,
	powercycle.HostGoneReason:           func(f *powercycle.Facts) { f.Host = powercycle.HostOurs },
	powercycle.HostServicedReason:       func(f *powercycle.Facts) { f.Serviced = false },
	powercycle.AwaitingReceiptReason:    func(f *powercycle.Facts) { f.ReceiptGiven = true },
	powercycle.ReceiptGivenReason:       nil,
	powercycle.FencingImpossibleReason:  nil,
	powercycle.OperatorSilentReason:     nil,
	powercycle.WatchingForLifeReason:    func(f *powercycle.Facts) { f.Sign = time.Time{} },
}

// Blockers are all that keeps the remediation from going on, in the order in which it would be met.
func (p *PowerCycle) Blockers(step powercycle.Step) []Blocker {
	if p.Idle != "" {
		return []Blocker{{Reason: string(step.Reason), Text: HostStep(step), Fix: persons[step.Reason]}}
	}
	if at, _ := powercycle.Foresee(p.Facts, p.Policy, p.Now); step.Next.Final() && !at.IsZero() {
		return []Blocker{{Reason: string(step.Reason), Text: p.Sentence(step), Until: at}} // the fence, on a node that cannot be seen
	}
	var all []Blocker
	stopped := false // the clocks stand still
	for f := p.Facts; step.Do == powercycle.Wait; step = powercycle.Next(f, p.Policy, p.Now) {
		relief, blocks := reliefs[step.Reason]
		if !blocks {
			break
		}
		b := Blocker{Reason: string(step.Reason), Text: p.Sentence(step), Fix: p.person(step.Reason), Object: p.object(step.Reason)}
		if stopped = stopped || step.Reason == powercycle.PausedReason; !stopped {
			b.Until, _ = powercycle.Foresee(f, p.Policy, p.Now)
		}
		all = append(all, b)
		if relief == nil {
			break
		}
		relief(&f)
	}
	return all
}

// object is what blocks the remediation for a reason: what is ahead of it in its queue, the Cluster that pauses it, or its host; zero if it is none.
func (p *PowerCycle) object(reason powercycle.Reason) Ref {
	switch reason {
	case powercycle.WaitingInQueueReason, powercycle.QueueTimedOutReason:
		return p.ahead()
	case powercycle.PausedReason:
		if p.Pause == PausedWithCluster {
			return Ref{Kind: "Cluster", Namespace: p.Namespace, Name: p.Cluster}
		}
	case powercycle.HostMismatchReason, powercycle.HostKeptOffReason, powercycle.HostNotReadyReason, powercycle.HostServicedReason,
		powercycle.PowerOffFailedReason, powercycle.PowerOnFailedReason:
		return p.host()
	}
	return Ref{}
}

// ahead is the first object that is ahead of the remediation in its queue: another remediation, the Machine of another member of the control plane, or
// the host, which another remediation keeps powered off.
func (p *PowerCycle) ahead() Ref {
	if len(p.Ahead) == 0 {
		return Ref{}
	}
	switch a := &p.Ahead[0]; a.Reason {
	case powercycle.KeptOffForAnother, powercycle.ManagerOnHost:
		return p.host()
	case powercycle.AnotherOfMachine:
		if kind, name, named := strings.Cut(a.Name, " "); named {
			return Ref{Kind: kind, Namespace: p.Namespace, Name: name}
		}
	case powercycle.PlaneForbids:
		if a.Objection.Member != "" {
			return Ref{Kind: "Machine", Namespace: p.Namespace, Name: a.Objection.Member}
		}
	case powercycle.ClaimedByAnother, powercycle.QueueUnknown:
	}
	return Ref{}
}

// host is the host of the remediation; zero if it is not known.
func (p *PowerCycle) host() Ref {
	if !p.Host.Known {
		return Ref{}
	}
	return Ref{Kind: "BareMetalHost", Namespace: p.Host.Namespace, Name: p.Host.Name}
}

// person is what a person has to do about a reason.
func (p *PowerCycle) person(reason powercycle.Reason) string {
	switch {
	case reason == powercycle.ClusterUnreachableReason && p.Unasked:
		return "" // the cluster was not read for this explanation, but it may be reachable
	case reason != powercycle.PausedReason:
		return persons[reason]
	}
	switch p.Pause {
	case PausedByMove:
		return "" // clusterctl deletes what it did not move
	case PausedByItself:
		return fmt.Sprintf("when it may go on, remove the annotation %s from the remediation", clusterv1.PausedAnnotation)
	case PausedWithCluster:
		return fmt.Sprintf("when it may go on, set spec.paused of Cluster %s to false", p.Cluster)
	case PausedWithMachine, PausedWithMetal3Machine:
		return fmt.Sprintf("when it may go on, remove the annotation %s from the %s", clusterv1.PausedAnnotation, p.Pause)
	}
	return persons[reason]
}

// Next is what happens next: now, or when the patience with what is waited for ends; else what a person has to do.
func (p *PowerCycle) Next(step powercycle.Step, blockers []Blocker) Step {
	if step.Do != powercycle.Wait {
		return Step{At: p.Now, Reason: string(step.Reason), Text: p.follows(step)}
	}
	if p.Idle == "" {
		if at, then := powercycle.Foresee(p.Facts, p.Policy, p.Now); !at.IsZero() {
			return Step{At: at, Reason: string(then.Reason), Text: unlessDone(then) + p.follows(then)}
		}
	}
	for _, b := range blockers {
		if b.Fix != "" {
			return Step{Reason: b.Reason, Text: b.Fix, Manual: true}
		}
	}
	if text := p.afterwards(); text != "" {
		return Step{Reason: string(step.Reason), Text: text, Manual: true}
	}
	return Step{}
}

// unlessDone begins what follows if that for which the remediation waits is not done by its deadline.
func unlessDone(then powercycle.Step) string {
	switch then.Reason {
	case powercycle.PowerOffTimedOutReason, powercycle.PowerOnTimedOutReason, powercycle.RebootTimedOutReason, powercycle.OperatorSilentReason,
		powercycle.FencingImpossibleReason, powercycle.WorkloadStuckReason, powercycle.NodeStillUnhealthyReason, powercycle.QueueTimedOutReason,
		powercycle.UnfenceTimedOutReason, powercycle.HostGoneReason:
		return "if it is not done by then: "
	default:
		return ""
	}
}

// afterwards is what a person has to do about a remediation that has ended.
func (p *PowerCycle) afterwards() string {
	f := p.Facts
	switch {
	case !f.State.Final():
		return ""
	case f.Fencing && f.Node == powercycle.NodeUnseen && f.Machine == powercycle.MachinePresent:
		return persons[powercycle.UnfenceTimedOutReason]
	case f.State == powercycle.OwnerRequested && !p.Host.Known:
		return ""
	case f.State == powercycle.OwnerRequested:
		return persons[powercycle.OwnerRequestedReason] + p.reset()
	case f.State == powercycle.Failed:
		return persons[f.Cause.Reason]
	}
	return ""
}

// reset is the command that removes the marks of the host, as the end of a sentence; empty if its name is not known.
func (p *PowerCycle) reset() string {
	if p.Host.Name == "" {
		return ""
	}
	return fmt.Sprintf(": kubectl mend reset host/%s -n %s", p.Host.Name, p.Host.Namespace)
}

// follows says what comes of a step.
func (p *PowerCycle) follows(step powercycle.Step) string {
	why := lowered(HostStep(step))
	began, all := p.Facts.Attempt, p.Policy.Attempts()
	switch {
	case step.Do == powercycle.BeginAttempt && began == 0:
		return fmt.Sprintf("the first attempt begins (1 of %d)", all)
	case step.Do == powercycle.BeginAttempt:
		return fmt.Sprintf("the attempt has failed, and the next one begins (%d of %d)", began+1, all)
	case step.Do == powercycle.AskPerson:
		return why + "; a warning asks you to act"
	case step.Do == powercycle.Advance && step.Next == powercycle.RequestingOwner:
		return why + ", and the owner of the machine is asked to replace it"
	case step.Do == powercycle.Advance && step.Next == powercycle.Failed:
		return why + ", and the remediation has failed"
	case step.Do == powercycle.Advance && step.Next.Final():
		return why + ", and the remediation ends"
	case step.Do == powercycle.Advance:
		return why + "; next comes " + string(step.Next)
	}
	return why
}
