package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// History is what has happened, oldest first.
//
// +kubebuilder:object:root=true
type History struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []HistoryEntry `json:"items"`
	// ReadErrors are what could not be read.
	ReadErrors []string `json:"readErrors,omitempty"`
}

// HistoryEntry is one thing that has happened.
type HistoryEntry struct {
	// Time is when, of several times the first.
	Time metav1.Time `json:"time"`
	// LastTime is when it happened last, Count how often; both absent if once.
	LastTime *metav1.Time `json:"lastTime,omitempty"`
	Count    int32        `json:"count,omitempty"`
	Type     EventType    `json:"type"`
	// Reason is that of the event, or of the step of the record.
	Reason string    `json:"reason"`
	Object Reference `json:"object"`
	Source Source    `json:"source"`
	// Reporter is the controller that sent the event.
	Reporter string `json:"reporter,omitempty"`
	Message  string `json:"message,omitempty"`
	// Record is the RemediationRecord that an entry is from.
	Record *Reference `json:"record,omitempty"`
}

// EventType is that of events.
type EventType string

const (
	// Normal says: it is as it should be.
	Normal EventType = "Normal"
	// Warning says: it is not.
	Warning EventType = "Warning"
)

// Source is where an entry of a history is from.
type Source string

const (
	// SourceEvent says: an event, which the API server keeps for an hour by default.
	SourceEvent Source = "Event"
	// SourceRecord says: a RemediationRecord, which outlives its objects.
	SourceRecord Source = "Record"
)
