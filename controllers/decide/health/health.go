// Package health judges whether one machine is healthy.
//
// It is given facts, a policy and a moment, and returns a verdict. It reads no
// API, writes no condition and logs nothing, so a verdict can be reproduced from
// a bug report by copying the facts into a test.
package health

import (
	"slices"
	"time"
)

// Source says which object a signal was seen on.
type Source string

const (
	// OnMachine is a signal from the Machine's own conditions, in the management cluster.
	OnMachine Source = "Machine"
	// OnNode is a signal from the conditions of the Machine's Node, in the workload cluster.
	OnNode Source = "Node"
)

// ConnectionDown is the reason that Cluster API gives to conditions of a Machine
// which it sets to Unknown because it lost the connection to the workload
// cluster. Such a condition mirrors the state of the connection and says nothing
// about the machine, so it is never evidence.
const ConnectionDown = "ConnectionDown"

// InspectionFailed is the reason that control planes give to conditions of their machines which they set to Unknown because
// they could not look. While the workload cluster is out of reach it is the connection that it tells of.
const InspectionFailed = "InspectionFailed"

// InternalError is the reason that Cluster API gives to NodeReady and NodeHealthy of a Machine when it could not read the node. While
// we cannot see the node either it says nothing about the machine.
const InternalError = "InternalError"

// NodeReady and NodeHealthy are the conditions of a Machine in which Cluster API repeats what it last saw of its node: NodeReady the node's
// condition Ready, NodeHealthy that one together with the three pressures. (Cluster API, machine_controller_status.go.) They have no
// heartbeat: while Cluster API does not look, because it is paused, down or has lost the connection, they stay as they are.
const (
	NodeReady   = "NodeReady"
	NodeHealthy = "NodeHealthy"
)

// remote are the other conditions of a Machine that somebody wrote who looked into the workload cluster. (KubeadmControlPlane.)
var remote = map[string]bool{
	"APIServerPodHealthy": true, "ControllerManagerPodHealthy": true, "SchedulerPodHealthy": true, "EtcdPodHealthy": true,
	"EtcdMemberHealthy": true, "NodeKubeadmLabelsAndTaintsSet": true,
}

// Settling is how long after a pause or an outage a condition that is older is taken for what was true before it. Its writer has that time
// to look again: a kubelet posts a change within 10 seconds, ClusterCache tries to connect every 10 to 30 seconds, and the controllers that
// write conditions of Machines begin with all objects at once. Only an older condition needs it: while its status stays, its writer does
// not write it anew, so nothing shows that it looked.
const Settling = time.Minute

// Signal is one condition as last reported.
type Signal struct {
	Source Source
	Type   string
	Status string
	Reason string
	// Since is the condition's last transition, or later for the doubt Late.
	Since time.Time
	Late  Doubt
}

// ReadyMissing is what a Node says that has no Ready condition, as the node-lifecycle controller would write it: somebody has replaced the
// list of conditions. A kubelet that runs restores it within ten seconds; without this a Node that was not Ready would count as recovered.
var ReadyMissing = Signal{Source: OnNode, Type: "Ready", Status: "Unknown", Reason: "NodeStatusNeverUpdated"}

// Rule calls a machine unhealthy once a matching signal has lasted For.
//
// Rules are alternatives: one that is met is enough. A condition that is missing
// matches no rule (Cluster API, spec.checks of MachineHealthCheck), but for ReadyMissing.
type Rule struct {
	Source Source
	Type   string
	Status string
	For    time.Duration
}

// Node says what is known of the node behind a machine.
type Node int

const (
	// NodeUnseen means that the workload cluster could not be asked.
	NodeUnseen Node = iota
	// NodeAwaited means that the machine has not named a node yet.
	NodeAwaited
	// NodePresent means that the node named by the machine exists.
	NodePresent
	// NodeGone means that the machine names a node which no longer exists.
	NodeGone
	// NodeOther means that the node of that name is not the machine's by its provider ID, and that no other one is.
	NodeOther
)

// Gate is a reason why a machine cannot be judged yet, whatever its conditions say.
type Gate string

const (
	// Open is the absence of a gate.
	Open Gate = ""
	// ControlPlaneNotInitialized holds up every machine that is not part of the control plane.
	ControlPlaneNotInitialized Gate = "ControlPlaneNotInitialized"
	// InfrastructureNotReady holds up every machine of the cluster.
	InfrastructureNotReady Gate = "InfrastructureNotReady"
	// ClockWrong holds up every machine of a check: times that others have written cannot be compared with the manager's.
	ClockWrong Gate = "ClockWrong"
)

// Target is everything known about one machine at the moment it is judged.
type Target struct {
	// Marked says that an operator asked for remediation by annotation.
	Marked bool
	// Failure is what Cluster API says has failed for good, in one sentence; empty if nothing has.
	Failure string
	// Paused says that Cluster API has not taken the machine up again since a pause: its conditions are as old as that, and clocks stand
	// still.
	Paused bool
	// Resumed is when Cluster API last took the machine up after a pause; zero if it never did.
	Resumed time.Time
	// Reached is when the workload cluster was reached again after it had been out of reach; zero if it never was.
	Reached time.Time
	Gate    Gate
	Node    Node
	// NodeName is empty while the machine has not named a node.
	NodeName string
	// Other is in the way of knowing the machine's node; zero if nothing is.
	Other Other
	// AwaitedSince is the moment from which a first node is waited for, or one of the machine's provider ID. It has to be set
	// while the node is awaited: since the zero moment everything is late. Lost is for how long since then the workload cluster was out of
	// reach; zero if that is not known, and the node is awaited anew since Reached.
	AwaitedSince time.Time
	Lost         time.Duration
	// Signals are read, not kept: the caller may reuse the slice afterwards.
	Signals []Signal
}

