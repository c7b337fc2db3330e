package machinehealthcheck

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Facts is everything that one decision depends on, read once. Its objects are shared with caches: they are not changed. What a decision
// has to remember goes in with the facts and comes out with the plan.
type Facts struct {
	Now   time.Time
	Check *clusterv1.MachineHealthCheck
	// Cluster is the Cluster of the check; without a UID if there is none, or if the check is ignored whatever its Cluster is.
	Cluster *clusterv1.Cluster
	Mode    Mode
	// ActsUnclaimed says that kubemend acts on checks that are not claimed.
	ActsUnclaimed bool
	// WatchFilter is the label that the check, or its Cluster, would need for this manager; empty if it has it.
	WatchFilter string
	// SelectorErr is why spec.selector of the check cannot be parsed; nil if it can.
	SelectorErr error
	Policy      health.Policy
	Settings

	// Link is what is known of the connection to the workload cluster, Outage what is known of an outage. Reach is the condition
	// WorkloadClusterReachable as of the reconcile before; zero if there was none.
	Link   health.Link
	Outage Outage
	// ClockAhead is how far the clock of the manager is ahead of that of an API server; less than 0 if it is behind, 0 up to 30 s.
	ClockAhead time.Duration
	Reach      metav1.Condition
	// SelectsNothing says that the selector of the check matches no Machine, and the labels of no template of Machines.
	SelectsNothing bool
	// Overlaps are the other checks of the cluster that are not paused.
	Overlaps []Overlap

	// Read says which of the facts were read that are read only if a plan needs them. Explains says that a reader wants to know all
	// blockers, of machines too that are not tried now.
	Read     Needs
	Explains bool

	Template Template
	// CyclesUnread is until when no remediation starts for machines on hosts, as it is not known which power cycles are in progress; zero
	// if it is known.
	CyclesUnread time.Time
	// Allowed is what a RemediationOverride allows beyond the limits of the check; nil if none does.
	Allowed *place.Allowance
	// Placeless are what RemediationPolicies hold against remediations that would begin, by the UIDs of the machines.
	Placeless map[types.UID][]rule.Blocker
	// Spares are the hosts that replacements could take. SpareWait is for how long after a machine became unhealthy its owner is not asked
	// to replace it while no spare host fits; zero if that does not wait.
	Spares    Spares
	SpareWait func(machine *clusterv1.Machine) time.Duration

	// Targets are the machines that the check selects and judges, in the order of their names. Verdicts are those on them.
	Targets  []*Target
	Verdicts []health.Verdict
	// Skipped are those that their users want left alone.
	Skipped []*Target
	Memory  Memory
	// Former are the records of Machines that never had a Node, by the UIDs of their owners; of owners that have another such Machine.
	// FormerAwaited is until when they are not known, after a start; zero if they are.
	Former        map[types.UID][]mendv1.RemediationRecord
	FormerAwaited time.Time
	// Capacity is what is not back of the remediations that the check has asked for.
	Capacity Capacity
	// Trouble is what could not be read, and was done without.
	Trouble []error
}

// Idle reports whether the machines of the check are not read.
func (facts *Facts) Idle() bool { return facts.Cluster.UID == "" || facts.Mode == BadSelector }

// Claimed reports whether check is claimed for kubemend. Its condition Paused is Cluster API core's then.
func Claimed(check *clusterv1.MachineHealthCheck) bool {
	return check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
}

// ClusterPaused reports whether what Cluster API says of the machines of cluster is as old as a pause: it writes none while the Cluster is
// paused, and after that core sets the machine's own condition Paused to False before anything else. (Cluster API, util/paused.) A
// Cluster's condition Paused tells less: it is True as well if only the Cluster has the annotation, and its machines are looked at.
func ClusterPaused(cluster *clusterv1.Cluster) bool { return ptr.Deref(cluster.Spec.Paused, false) }

// Initialized reports whether the control plane of the Cluster is. One that is not initialized is not asked: its Link is Unsure.
func (facts *Facts) Initialized() bool {
	return ConditionTrue(facts.Cluster, clusterv1.ClusterControlPlaneInitializedCondition) != nil
}

// Settled reports whether the numbers can be relied on. While an answer of the workload cluster is awaited they stand as they were: all
// machines are unknown then, and at every start of the manager, and at every probe that is lost, that would look like an outage.
func (facts *Facts) Settled() bool { return facts.Link != health.Unsure || !facts.Initialized() }

// Capacity is what is missing of the remediations that a check has asked for, by their records.
type Capacity struct {
	// Known reports that the records are known, Reported that the check has the condition CapacityBack.
	Known, Reported bool
	// Missing is of how many remediations it is missing.
	Missing int
	// Target is what is remediated for the longest time, Reason what that waits for, and Message the same as its record says it.
	Target, Reason, Message string
}

// Mode is how kubemend treats a check.
type Mode int

// The modes, by how much kubemend does. The machines of a check are judged from Observed on.
const (
	// Ignored is a check that is not this manager's, or whose Cluster is being deleted.
	Ignored Mode = iota
	// NoCluster is a check whose Cluster does not exist.
	NoCluster
	// BadSelector is a check whose spec.selector cannot be parsed, so that its machines are not known.
	BadSelector
	// Paused is a check that its user, or that of its Cluster, has paused.
	Paused
	// Observed is a check on which Cluster API core acts: it is judged, and nothing is written.
	Observed
	// Active is a check on which kubemend acts.
	Active
)

// Needs are facts that are read only if a decision depends on them.
type Needs struct {
	// Cycles are the power cycles in progress: they matter while a machine on a host is not healthy.
	Cycles bool
	// Template is the remediation template itself: it matters where a request may be made from it.
	Template bool
	// Spares are the hosts that replacements could take: they matter where an owner would be asked to replace a machine on bare metal.
	Spares bool
	// Hosts are those of the machines themselves: they matter where an owner is asked, or an update in place takes long. As facts that were
	// read it says that none can be.
	Hosts bool
}

