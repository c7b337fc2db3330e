package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Report says how long remediations took, and which hosts and machines need them again and again.
//
// +kubebuilder:object:root=true
type Report struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Time metav1.Time `json:"time"`
	// Since is the start of the period that the report covers; absent if it covers all remediations.
	Since *metav1.Time `json:"since,omitempty"`
	// By is what the remediations are grouped by.
	By []string `json:"by,omitempty"`
	// Total is the sum of all groups.
	Total ReportGroup   `json:"total"`
	Items []ReportGroup `json:"items"`
	// Repeated are the hosts, machines and nodes with RepeatedAtLeast or more remediations within RepeatedWithin, most first.
	Repeated        []RepeatedlyRemediated `json:"repeated"`
	RepeatedAtLeast int                    `json:"repeatedAtLeast"`
	RepeatedWithin  metav1.Duration        `json:"repeatedWithin"`
}

// ReportGroup are the remediations with the same cluster, check or cause.
type ReportGroup struct {
	// Cluster is the common Cluster; absent if the report is not grouped by it, or the records do not have it. So are Check and Cause.
	Cluster *Reference `json:"cluster,omitempty"`
	Check   *Reference `json:"check,omitempty"`
	Cause   string     `json:"cause,omitempty"`
	// Remediations is how many have begun.
	Remediations int `json:"remediations"`
	// Open is how many of them have not ended.
	Open int `json:"open"`
	// Healed, Replaced, Gone and GivenUp count the others by their outcome. Withdrawn ones were cancelled after they had begun.
	Healed    int `json:"healed"`
	Replaced  int `json:"replaced"`
	Gone      int `json:"gone"`
	GivenUp   int `json:"givenUp"`
	Withdrawn int `json:"withdrawn"`
	// NotBegun is how many records are about remediations that did not begin. No other field counts them.
	NotBegun int `json:"notBegun"`
	// TimeToDetect is the time from when a target stopped being healthy until it counted as unhealthy.
	TimeToDetect *DurationSummary `json:"timeToDetect,omitempty"`
	// TimeToBegin is the time from then until its remediation began.
	TimeToBegin *DurationSummary `json:"timeToBegin,omitempty"`
	// TimeToCapacityBack is the time from when the target stopped being healthy until it, or its replacement, was healthy.
	TimeToCapacityBack *DurationSummary `json:"timeToCapacityBack,omitempty"`
}

// DurationSummary summarizes durations.
type DurationSummary struct {
	Count       int `json:"count"`
	MeanSeconds int `json:"meanSeconds"`
	// P95Seconds is the 95th percentile by nearest rank.
	P95Seconds int `json:"p95Seconds"`
	MaxSeconds int `json:"maxSeconds"`
}

// RepeatedlyRemediated is a host, machine or node that was remediated again and again.
type RepeatedlyRemediated struct {
	Reference `json:",inline"`
	// Cluster is the Cluster of its last remediation.
	Cluster   string `json:"cluster,omitempty"`
	HostModel string `json:"hostModel,omitempty"`
	// Remediations is the number of remediations in the report.
	Remediations int `json:"remediations"`
	// Most is the largest number within any period of RepeatedWithin.
	Most int `json:"most"`
	// First and Last are when the first and the last one began.
	First metav1.Time `json:"first"`
	Last  metav1.Time `json:"last"`
	// Causes are the causes of the remediations, the most frequent one first.
	Causes []string `json:"causes,omitempty"`
}
