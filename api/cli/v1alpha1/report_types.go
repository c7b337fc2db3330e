package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Report is how remediations went: how long they took, and which hosts and machines need them again and again.
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
}

// ReportGroup are the remediations that have the same cluster, check or cause.
type ReportGroup struct {
	// Cluster, Check and Cause are what the remediations of the group share; absent if the report is not divided by it, or if the records
	// do not know it.
	Cluster *Reference `json:"cluster,omitempty"`
	Check   *Reference `json:"check,omitempty"`
	Cause   string     `json:"cause,omitempty"`
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
	// TimeToDetect is from when a target stopped being healthy until it counted as unhealthy, TimeToBegin from then until its remediation
	// began.
	TimeToDetect *DurationSummary `json:"timeToDetect,omitempty"`
	TimeToBegin  *DurationSummary `json:"timeToBegin,omitempty"`
	// TimeToCapacityBack is from when the target stopped being healthy until it, or the one in its place, was healthy.
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
