package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Report is how remediations went: how long they took, which hosts and machines need them again and again, and which checks were short-circuited.
//
// +kubebuilder:object:root=true
type Report struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// Time is when the report was made, Since from when on remediations count; absent if all do.
	Time  metav1.Time  `json:"time"`
	Since *metav1.Time `json:"since,omitempty"`
	// By is what the remediations are divided by.
	By []string `json:"by,omitempty"`
	// Total are all remediations, Items those of each group.
	Total ReportGroup   `json:"total"`
	Items []ReportGroup `json:"items"`
	// Repeated are the hosts, machines and nodes that were remediated most often: at least RepeatedAtLeast times within RepeatedWithin.
	Repeated        []RepeatedlyRemediated `json:"repeated"`
	RepeatedAtLeast int                    `json:"repeatedAtLeast"`
	RepeatedWithin  metav1.Duration        `json:"repeatedWithin"`
	// ShortCircuits are those of checks, as far as conditions and events know them.
	ShortCircuits []ShortCircuit `json:"shortCircuits"`
	// Observed is how many records with mode Observed were left out: `kubectl mend report shadow` is about those.
	Observed int `json:"observed"`
	// ReadErrors are what could not be read.
	ReadErrors []string `json:"readErrors,omitempty"`
}

// ReportGroup are the remediations that have the same cluster, check, cause, host model or failure domain.
type ReportGroup struct {
	// Cluster, Check, Cause, HostModel and FailureDomain are what the remediations of the group share; absent if the report is not divided by it, or if the
	// records do not know it.
	Cluster       *Reference `json:"cluster,omitempty"`
	Check         *Reference `json:"check,omitempty"`
	Cause         string     `json:"cause,omitempty"`
	HostModel     string     `json:"hostModel,omitempty"`
	FailureDomain string     `json:"failureDomain,omitempty"`
	// Remediations are how many there were; Open of them have not ended.
	Remediations int `json:"remediations"`
	Open         int `json:"open"`
	// Healed, Replaced, Gone, GivenUp and Withdrawn are how the others have ended: Withdrawn were cancelled after they had begun.
	Healed    int `json:"healed"`
	Replaced  int `json:"replaced"`
	Gone      int `json:"gone"`
	GivenUp   int `json:"givenUp"`
	Withdrawn int `json:"withdrawn"`
	// NotBegun are records of remediations that did not begin. They count nowhere else.
	NotBegun int `json:"notBegun"`
	// TimeToDetect is from when a target stopped being healthy until it counted as unhealthy, TimeToBegin from then until its remediation began.
	TimeToDetect *DurationSummary `json:"timeToDetect,omitempty"`
	TimeToBegin  *DurationSummary `json:"timeToBegin,omitempty"`
	// TimeToRepair is from when the remediation began until capacity was back, TimeToCapacityBack from when the target stopped being healthy until then.
	TimeToRepair       *DurationSummary `json:"timeToRepair,omitempty"`
	TimeToCapacityBack *DurationSummary `json:"timeToCapacityBack,omitempty"`
}

// DurationSummary sums up durations.
type DurationSummary struct {
	// Count is how many durations are known.
	Count int `json:"count"`
	// MeanSeconds is their arithmetic mean, P95Seconds the 95th percentile by nearest rank, MaxSeconds the longest of them.
	MeanSeconds int `json:"meanSeconds"`
	P95Seconds  int `json:"p95Seconds"`
	MaxSeconds  int `json:"maxSeconds"`
}

// RepeatedlyRemediated is a host, machine or node that was remediated again and again.
type RepeatedlyRemediated struct {
	Reference `json:",inline"`
	// Cluster is that of its last remediation.
	Cluster string `json:"cluster,omitempty"`
	// HostModel is that of a host.
	HostModel string `json:"hostModel,omitempty"`
	// Remediations are all of the report, Most how many were within the window.
	Remediations int `json:"remediations"`
	Most         int `json:"most"`
	// First and Last are when the first and the last of all began.
	First metav1.Time `json:"first"`
	Last  metav1.Time `json:"last"`
	// Causes are those of the remediations, the most frequent one first.
	Causes []string `json:"causes,omitempty"`
}

