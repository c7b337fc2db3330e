package hostremediation

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/explain"
)

// seeToTheBMC is what to do about all that a host's power is to blame for.
const seeToTheBMC = "see to the BMC: its address, credentials, network"

// persons are what a person has to do, by the reason of a step, or of what a remediation ended for. docs/conditions-and-events.md says the
// same.
var persons = map[string]string{
	"NoOwner":      "add the owner reference",
	turnTimedOut:   "see to the members of the control plane that it waits for; to power-cycle the host all the same, do it by hand, or delete what goes first",
	managerHere:    "run two replicas, on two nodes, with --leader-elect",
	"HostMismatch": "see spec.consumerRef of the host, and the annotation metal3.io/BareMetalHost of the Metal3Machine",
	"HostHeldOff": "when it is to be on again, remove the annotation, and delete the remediation if it has failed; " +
		"the check makes another if the machine is still bad",
	"HostSwitchedOff": "when it is to be on again, delete the remediation; the check makes another if the machine is still bad",
	"HostNotReady":    "end that",
	"HostGone":        "register the host again, or delete the Machine",
	hostServiced:      "wait for its end; if it hangs, see the BareMetalHost's error and its HostFirmwareSettings and HostFirmwareComponents",
	"OperatorSilent":  "see that the Bare Metal Operator and Ironic run, and why they do nothing about this host",
	fencingImpossible: "see that the Bare Metal Operator and Ironic run and read this host's BMC; if you know that the host is off, put the taint " +
		"node.kubernetes.io/out-of-service=nodeshutdown:NoExecute on its node by hand, and take it away afterwards",
	"PowerOffFailed": seeToTheBMC, "PowerOffTimedOut": seeToTheBMC, "PowerOnFailed": seeToTheBMC, "PowerOnTimedOut": seeToTheBMC,
	"RebootTimedOut":     seeToTheBMC,
	"PoweredOnAgain":     "find out who powers it on",
	"NodeMismatch":       "see which machine the node belongs to: its spec.providerID, and those of the Machines",
	"WorkloadStuck":      "see their finalizers, and the CSI driver's detach",
	"ClusterUnreachable": "see to its API server, unless this host is what it needs",
	"NodeStillUnhealthy": "look at the host's console",
	"HandedOver":         repairTheHost,
	"HandingOver":        repairTheHost,
	"TimedOutByCheck": "if it should have had longer, give that step of the check a longer timeout: " +
		"all attempts together may take 3 x timeoutSeconds x (retryLimit + 1)",
	"Paused":   "end the pause when it may go on",
	fenceStays: "remove the taint node.kubernetes.io/out-of-service and the annotation kubemend.io/fenced-by by hand; see why it was refused",
}

const repairTheHost = "repair the host, then remove both unhealthy annotations"

// reliefs are the reasons of steps that wait for something else than that the host, the workload or the node does what it was asked, with
// what would be otherwise if the wait was over. Behind one of them there may be another. If nil, it cannot be known what comes then.
var reliefs = map[string]func(*powercycle.Facts){
	"Paused":             func(f *powercycle.Facts) { f.Paused = false },
	"WaitingForTurn":     func(f *powercycle.Facts) { f.First = true },
	turnTimedOut:         func(f *powercycle.Facts) { f.First = true },
	managerHere:          func(f *powercycle.Facts) { f.First, f.ManagerHere = true, false },
	"HostMismatch":       func(f *powercycle.Facts) { f.Host = powercycle.HostOurs },
	"HostHeldOff":        func(f *powercycle.Facts) { f.HeldByOthers = false },
	"HostNotReady":       func(f *powercycle.Facts) { f.Acts = true },
	"PowerOffFailed":     func(f *powercycle.Facts) { f.PowerFails = false },
	"PowerOnFailed":      func(f *powercycle.Facts) { f.PowerFails = false },
	"PowerSettling":      func(f *powercycle.Facts) { f.WasOff = false },
	"WorkloadMoving":     func(f *powercycle.Facts) { f.Drained = true },
	"ClusterUnreachable": nil,
	"HostGone":           func(f *powercycle.Facts) { f.Host = powercycle.HostOurs },
	hostServiced:         func(f *powercycle.Facts) { f.Serviced = false },
	"AwaitingReceipt":    func(f *powercycle.Facts) { f.ReceiptGiven = true },
	"ReceiptGiven":       nil,
	fencingImpossible:    nil,
	"OperatorSilent":     nil,
	"WatchingForLife":    func(f *powercycle.Facts) { f.Sign = time.Time{} },
}

