package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Explanation says why an object is remediated or not.
//
// +kubebuilder:object:root=true
type Explanation struct {
	metav1.TypeMeta `json:",inline"`

	Subject Reference `json:"subject"`
	// Time is the moment that the document describes.
	Time  metav1.Time `json:"time"`
	Phase Phase       `json:"phase"`
	// Reason is the reason of the first blocker, of the finding, of the step of a power cycle, or of the answer of the owner.
	Reason string `json:"reason,omitempty"`
	// Message is the answer in a sentence.
	Message string `json:"message"`
	// Facts are related objects and values, such as the cluster, node and host of a machine.
	Facts []Fact `json:"facts,omitempty"`
	// Checks are the checks that select the subject, first the one that acts.
	Checks []Check `json:"checks,omitempty"`
	// NotSelectedBy are checks that a user might expect to select it.
	NotSelectedBy []NotSelected `json:"notSelectedBy,omitempty"`
	// Unread are the kinds of checks that could not be read; some of those checks may select the subject.
	Unread []string `json:"unread,omitempty"`
	// Remediations are those of its host.
	Remediations []HostRemediation `json:"remediations,omitempty"`
	// Owners are the controllers that create the machines of a Cluster, or the subject if it is such a controller.
	Owners []MachineOwner `json:"owners,omitempty"`
	// Capacity says what the capacity of the machine waits for. An owner or a Cluster has an entry for each machine without a Ready node.
	Capacity []Capacity `json:"capacity,omitempty"`
	// Notes say what could not be read, and have other remarks, for people.
	Notes []string `json:"notes,omitempty"`
	Next  Step     `json:"next"`
	// Todo is what a user has to do while Next happens by itself.
	Todo Step `json:"todo,omitzero"`
}

// ExplanationList has several explanations, in the order of the arguments.
//
// +kubebuilder:object:root=true
type ExplanationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Explanation `json:"items"`
}

// Fact is one known property of an object.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// NotSelected is a check that does not select the subject.
type NotSelected struct {
	Reference `json:",inline"`
	// Message is the reason, for people.
	Message string `json:"message"`
}
