package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// History lists what has happened, oldest first.
//
// +kubebuilder:object:root=true
type History struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []HistoryEntry `json:"items"`
	// ReadErrors say what could not be read.
	ReadErrors []string `json:"readErrors,omitempty"`
}

// HistoryEntry is one event, or one step of a RemediationRecord.
type HistoryEntry struct {
	// Time is when it happened, for the first time if it happened more than once.
	Time metav1.Time `json:"time"`
	// LastTime is when it happened for the last time; absent if it happened once.
	LastTime *metav1.Time `json:"lastTime,omitempty"`
	// Count is how often it happened; absent if once.
	Count  int32     `json:"count,omitempty"`
	Type   EventType `json:"type"`
	Reason string    `json:"reason"`
	Object Reference `json:"object"`
	Source Source    `json:"source"`
	// Reporter is the controller that sent the event.
	Reporter string `json:"reporter,omitempty"`
	Message  string `json:"message,omitempty"`
	// Record is the RemediationRecord that contains the step.
	Record *Reference `json:"record,omitempty"`
}

// EventType is the type of an event.
type EventType string

// The types of events. Somebody should look into a Warning.
const (
	Normal  EventType = "Normal"
	Warning EventType = "Warning"
)

// Source says where an entry of a history comes from.
type Source string

const (
	// SourceEvent is an event of the Kubernetes API, which the API server keeps for an hour by default.
	SourceEvent Source = "Event"
	// SourceRecord is a RemediationRecord, which outlives the object that it is about.
	SourceRecord Source = "Record"
)