// holdsOf is all that keeps the remediation from going on, in the order in which it would be met.
func holdsOf(w *observed, step powercycle.Step) []explain.Blocker {
	if w.ownerless {
		return []explain.Blocker{{Reason: step.Reason, Text: step.Why, Person: persons[step.Reason]}}
	}
	if at, _ := powercycle.Foresee(w.facts, w.policy, w.now); step.Next.Final() && !at.IsZero() {
		return []explain.Blocker{{Reason: step.Reason, Text: sentence(w, step), Until: at}} // the fence, on a node that cannot be seen
	}
	var holds []explain.Blocker
	stopped := false // the clocks stand still
	for f := w.facts; step.Do == powercycle.Wait; step = powercycle.Next(f, w.policy, w.now) {
		relief, holdsUp := reliefs[step.Reason]
		if !holdsUp {
			break
		}
		hold := explain.Blocker{Reason: step.Reason, Text: sentence(w, step), Person: w.person(step.Reason)}
		if stopped = stopped || step.Reason == "Paused"; !stopped {
			hold.Until, _ = powercycle.Foresee(f, w.policy, w.now)
		}
		holds = append(holds, hold)
		if relief == nil {
			break
		}
		relief(&f)
	}
	return holds
}

// person is what a person has to do about a reason.
func (w *observed) person(reason string) string {
	switch {
	case reason == "ClusterUnreachable" && len(w.unasked) > 0:
		return "" // it is who looks that cannot ask
	case reason != "Paused":
		return persons[reason]
	case w.moved():
		return "" // what clusterctl has left behind, it deletes
	case annotations.HasPaused(w.rem):
		return fmt.Sprintf("when it may go on, take the annotation %s off the remediation", clusterv1.PausedAnnotation)
	case w.cluster != nil:
		return fmt.Sprintf("when it may go on, set spec.paused of Cluster %s to false", w.cluster.Name)
	}
	return persons[reason]
}

// nextOf is what happens next: now, or when the patience with what is waited for ends; else what a person has to do.
func nextOf(w *observed, step powercycle.Step, holds []explain.Blocker) explain.Step {
	if step.Do != powercycle.Wait {
		return explain.Step{At: w.now, Text: follows(w, step)}
	}
	if !w.ownerless {
		if at, then := powercycle.Foresee(w.facts, w.policy, w.now); !at.IsZero() {
			return explain.Step{At: at, Text: follows(w, then)}
		}
	}
	for _, h := range holds {
		if h.Person != "" {
			return explain.Step{Text: h.Person, Person: true}
		}
	}
	if text := w.afterwards(); text != "" {
		return explain.Step{Text: text, Person: true}
	}
	return explain.Step{}
}

// afterwards is what a person has to do about a remediation that has ended.
func (w *observed) afterwards() string {
	f := w.facts
	switch {
	case !f.State.Final():
		return ""
	case f.Fencing && f.Node == powercycle.NodeUnseen && f.Machine == powercycle.MachinePresent:
		return persons[fenceStays]
	case f.State == powercycle.HandedOver && w.found.Host == nil:
		return ""
	case f.State == powercycle.HandedOver:
		return persons["HandedOver"]
	case f.State == powercycle.Failed:
		return persons[powercycle.Causes(f.Cause)]
	}
	return ""
}

// follows says what comes of a step.
func follows(w *observed, step powercycle.Step) string {
	why := lowered(step.Why)
	began, all := w.facts.Attempt, w.policy.Attempts()
	switch {
	case step.Do == powercycle.BeginAttempt && began == 0:
		return fmt.Sprintf("the first attempt begins (1 of %d)", all)
	case step.Do == powercycle.BeginAttempt:
		return fmt.Sprintf("the attempt has failed, and the next one begins (%d of %d)", began+1, all)
	case step.Do == powercycle.AskPerson:
		return why + "; a person is asked"
	case step.Do == powercycle.Advance && step.Next == powercycle.HandingOver:
		return why + ", and the machine is handed over to its owner"
	case step.Do == powercycle.Advance && step.Next == powercycle.Failed:
		return why + ", and the remediation has failed"
	case step.Do == powercycle.Advance && step.Next.Final():
		return why + ", and the remediation ends"
	case step.Do == powercycle.Advance:
		return why + "; next comes " + string(step.Next)
	}
	return why
}

// lowered is a sentence as part of another one.
func lowered(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }

// clockOf is a moment as evidence has it.
func clockOf(at time.Time) string { return at.UTC().Format(time.RFC3339) }
