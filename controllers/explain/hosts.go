package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

// PowerCycle is what a remediation of a host is decided on, with the names and texts that a person needs besides. All are plain values.
type PowerCycle struct {
	// Namespace is that of the remediation, and of its Machine.
	Namespace string

	Facts  powercycle.Facts
	Policy powercycle.Policy
	Now    time.Time
	// After is what the remediation remembers after the step that is explained.
	After powercycle.Memory

	// Idle is why nothing is done for it and nothing was: it names no machine, or asks for nothing; empty if something is.
	Idle powercycle.Reason
	// Asked says that the remediation asks for something, Deleted that it is being deleted. Finalizer is its finalizer.
	Asked, Deleted bool
	Finalizer      string
	// Pause is what pauses it; empty if nothing does. Cluster is its Cluster; empty if there is none.
	Pause   Pause
	Cluster string
	// Owner is the machine that it names, Machine the one of these that exists; empty if there is none.
	Owner, Machine string
	// MachineUnhealthy is the reason for which a health check calls the machine unhealthy; empty if none does.
	MachineUnhealthy string

	Host HostDetails
	Node NodeDetails
	// Ahead is what is ahead in the queue, Unasked what could not be asked.
	Ahead   []powercycle.Ahead
	Unasked bool
}

// Pause is what pauses a remediation.
type Pause string

// What may pause a remediation.
const (
	PausedByMove            Pause = "Moved"
	PausedByItself          Pause = "Annotation"
	PausedWithCluster       Pause = "Cluster"
	PausedWithMachine       Pause = "Machine"
	PausedWithMetal3Machine Pause = "Metal3Machine"
)

// HostDetails are what is known of a host besides the facts.
type HostDetails struct {
	Known           bool
	Namespace, Name string
	// Mismatch is what does not match, or is missing; Consumer who has the host, such as "Metal3Machine m".
	Mismatch  string
	Consumer  string
	Unhealthy bool
	// Unmanaged is why its power is not managed now, Trouble the error that it has, Doubt what its operator reports against a receipt.
	Unmanaged, Doubt string
	Trouble          string
	// KeptOffBy is the annotation by which somebody who is no remediation keeps it powered off, KeptOffFor another remediation that does, KeptOffAs the
	// UID by which this one does.
	KeptOffBy, KeptOffFor, KeptOffAs string
}

// NodeDetails are what is known of a node besides the facts.
type NodeDetails struct {
	Name string
	// Unseen is why it cannot be seen; empty if it can.
	Unseen string
	// Ready is its condition Ready as the cache has it; empty if the cache has no such node. Unhealthy is what a NodeHealthCheck finds wrong with it.
	Ready, Unhealthy string
	// BootID is that of now, Before that of before the power cycle.
	BootID, Before string
	// Looked says that the workload cluster itself was asked and shows the node; Answered, that it has answered at all.
	Looked, Answered bool
	// Deleting, ProviderID, UID, OutOfService and Fence are what it shows then: Fence is whose the taint is.
	Deleting        bool
	ProviderID, UID string
	OutOfService    bool
	Fence           string
	Ours            bool
	Left            []string
	Count           int
	Drained         bool
	// Idle are attachments of volumes that are left, and that nothing waits for.
	Idle []string
}

// Decide returns the step that follows from the facts.
func (p *PowerCycle) Decide() powercycle.Step {
	if p.Idle != "" {
		return powercycle.Step{Do: powercycle.Wait, Next: powercycle.Pending, Reason: p.Idle}
	}
	return powercycle.Next(p.Facts, p.Policy, p.Now)
}

// maxMessage is how long a message may be; the field holds more, and an error may be added.
const maxMessage = 4096

// Message is what a condition or event says of a step, after what led to it: the sentence, with the attempt and what is known of its cause.
func (p *PowerCycle) Message(before string, step powercycle.Step) string {
	return cut(p.attempt(p.After.State) + JoinedSteps(before, p.Sentence(step)))
}

// cut is text as far as a message may be long.
func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "..."
}

func (p *PowerCycle) attempt(in powercycle.State) string {
	if p.After.Attempt == 0 || in.Final() {
		return ""
	}
	return fmt.Sprintf("Attempt %d of %d: ", p.After.Attempt, p.Policy.Attempts())
}

// JoinedSteps is one sentence of two, of which either may be empty.
func JoinedSteps(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "; " + lowered(second)
}

// Sentence is why a step is taken, whichever attempt it is part of.
func (p *PowerCycle) Sentence(step powercycle.Step) string {
	text, details := HostStep(step), p.details(step.Reason)
	if p.After.State.Final() {
		details = append(details, p.cause(text))
	}
	if step.Reason != powercycle.FencingImpossibleReason {
		details = append(details, p.Host.Trouble)
	}
	return inBrackets(text, details)
}

// CauseDetails is what is known of a cause besides the sentence of its step, to be remembered with it.
func (p *PowerCycle) CauseDetails(step powercycle.Step) string {
	return cut(strings.Join(written(append(p.details(step.Reason), p.Host.Trouble)), "; "))
}

