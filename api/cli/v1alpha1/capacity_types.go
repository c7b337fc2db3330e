package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Capacity is what the capacity of one machine waits for, from the beginning of its deletion or remediation until a machine in its place
// has a Ready node.
type Capacity struct {
	// Machine is the machine that is, or was, lost; absent of one that its owner lacks and whose name is not known, and of a new machine
	// whose predecessor is not known.
	Machine string `json:"machine,omitempty"`
	// About is the machine that the stage is about: that one, or the one that replaces it.
	About string `json:"about,omitempty"`
	// Stage is how far it is. Back and NotReplaced are ends.
	//
	// +kubebuilder:validation:Enum=OwnerActs;Deleting;NoReplacement;WaitingForBootstrapData;NoHostFits;Provisioning;Booting;NodeNotReady;Unread;Back;NotReplaced
	Stage string `json:"stage"`
	// Reason is what is waited for, or how it has ended.
	Reason string `json:"reason"`
	// Owner makes the new machine.
	Owner *Reference `json:"owner,omitempty"`
	// Replacement is the machine that replaces it.
	Replacement *Replacement `json:"replacement,omitempty"`
	// WaitsFor is the object that is waited for.
	WaitsFor *Reference `json:"waitsFor,omitempty"`
	// Since is when that began.
	Since *metav1.Time `json:"since,omitempty"`
	// Deadline is when it ends whatever happens, or when a health check counts the new machine as unhealthy. Overdue reports that it has
	// passed.
	Deadline *metav1.Time `json:"deadline,omitempty"`
	Overdue  bool         `json:"overdue"`
	// Hosts are why none of the BareMetalHosts of the namespace is taken.
	Hosts []HostRefusal `json:"hosts,omitempty"`
	// Unread are the kinds that could not be read.
	Unread []string `json:"unread,omitempty"`
	// Next is what comes next, Todo what a user can do.
	Next Step `json:"next,omitzero"`
	Todo Step `json:"todo,omitzero"`
	// Message is what is waited for, for people.
	Message string `json:"message"`
}

// Replacement is the machine that replaces another.
type Replacement struct {
	Name string `json:"name"`
	// By is how it was found. Guess reports that its owner has not written it down.
	//
	// +kubebuilder:validation:Enum=Recorded;Remembered;SameHost;Alone;ByOrder
	By    string `json:"by"`
	Guess bool   `json:"guess"`
}

// HostRefusal is why a BareMetalHost is not taken for a machine.
type HostRefusal struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// Message is why, for people.
	Message string `json:"message"`
}

// MachineOwner is what makes machines: a MachineDeployment, a MachineSet without one, or a control plane.
type MachineOwner struct {
	Reference `json:",inline"`
	// Replicas is how many machines it is to have, Machines how many it has, Ready how many of these have a Ready node.
	Replicas int `json:"replicas"`
	Machines int `json:"machines"`
	Ready    int `json:"ready"`
	// RollingOut reports that it replaces its machines, since their template has changed.
	RollingOut bool `json:"rollingOut"`
}

// MissingCapacity are remediations that were begun, by kubemend or others, and whose capacity is not back, by open RemediationRecords.
type MissingCapacity struct {
	// Remediations is how many.
	Remediations int `json:"remediations"`
	// Oldest is the one that was due first; absent if there is none.
	Oldest *CapacityWait `json:"oldest,omitempty"`
}

// CapacityWait is what the capacity of a machine, node or host waits for.
type CapacityWait struct {
	Reference `json:",inline"`
	// Due is since when it counts as unhealthy.
	Due metav1.Time `json:"due"`
	// Reason is what is waited for, that of the condition CapacityBack of the RemediationRecord, and Since since when, if that is known.
	Reason string       `json:"reason"`
	Since  *metav1.Time `json:"since,omitempty"`
	// Message is what is waited for, for people.
	Message string `json:"message,omitempty"`
}
