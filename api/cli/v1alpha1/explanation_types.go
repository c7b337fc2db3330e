package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Explanation is why an object is remediated, or is not.
//
// +kubebuilder:object:root=true
type Explanation struct {
	metav1.TypeMeta `json:",inline"`

	// Subject is what is explained.
	Subject Reference `json:"subject"`
	// Time is the moment for which all of it holds.
	Time metav1.Time `json:"time"`
	// Phase is the answer, Reason why: that of the blocker or finding that counts, of the step of a power cycle, or of what the owner
	// reports.
	Phase  Phase  `json:"phase"`
	Reason string `json:"reason,omitempty"`
	// Message is the answer in a sentence.
	Message string `json:"message"`
	// Facts are what belongs together, such as a machine's cluster, node and host.
	Facts []Fact `json:"facts,omitempty"`
	// Checks are those that select it, the one that acts first.
	Checks []Check `json:"checks,omitempty"`
	// NotSelectedBy are checks that it might be expected to be selected by.
	NotSelectedBy []NotSelected `json:"notSelectedBy,omitempty"`
	// Unread are the kinds of checks that could not be read: some may select it.
	Unread []string `json:"unread,omitempty"`
	// Remediations are those of its host.
	Remediations []HostRemediation `json:"remediations,omitempty"`
	// Owners are what makes the machines of a Cluster, or the subject, if it does.
	Owners []MachineOwner `json:"owners,omitempty"`
	// Capacity is what the capacity of the machine waits for or, of an owner or a Cluster, of its machines that have no Ready node.
	Capacity []Capacity `json:"capacity,omitempty"`
	// Notes are what could not be read, and other remarks, for people.
	Notes []string `json:"notes,omitempty"`
	Next  Step     `json:"next"`
	// Todo is what a user has to do while Next goes on by itself.
	Todo Step `json:"todo,omitzero"`
}

// ExplanationList is the document of several explanations, in the order of the arguments.
//
// +kubebuilder:object:root=true
type ExplanationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Explanation `json:"items"`
}

// Fact is one thing that is known of an object.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// NotSelected is a check that does not select the subject.
type NotSelected struct {
	Reference `json:",inline"`
	// Message is why, for people.
	Message string `json:"message"`
}