// cause is the sentence of what led to the end; empty if that is said already.
func (p *PowerCycle) cause(said string) string {
	c := p.After.Cause
	if c.Reason == "" {
		return c.Said
	}
	text := HostStep(c.Step())
	if strings.HasPrefix(said, text) {
		return ""
	}
	return p.attempt(c.Next) + inBrackets(text, []string{c.Said})
}

func inBrackets(text string, details []string) string {
	if details = written(details); len(details) == 0 {
		return text
	}
	return text + " (" + strings.Join(details, "; ") + ")"
}

func written(texts []string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// details are what belongs to a reason; some may be empty.
func (p *PowerCycle) details(reason powercycle.Reason) []string {
	switch reason {
	case powercycle.WaitingInQueueReason, powercycle.ManagerRunsHereReason:
		return []string{Queue(p.Ahead)}
	case powercycle.QueueTimedOutReason:
		return []string{Queue(p.Ahead), persons[powercycle.QueueTimedOutReason]}
	case powercycle.HostKeptOffReason:
		return []string{"annotation " + p.Host.KeptOffBy}
	case powercycle.HostMismatchReason, powercycle.HostGoneReason:
		return []string{p.Host.Mismatch}
	case powercycle.PausedReason:
		return []string{p.pausedBy()}
	case powercycle.HostNotReadyReason:
		return []string{p.Host.Unmanaged}
	case powercycle.FencingImpossibleReason:
		return []string{p.unproven()}
	case powercycle.SignOfLifeReason:
		return []string{p.signOfLife()}
	case powercycle.ClusterUnreachableReason:
		return []string{p.Node.Unseen}
	case powercycle.WorkloadMovingReason, powercycle.WorkloadStuckReason:
		return []string{p.left()}
	case powercycle.WorkloadMovedReason:
		return []string{strings.Join(p.Node.Idle, ", ")}
	}
	return nil
}

// pausedBy says what pauses the remediation; empty if nothing does.
func (p *PowerCycle) pausedBy() string {
	switch p.Pause {
	case PausedByMove: // all other annotations are gone, and with them what is remembered
		return "because clusterctl has moved it to another management cluster, and deletes it here"
	case PausedByItself:
		return "by its annotation " + clusterv1.PausedAnnotation
	case PausedWithCluster:
		return "with Cluster " + p.Cluster
	case PausedWithMachine, PausedWithMetal3Machine:
		return fmt.Sprintf("with its %s, by the annotation %s", p.Pause, clusterv1.PausedAnnotation)
	}
	return ""
}

// unproven says what is missing to prove that the host is off.
func (p *PowerCycle) unproven() string {
	switch {
	case !p.Facts.Provable:
		return "the host has no condition Manageable, which the Bare Metal Operator writes since v0.13: " +
			"before that, only that it switches the host off is proof"
	case p.Host.Doubt != "":
		return p.Host.Doubt
	}
	return "its annotation " + infrav1.RebootAnnotation + " is still there"
}

// signOfLife says which sign of life the node has given.
func (p *PowerCycle) signOfLife() string {
	if p.Facts.NewBoot {
		return "it has booted"
	}
	return "its kubelet reports"
}

// left says what is left on the node.
func (p *PowerCycle) left() string {
	text := strings.Join(p.Node.Left, ", ")
	if more := p.Node.Count - len(p.Node.Left); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Queue says what a remediation waits for in its queue.
func Queue(ahead []powercycle.Ahead) string {
	texts := make([]string, 0, len(ahead))
	for _, a := range ahead {
		texts = append(texts, inQueue(a))
	}
	return strings.Join(texts, "; ")
}

func inQueue(a powercycle.Ahead) string {
	switch a.Reason {
	case powercycle.KeptOffForAnother:
		return fmt.Sprintf("the host is kept powered off for remediation %s", a.Name)
	case powercycle.AnotherOfMachine:
		return a.Name + " is under way"
	case powercycle.PlaneForbids:
		return objection(a.Objection)
	case powercycle.ManagerOnHost:
		return "no other replica is ready elsewhere, or it is about to take over"
	case powercycle.ClaimedByAnother:
		return a.Name + " is ahead in the queue"
	case powercycle.QueueUnknown:
		return a.Name
	}
	return ""
}

// objection says why a member of a control plane, "it", has to wait.
func objection(o controlplane.Objection) string {
	switch o.Reason {
	case controlplane.BeingRemediated, controlplane.BeingReplaced:
		return fmt.Sprintf("%s is being remediated (%s)", o.Member, o.By)
	case controlplane.MajorityAtRisk:
		return fmt.Sprintf("without it %d of %d control-plane nodes are healthy, and %d are needed", o.Votes, o.Total, o.Needed)
	case controlplane.NotFirst:
		return o.Member + " is ahead in the queue"
	default:
		return "it is not known yet which members of the control plane are alive"
	}
}
