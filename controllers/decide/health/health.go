// Package health judges whether one machine or node is healthy.
//
// It takes facts, a policy and the current time, and returns a verdict. It does not read the API, write conditions or log, so a verdict
// from a bug report can be reproduced by copying the facts into a test.
package health

import (
	"slices"
	"time"
)

// Source is the kind of object that has a condition.
type Source string

const (
	// OnMachine is a signal from the Machine's own conditions, in the management cluster.
	OnMachine Source = "Machine"
	// OnNode is a signal from the conditions of the Machine's Node, in the workload cluster.
	OnNode Source = "Node"
)

// ConnectionDown is the reason of a Machine's conditions that Cluster API sets to Unknown because it lost the connection to the workload
// cluster. Such a condition says nothing about the machine, so it never counts.
const ConnectionDown = "ConnectionDown"

// InspectionFailed is the reason of a Machine's conditions that a control plane provider sets to Unknown because it could not inspect the
// machine. While the workload cluster is out of reach, such a condition says nothing about the machine.
const InspectionFailed = "InspectionFailed"

// InternalError is the reason of a Machine's conditions NodeReady and NodeHealthy when Cluster API could not read the node. While kubemend
// cannot read the node either, such a condition says nothing about the machine.
const InternalError = "InternalError"

// Cluster API copies conditions of the Node to two conditions of its Machine (machine_controller_status.go). These have no heartbeat: they
// stay as they are while Cluster API is paused, down or disconnected from the workload cluster.
const (
	// NodeReady is the Node's condition Ready.
	NodeReady = "NodeReady"
	// NodeHealthy combines the Node's conditions Ready, MemoryPressure, DiskPressure and PIDPressure.
	NodeHealthy = "NodeHealthy"
)

// remote are the conditions of a Machine that KubeadmControlPlane sets from what it reads in the workload cluster.
var remote = map[string]bool{
	"APIServerPodHealthy": true, "ControllerManagerPodHealthy": true, "SchedulerPodHealthy": true, "EtcdPodHealthy": true,
	"EtcdMemberHealthy": true, "NodeKubeadmLabelsAndTaintsSet": true,
}

// Settling is how long after a pause or an outage an older condition does not count. In that time its writer corrects it if it is outdated:
// a kubelet posts a change within 10 seconds, ClusterCache reconnects every 10 to 30 seconds, and the controllers that write conditions of
// Machines then reconcile all of them. A status that is still true is not written again, so only time shows that it was checked.
const Settling = time.Minute

// Signal is one condition as last reported.
type Signal struct {
	Source Source
	Type   string
	Status string
	Reason string
	// Since is the condition's last transition, or a later time because of the doubt Late.
	Since time.Time
	Late  Doubt
}

// ReadyMissing stands for the missing Ready condition of a Node, as the node lifecycle controller would write it. The condition is missing
// after a client has replaced the list of conditions. A running kubelet restores it within ten seconds. Without this signal a Node that
// was not Ready would count as recovered.
var ReadyMissing = Signal{Source: OnNode, Type: "Ready", Status: "Unknown", Reason: "NodeStatusNeverUpdated"}

// Rule makes a machine unhealthy once a matching signal has lasted For. One matching rule is enough. A missing condition matches no rule
// (Cluster API, spec.checks of MachineHealthCheck), except that a missing Ready counts as ReadyMissing.
type Rule struct {
	Source Source
	Type   string
	Status string
	For    time.Duration
}

// Node says what is known about the Node of a machine.
type Node int

const (
	// NodeUnseen means that the workload cluster could not be read.
	NodeUnseen Node = iota
	// NodeAwaited means that the Machine's status.nodeRef is not set yet.
	NodeAwaited
	// NodePresent means that the Machine's Node exists.
	NodePresent
	// NodeGone means that status.nodeRef names a Node that no longer exists.
	NodeGone
	// NodeOther means that the Node in status.nodeRef has another provider ID than the Machine, and that no Node has the Machine's.
	NodeOther
)

// Gate is a reason why a machine cannot be judged yet, whatever its conditions are.
type Gate string

const (
	// Open means that there is no such reason.
	Open Gate = ""
	// ControlPlaneNotInitialized applies to every machine that is not part of the control plane.
	ControlPlaneNotInitialized Gate = "ControlPlaneNotInitialized"
	// InfrastructureNotReady applies to every machine of the cluster.
	InfrastructureNotReady Gate = "InfrastructureNotReady"
	// ClockWrong applies to every machine of a check: timestamps from other clocks cannot be compared with the manager's clock.
	ClockWrong Gate = "ClockWrong"
)

// Target is everything known about one machine at the moment it is judged.
type Target struct {
	// Marked says that a user requested remediation by annotation.
	Marked bool
	// Failure is the Machine's terminal failure as Cluster API reports it, in one sentence; empty if there is none.
	Failure string
	// Paused says that Cluster API is paused, or has not reconciled the Machine since a pause. Its conditions may be outdated, and no
	// timeout expires.
	Paused bool
	// Resumed is when Cluster API last resumed the Machine after a pause; zero if it never did.
	Resumed time.Time
	// Reached is when the last outage of the workload cluster ended; zero if there was none.
	Reached time.Time
	Gate    Gate
	Node    Node
	// NodeName is empty while status.nodeRef is not set.
	NodeName string
	// Other is a Node because of which the machine's Node is not known; zero if there is none.
	Other Other
	// AwaitedSince is when the startup timeout begins. It has to be set while the Node is awaited: counted from the zero time, every
	// timeout has expired.
	AwaitedSince time.Time
	// Lost is how long the workload cluster was out of reach since AwaitedSince; zero if unknown: then the timeout starts again at Reached.
	Lost time.Duration
	// Signals are only read, so the caller may reuse the slice afterwards.
	Signals []Signal
}