// ShortCircuit is a time during which a check began no remediations, since too many of its targets were not healthy, or since its limits could not be used.
type ShortCircuit struct {
	Check   Reference `json:"check"`
	Cluster string    `json:"cluster,omitempty"`
	// Reason is that of the condition RemediationAllowed; absent of what events alone know.
	Reason string `json:"reason,omitempty"`
	// Begin is when it began, End when it ended; absent while it goes on.
	Begin metav1.Time  `json:"begin"`
	End   *metav1.Time `json:"end,omitempty"`
	// Seconds is how long it was within the time of the report.
	Seconds int `json:"seconds"`
	// Source is where it is known from: a condition, or events.
	Source Source `json:"source"`
}

// ShadowReport is what kubemend would have done with the targets of checks that it observes, beside what was done.
//
// +kubebuilder:object:root=true
type ShadowReport struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// Time is when the report was made, Since from when on records count; absent if all do.
	Time  metav1.Time  `json:"time"`
	Since *metav1.Time `json:"since,omitempty"`
	// Both, OnlyKubemend, OnlyOthers, HealedBefore and HealedAfter are how many of Items are of that comparison, Unknown how many of none.
	Both         int `json:"both"`
	OnlyKubemend int `json:"onlyKubemend"`
	OnlyOthers   int `json:"onlyOthers"`
	HealedBefore int `json:"healedBefore"`
	HealedAfter  int `json:"healedAfter"`
	Unknown      int `json:"unknown"`
	// OthersLater sums up how much later others began than kubemend would have, OthersEarlier how much earlier; both of those that both began.
	OthersLater   *DurationSummary `json:"othersLater,omitempty"`
	OthersEarlier *DurationSummary `json:"othersEarlier,omitempty"`
	Items         []Shadow         `json:"items"`
	// ReadErrors are what could not be read.
	ReadErrors []string `json:"readErrors,omitempty"`
}

// Shadow is one failure: what kubemend would have done, beside what was done.
type Shadow struct {
	// Record is the RemediationRecord with mode Observed.
	Record     Reference  `json:"record"`
	Comparison Comparison `json:"comparison"`
	Target     Reference  `json:"target"`
	Cluster    string     `json:"cluster,omitempty"`
	Check      *Reference `json:"check,omitempty"`
	Cause      string     `json:"cause,omitempty"`
	// UnhealthySince is when the target stopped being healthy.
	UnhealthySince *metav1.Time `json:"unhealthySince,omitempty"`
	// WouldBegin is when kubemend would have begun; absent if it would not have, and then BlockedBy is why.
	WouldBegin *metav1.Time `json:"wouldBegin,omitempty"`
	BlockedBy  string       `json:"blockedBy,omitempty"`
	// Begun is when others began, and BegunBy which of them.
	Begun   *metav1.Time `json:"begun,omitempty"`
	BegunBy string       `json:"begunBy,omitempty"`
	// DifferenceSeconds is how much later others began than kubemend would have; negative if earlier.
	DifferenceSeconds *int `json:"differenceSeconds,omitempty"`
	// CapacityBack is when the target, or the one in its place, was healthy.
	CapacityBack *metav1.Time `json:"capacityBack,omitempty"`
	// Outcome is how it has ended; absent while it goes on.
	Outcome string `json:"outcome,omitempty"`
}

// Comparison is what kubemend would have done, beside what was done.
type Comparison string

const (
	// BothBegin says: kubemend would have begun, and others did.
	BothBegin Comparison = "Both"
	// OnlyKubemendBegins says: kubemend would have begun, others did not, and the target has not healed by itself, or not yet.
	OnlyKubemendBegins Comparison = "OnlyKubemend"
	// OnlyOthersBegin says: others began, and kubemend would not have.
	OnlyOthersBegin Comparison = "OnlyOthers"
	// HealedBeforeKubemend says: the target healed by itself before kubemend would have begun.
	HealedBeforeKubemend Comparison = "HealedBefore"
	// HealedAfterKubemend says: the target healed by itself after kubemend would have begun.
	HealedAfterKubemend Comparison = "HealedAfter"
	// NotComparable says: the record does not say how the target went on, or whether others began.
	NotComparable Comparison = "Unknown"
)
