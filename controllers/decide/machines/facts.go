// Package machines decides which machines of a MachineHealthCheck are remediated now, and what keeps the others from it.
//
// Judge and Decide are functions of Facts: they do no I/O and read no clock, and what Decide has to remember goes in with the facts and
// comes out with the plan.
package machines

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Facts is everything that one decision depends on, read once.
type Facts struct {
	Now   time.Time
	About About
	Mode  Mode
	// Claimed says that the check is claimed for kubemend, ActsUnclaimed that kubemend acts on checks that are not.
	Claimed, ActsUnclaimed bool
	Check                  string // its UID
	Policy                 health.Policy
	Cluster                Cluster
	// Reach is the condition WorkloadClusterReachable as of the reconcile before; zero if there was none. Outage is what is known of an outage.
	Reach  Report
	Outage Outage
	// Overlaps are the other checks of the cluster that are not paused.
	Overlaps []Overlap

	// Limits are absolute numbers; Invalid says that the check's limits or its cooldown cannot be read.
	Limits  budget.Limits
	Invalid bool
	// Limited says that more unhealthy machines could forbid to remediate any.
	Limited  bool
	Cooldown *time.Duration // nil: none
	Storm    budget.Storm   // as the status of the check has it

	// Read says which of the facts were read that are read only if a plan needs them. Explains says that a reader wants to know all blockers, of machines too
	// that are not tried now.
	Read     Needs
	Explains bool

	Template Template
	// CyclesUnread is until when no remediation starts for machines on hosts, as it is not known which power cycles are in progress; zero if
	// it is known.
	CyclesUnread time.Time

	// SpareWait is for how long after a machine became unhealthy its owner is not asked to replace it while no spare host fits; nil if the check does not
	// wait for one. Spares are the hosts.
	SpareWait *time.Duration
	Spares    Spares

	// Targets are the machines that the check selects and judges, in the order of their names; they are not changed. Verdicts are those of Judge
	// on them.
	Targets  []*Target
	Verdicts []health.Verdict
	// Skipped are those that their users want left alone.
	Skipped []*Target
	// Counted are the numbers of all targets for a reader that has read some of them; nil for one that has read all.
	Counted *Counted
	Memory  Memory
	// Capacity is what is not back of the remediations that the check has asked for.
	Capacity Capacity
}

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

// Cluster is what the machines of a cluster have in common.
type Cluster struct {
	Paused bool
	// Initialized and InfrastructureReady are gates: before, most machines are not judged. InitializedAt and ReadyAt are since when they are open. A
	// cluster that is not initialized is not asked: its Link is LinkUnsure.
	Initialized, InfrastructureReady bool
	InitializedAt, ReadyAt           time.Time
	Link                             Link
}

// Needs are facts that are read only if a decision depends on them.
type Needs struct {
	// Cycles are the power cycles in progress: they matter while a machine on a host is not healthy.
	Cycles bool
	// Template is the remediation template itself: it matters where a request may be made from it.
	Template bool
	// Spares are the hosts that replacements could take: they matter where an owner would be asked to replace a machine on bare metal.
	Spares bool
}

// Outage is what is known of an outage of a workload cluster.
type Outage struct {
	// Refused is what is wrong with the kubeconfig; empty if it is not the reason.
	Refused string
	// Changed says that another workload cluster answers; empty if none does.
	Changed string
	// Silent says that the API server answers probes and nothing else, Reported that a reader has this from the manager and has not tried the cluster.
	Silent, Reported bool
}

// Overlap is another check of the cluster: Shared is how many targets of this one it selects too, and Older that it acts on them.
type Overlap struct {
	Name   string
	Shared int
	Older  bool
}

// Link is what is known of the connection to a workload cluster.
type Link int

const (
	// LinkUnsure means that an answer is awaited.
	LinkUnsure Link = iota
	// LinkUp means that the nodes can be read.
	LinkUp
	// LinkDown means that the cluster is unreachable.
	LinkDown
)

// Settled reports whether the numbers can be relied on. While an answer of the workload cluster is awaited they stand as they were: all machines
// are unknown then, and at every start of the manager, and at every probe that is lost, that would look like an outage.
func (c Cluster) Settled() bool { return !c.Initialized || c.Link != LinkUnsure }

// Counted are the targets of a check as its status counts them.
type Counted struct{ Total, Healthy int }