// Policy is the part of a check's spec that judging needs.
type Policy struct {
	Rules []Rule
	// NodeStartup is the timeout for the Machine's first Node; zero means that there is none.
	NodeStartup time.Duration
}

// Misjudges reports whether a clock that is wrong by this much may end a timeout too early: the error exceeds the shortest timeout.
func (p Policy) Misjudges(wrong time.Duration) bool {
	exceeds := func(timeout time.Duration) bool { return timeout > 0 && wrong.Abs() > timeout }
	return exceeds(p.NodeStartup) || slices.ContainsFunc(p.Rules, func(rule Rule) bool { return exceeds(rule.For) })
}

// State is the result of a verdict.
type State int

const (
	// Healthy machines have a Node and match no rule.
	Healthy State = iota
	// Starting machines have no Node yet, and the startup timeout has not expired.
	Starting
	// Pending machines match a rule whose timeout has not expired.
	Pending
	// Unknown machines could not be read, or their conditions are older than a pause. This state never starts or ends a remediation.
	Unknown
	// Unhealthy machines need remediation.
	Unhealthy
)

// String returns the state in lower case, as metrics and messages show it.
func (s State) String() string {
	return [...]string{Healthy: "healthy", Starting: "starting", Pending: "pending", Unknown: "unknown", Unhealthy: "unhealthy"}[s]
}

// Reason says which rule a finding comes from.
type Reason string

const (
	// MarkedByHand means that the Machine has the annotation cluster.x-k8s.io/remediate-machine.
	MarkedByHand Reason = "MarkedByHand"
	// MachineFailed means that the Machine's failureReason or failureMessage is set.
	MachineFailed Reason = "MachineFailed"
	// MachineCondition means that a condition matches an entry of unhealthyMachineConditions.
	MachineCondition Reason = "MachineCondition"
	// NodeDeleted means that the Node in status.nodeRef no longer exists.
	NodeDeleted Reason = "NodeDeleted"
	// NodeStartup means that the Machine's first Node does not exist yet.
	NodeStartup Reason = "NodeStartup"
	// NodeCondition means that a condition matches an entry of unhealthyNodeConditions.
	NodeCondition Reason = "NodeCondition"
)

// Finding is one reason why a machine is or will be unhealthy. It counts from Due on; a finding with a zero Due counts at once.
type Finding struct {
	Reason Reason
	// Node is the name of the deleted Node, if Reason is NodeDeleted.
	Node string
	// Failure is the failure that Cluster API reports, if Reason is MachineFailed.
	Failure string
	// Other is a Node because of which the machine's Node is not known, if Reason is NodeStartup; zero if there is none.
	Other Other
	// Limit is the timeout of the rule.
	Limit time.Duration
	// Due is when the timeout expires.
	Due time.Time
	// Signal is the condition that matched the rule; zero if the finding is not about a condition.
	Signal Signal
	// Late is why the timeout does not begin at the condition's last transition; empty if it does.
	Late Doubt
}

// DueAt reports whether f counts at now.
func (f Finding) DueAt(now time.Time) bool { return !now.Before(f.Due) }

// Doubt is a reason why a condition that matches a rule does not count, or counts only from a later time.
type Doubt string

const (
	// NotSincePause means that the condition was written before a pause, and Cluster API may not have checked it since.
	NotSincePause Doubt = "NotSincePause"
	// NotSinceOutage means that the condition may be outdated, because its writer lost the workload cluster too.
	NotSinceOutage Doubt = "NotSinceOutage"
	// ThroughOutage means that the time in which the workload cluster was out of reach does not count.
	ThroughOutage Doubt = "ThroughOutage"
	// NotSinceStamp means that the condition's lastTransitionTime is missing or contradicts what this process saw.
	NotSinceStamp Doubt = "NotSinceStamp"
	// NodeDiffers means that Cluster API copied the condition from the Node, and the Node's condition has changed since.
	NodeDiffers Doubt = "NodeDiffers"
)

// Verdict is the judgement of one target at one moment.
type Verdict struct {
	State State
	// Findings holds every finding, due or not, in the order of the rules.
	Findings []Finding
	// Void holds the findings that do not count because of the doubt in Late; nearly always nil.
	Void []Finding
	// Gate is why an unknown target could not be judged; Open if the workload cluster could not be reached.
	Gate Gate
	// Recheck is the first moment at which the verdict changes although no object changes; zero if there is none.
	Recheck time.Time
}

// Doubted reports whether a finding does not count because of d.
func (v Verdict) Doubted(d Doubt) bool {
	return slices.ContainsFunc(v.Void, func(f Finding) bool { return f.Late == d })
}

// Due returns the findings that count at now.
func (v Verdict) Due(now time.Time) []Finding {
	due := make([]Finding, 0, len(v.Findings))
	for _, f := range v.Findings {
		if f.DueAt(now) {
			due = append(due, f)
		}
	}
	return due
}

// OverdueSince returns when the first finding became due, or zero if no finding has such a time, as with an annotation or a deleted Node.
func (v Verdict) OverdueSince(now time.Time) time.Time {
	var since time.Time
	for _, f := range v.Due(now) {
		since = Earliest(since, f.Due)
	}
	return since
}

// Earliest returns the earlier of two times. A zero time means never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