// Policy is the part of a MachineHealthCheck's spec that judging needs.
type Policy struct {
	Rules []Rule
	// NodeStartup is how long a first node is waited for; zero waits for ever.
	NodeStartup time.Duration
}

// Misjudges reports whether a clock that is wrong by that much may let a timeout end too early: it exceeds the shortest one.
func (p Policy) Misjudges(wrong time.Duration) bool {
	exceeds := func(timeout time.Duration) bool { return timeout > 0 && wrong.Abs() > timeout }
	return exceeds(p.NodeStartup) || slices.ContainsFunc(p.Rules, func(rule Rule) bool { return exceeds(rule.For) })
}

// State is what a verdict comes down to.
type State int

const (
	// Healthy machines have a node and nothing is held against them.
	Healthy State = iota
	// Starting machines have no node yet, and their time has not run out.
	Starting
	// Pending machines match a rule whose time has not run out.
	Pending
	// Unknown machines could not be asked, or what is known of them is as old as a pause. That is never a reason to act, and never one to
	// end a remediation.
	Unknown
	// Unhealthy machines are to be remediated.
	Unhealthy
)

// String returns the state in lower case, as metrics and messages spell it.
func (s State) String() string {
	return [...]string{Healthy: "healthy", Starting: "starting", Pending: "pending", Unknown: "unknown", Unhealthy: "unhealthy"}[s]
}

// Reason says which rule a finding comes from.
type Reason string

const (
	// MarkedByHand is the annotation cluster.x-k8s.io/remediate-machine.
	MarkedByHand Reason = "MarkedByHand"
	// MachineFailed is a Machine whose failureReason or failureMessage is set.
	MachineFailed Reason = "MachineFailed"
	// MachineCondition is an entry of unhealthyMachineConditions.
	MachineCondition Reason = "MachineCondition"
	// NodeDeleted is a node that the machine names and that no longer exists.
	NodeDeleted Reason = "NodeDeleted"
	// NodeStartup is a first node that did not appear in time.
	NodeStartup Reason = "NodeStartup"
	// NodeCondition is an entry of unhealthyNodeConditions.
	NodeCondition Reason = "NodeCondition"
)

// Finding is something held against a machine. It counts from Due on; a zero Due counts at once.
type Finding struct {
	Reason Reason
	// Node is the name of the node that is gone, of NodeDeleted; Failure is what Cluster API says has failed, of MachineFailed.
	Node, Failure string
	// Other is in the way of knowing the node, of NodeStartup; zero if nothing is.
	Other Other
	// Limit is the timeout of the rule; Due is when it expires.
	Limit time.Duration
	Due   time.Time
	// Signal is what a rule matched; zero if the finding is not about a condition.
	Signal Signal
	// Late is the doubt for which it counts from later than the last transition of Signal; empty if it does not.
	Late Doubt
}

// DueAt reports whether f counts at now.
func (f Finding) DueAt(now time.Time) bool { return !now.Before(f.Due) }

// Doubt is a reason why something that matches a rule does not count.
type Doubt string

const (
	// NotSincePause is the doubt about what was written before a pause, as long as Cluster API has not taken the machine up again.
	NotSincePause Doubt = "NotSincePause"
	// NotSinceOutage is the doubt about what was seen in the workload cluster, or of it, before that was out of reach.
	NotSinceOutage Doubt = "NotSinceOutage"
	// ThroughOutage is the doubt about the time in which the workload cluster was out of reach, which does not count.
	ThroughOutage Doubt = "ThroughOutage"
	// NotSinceStamp is the doubt about the stamp of a condition, which is missing or contradicts what this process saw.
	NotSinceStamp Doubt = "NotSinceStamp"
	// NodeDiffers is the doubt about a condition that repeats what Cluster API saw of a node, which is otherwise now.
	NodeDiffers Doubt = "NodeDiffers"
)

// Void is something that would be held against a machine if it were not in doubt.
type Void struct {
	Doubt Doubt
	// Finding is what it would be. It is never due.
	Finding Finding
}

// Verdict is the judgement of one target at one moment.
type Verdict struct {
	State State
	// Findings holds every finding, due or not, in the order of the rules.
	Findings []Finding
	// Void holds what matches a rule and does not count; nil nearly always.
	Void []Void
	// Gate says what kept an unknown target from being judged; Open if it was the missing connection.
	Gate Gate
	// Recheck is the first moment at which time alone changes the verdict; zero if none does.
	Recheck time.Time
}

// Doubted reports whether anything is in doubt for that reason.
func (v Verdict) Doubted(d Doubt) bool {
	for i := range v.Void {
		if v.Void[i].Doubt == d {
			return true
		}
	}
	return false
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

// OverdueSince returns the earliest moment at which one of the findings came due,
// or zero if no such moment is known, as with an annotation or a deleted node alone.
func (v Verdict) OverdueSince(now time.Time) time.Time {
	var since time.Time
	for _, f := range v.Due(now) {
		since = Earliest(since, f.Due)
	}
	return since
}

// Earliest returns the earlier of two moments. A zero moment means never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