// Template is what is known of the remediation template of a check, and of the requests that are made from it.
type Template struct {
	// External says that the check has a template; without one the owners of the machines remediate them.
	External bool
	// Known says that it is known which requests exist, as it always is without a template: to be asked, an owner needs none. While it is not known, none is
	// made. Syncing says that it will be in a moment.
	Known, Syncing bool
	// Kind is that of the requests, TemplateKind and Name are the template's.
	Kind, TemplateKind, Name string
	// Missing says why there is no template, as a clause, and Fix what a person can do about that; empty if there is one. Refused says that it is since
	// the check names what can be no template.
	Missing, Fix string
	Refused      bool
	// Unread says that the reader may not read the template or the requests, which kubemend may.
	Unread bool
}

// Request is how the remediation request of a machine relates to the check.
type Request int

const (
	// NoRequest is that there is none.
	NoRequest Request = iota
	// ForeignRequest is one that another check made, or an unknown maker, or that is for another Machine.
	ForeignRequest
	// AdoptableRequest is one that this check takes over.
	AdoptableRequest
	// OwnRequest is one that this check made.
	OwnRequest
)

// Owner is how far the owner of a machine has got that was asked to remediate it.
type Owner int

const (
	// NotAsked is an owner that was not asked, or that has finished.
	NotAsked Owner = iota
	// Asked is one that was asked.
	Asked
	// CannotRemediate is one that was asked and says that it cannot, or that does not exist.
	CannotRemediate
)

// Cycle is a power cycle of a machine in progress that the check did not request.
type Cycle struct {
	Kind, Name string
	Deleting   bool
	// Until is when it counts as over although it has not ended; zero if it counts for as long as it lasts.
	Until time.Time
}

// Target is what is known of one machine that the check selects.
type Target struct {
	ID   string // tells it from one of the same name that was there before
	Name string
	// Health is what the verdict depends on, as far as it is a matter of the machine and its node. What is a matter of the whole cluster is added when
	// it is judged.
	Health health.Target
	// ControlPlane says that the machine is part of the control plane, Failed that its conditions say that it is unhealthy, and Healthy that
	// they say that it is healthy, and nothing else that a check says. Marked says that a check has set any that are not good.
	ControlPlane, Failed, Healthy, Marked bool

	// FailedSince is since when its conditions say that it is unhealthy; zero if they do not. SpareReport and RemediationReport are the
	// conditions SpareHostAvailable and kubemend.io/Remediation as they are stored.
	FailedSince                    time.Time
	SpareReport, RemediationReport *Report

	// NodeReady says that its node is Ready, or was when Cluster API last saw it, if it cannot be seen.
	NodeReady bool

	Deleting bool
	Updating bool // in place
	OnHost   bool // of bare metal
	Owned    bool // there is an owner that could replace it
	Older    bool // an older check selects it too, and acts on it

	Owner Owner
	// AskedWhileHealthy says that the machine was healthy since its owner was asked, and that the owner has not noticed that yet: it removes the condition
	// then. (MachineSet, KubeadmControlPlane.) No check may mark the machine unhealthy before, unless the owner is to remediate it now: the two
	// conditions together are what owners act on, whatever the limits of the check.
	AskedWhileHealthy bool
	Request           Request
	RequestDeleting   bool
	// Announced says that the machine's conditions announce a request, ProviderReports that its provider may have set them, RequestFailed that they
	// say that none could be made, and TemplateNotFound that this is since there was no template.
	Announced, ProviderReports, RequestFailed, TemplateNotFound bool
	// Unusable says that no request can be made for the machine from the template as it is, UnusableWhy why.
	Unusable    bool
	UnusableWhy string
	Cycle       *Cycle

	// What sentences name, and no decision depends on: the moments from which start-up counts, the owner, what it and the provider report, the older check,
	// the request, and the annotations by which its user wants the machine left alone.
	Created, InfrastructureReady time.Time
	OwnerKind, OwnerName         string
	OwnerReport, ProviderReport  *Report
	OlderCheck                   string
	RequestFacts                 *RequestFacts
	LeftAlone                    []string
}

// Memory is what a decision must know of those before it. A process that has none waits for as long as it would after a change.
type Memory struct {
	// Check is the UID of the check that the decision before was about; empty if there was none.
	Check string
	// NotHealthy is since when machines are not healthy, by Target.ID.
	NotHealthy map[string]time.Time
	// ShortCircuited says that too many machines were not healthy, or too few; Calm is when that ended, as far as this process has seen it.
	ShortCircuited bool
	Calm           time.Time
	// Storm is the one of the decision before. The status of the check has it too, for a process that has no memory.
	Storm budget.Storm
	// Refused is when this process last tried to begin a remediation and could not, by Target.ID.
	Refused map[string]time.Time
}