// Outage is what is known of an outage of a workload cluster.
type Outage struct {
	// Refused is what is wrong with the kubeconfig; empty if it is not the reason.
	Refused string
	// Changed says that another workload cluster answers; empty if none does.
	Changed string
	// Silent says that the API server answers probes and nothing else.
	Silent bool
}

// Overlap is another check of the cluster that is not paused: Shared is how many targets of this one it selects too, Older that it is older
// than this one, and Acting that kubemend acts on it.
type Overlap struct {
	Name          string
	Shared        int
	Older, Acting bool

	selector labels.Selector
	// template is the name of the one that its requests are made from; empty if they are not, or of another kind than those of this check.
	template string
	opinions map[types.UID]Opinion
}

// Template is what is known of the remediation template of a check, and of the requests that are made from it.
type Template struct {
	// External says that the check has a template; without one the owners of the machines remediate them.
	External bool
	// Known says that it is known which requests exist, as it always is without a template: to be asked, an owner needs none. While it is
	// not known, none is made. Syncing says that it will be in a moment.
	Known, Syncing bool
	// Kind is that of the requests, TemplateKind and Name are the template's.
	Kind, TemplateKind, Name string
	// Missing says why there is no template, as a clause, and Fix what a person can do about that; empty if there is one. Refused says that
	// it is since the check names what can be no template.
	Missing, Fix string
	Refused      bool
}

// Memory is what a decision must know of those before it. A process that has none waits for as long as it would after a change.
type Memory struct {
	// Check is the UID of the check that the decision before was about; empty if there was none.
	Check types.UID
	// NotHealthy is since when machines are not healthy, by the UIDs of the machines.
	NotHealthy map[types.UID]time.Time
	// ShortCircuited says that too many machines were not healthy, or too few; Calm is when that ended, as far as this process has seen it.
	ShortCircuited bool
	Calm           time.Time
	// Refused is when this process last tried to begin a remediation and could not, by the UIDs of the machines.
	Refused map[types.UID]time.Time
	// Opinions are what the check says of the machines that other checks select too, by the UIDs of the machines.
	Opinions map[types.UID]Opinion
}

// Plan is what follows from the facts.
type Plan struct {
	// Needs are facts without which the plan is not final: read them, and decide again.
	Needs      Needs
	Population budget.Population
	Grant      budget.Grant
	// Conditions are those of the check to set, or, if they have no status, to remove; all others stand. One without a time is as it is
	// from now on, if that is news. Reach is WorkloadClusterReachable, Allowed is RemediationAllowed, whether they are among them or not.
	Conditions     []metav1.Condition
	Reach, Allowed metav1.Condition
	// Decisions are about Facts.Targets, in the same order.
	Decisions []*Decision
	// Open are those of them about which there is something to decide. All others are about machines that are healthy, and do nothing.
	Open []*Decision
	// Recheck is the first moment at which time alone starts a remediation or changes the grant; zero if it never does. VerdictsUntil is
	// the first one at which time alone changes what is known of a machine.
	Recheck, VerdictsUntil time.Time
	Memory                 Memory
}

// Decision is the part of a plan that is about one machine.
type Decision struct {
	Target  *Target
	Verdict health.Verdict
	// InFlight says that a remediation was begun and is not over.
	InFlight bool
	// Tried says that nothing keeps its remediation from starting, unless no request can be made from the template.
	Tried bool
	// Blockers is everything that keeps a remediation from starting, in the order in which a person would ask. It starts exactly if there
	// are none and none is in flight.
	Blockers []Blocker
	// Step is what is done about the machine, and Conditions are those to set on it or, if they have no status, to remove. The message of a
	// failed health check is made when it is written, in two flavours.
	Step       Step
	Conditions []metav1.Condition
	// AwaitsTurn says that its failure is contradicted, and that it is not its turn.
	AwaitsTurn bool
	// PutOff is what it waits for although it is due; zero if it does not.
	PutOff PutOff
	// Spare is what was found for a remediation that waits for a spare host, or that a spare host lets start; nil if it needs none.
	Spare *Spare
}

// PutOff is why a remediation that is due does not start now, until when at most, and when that is decided again without an event.
type PutOff struct {
	Reason         Reason
	Until, Recheck time.Time
}

// Starts reports whether a remediation of the machine starts now. A machine that nothing blocks and that has none in flight is always
// tried, so this is more than it takes; a decision that was never made starts nothing.
func (decision *Decision) Starts() bool { return decision.Tried && len(decision.Blockers) == 0 }

// Acts reports whether decision begins a remediation, ends one, or marks the machine unhealthy, which was not.
func (decision *Decision) Acts() bool {
	marks := Failed(decision.Target.Machine) == nil && decision.Sets(HealthCheckSucceeded, metav1.ConditionFalse)
	return marks || decision.Starts() || decision.Step == DeleteRequest
}

// Blocker is a rule that keeps a remediation from starting, with its words; of one that is not told they are empty.
type Blocker struct {
	Rule Reason
	rule.Blocker

	unjudged bool
}

// BlockedBy is what blocks decision by that rule; nil if it does not.
func (decision *Decision) BlockedBy(by Reason) *Blocker {
	i := slices.IndexFunc(decision.Blockers, func(blocker Blocker) bool { return blocker.Rule == by })
	if i < 0 {
		return nil
	}
	return &decision.Blockers[i]
}

// Blocked reports whether decision is blocked by that rule.
func (decision *Decision) Blocked(by Reason) bool { return decision.BlockedBy(by) != nil }
