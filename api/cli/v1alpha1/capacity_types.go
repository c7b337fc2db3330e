package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Capacity says what the capacity of one machine waits for, from its deletion or remediation until its replacement has a Ready node.
type Capacity struct {
	// Machine is the machine whose capacity is, or was, missing; absent if its name is not known.
	Machine string `json:"machine,omitempty"`
	// About is the machine that Stage describes: Machine, or its replacement.
	About string `json:"about,omitempty"`
	// Stage is the progress. Back and NotReplaced are final.
	//
	// +kubebuilder:validation:Enum=OwnerActs;Deleting;NoReplacement;WaitingForBootstrapData;NoHostFits;Provisioning;Booting;NodeNotReady;Unread;Back;NotReplaced
	Stage  string `json:"stage"`
	Reason string `json:"reason"`
	// Owner is the controller that creates the replacement.
	Owner       *Reference   `json:"owner,omitempty"`
	Replacement *Replacement `json:"replacement,omitempty"`
	// WaitsFor is the object that has to change.
	WaitsFor *Reference `json:"waitsFor,omitempty"`
	// Since is when this wait began.
	Since *metav1.Time `json:"since,omitempty"`
	// Deadline is when the wait ends in any case, or when a health check counts the new machine as unhealthy.
	Deadline *metav1.Time `json:"deadline,omitempty"`
	Overdue  bool         `json:"overdue"`
	// Hosts say why no BareMetalHost of the namespace fits the new machine.
	Hosts []HostRefusal `json:"hosts,omitempty"`
	// Unread are the kinds that could not be read.
	Unread []string `json:"unread,omitempty"`
	Next   Step     `json:"next,omitzero"`
	// Todo is what a user can do.
	Todo Step `json:"todo,omitzero"`
	// Message is what the capacity waits for, for people.
	Message string `json:"message"`
}

// Replacement is the machine that replaces another.
type Replacement struct {
	Name string `json:"name"`
	// By is how the replacement was found.
	//
	// +kubebuilder:validation:Enum=Recorded;Remembered;SameHost;Alone;ByOrder
	By string `json:"by"`
	// Guess is true if no controller has recorded it: By is not Recorded.
	Guess bool `json:"guess"`
}

// HostRefusal says why a machine does not get a BareMetalHost.
type HostRefusal struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// Message is the reason, for people.
	Message string `json:"message"`
}

// MachineOwner is a controller that creates machines: a MachineDeployment, a MachineSet without one, or a control plane.
type MachineOwner struct {
	Reference `json:",inline"`
	// Replicas is how many machines the owner wants.
	Replicas int `json:"replicas"`
	Machines int `json:"machines"`
	// Ready is how many of these machines have a Ready node.
	Ready int `json:"ready"`
	// RollingOut is true while the owner replaces its machines because their template has changed.
	RollingOut bool `json:"rollingOut"`
}

// MissingCapacity counts, from open RemediationRecords, the remediations of all controllers whose capacity is not back.
type MissingCapacity struct {
	Remediations int `json:"remediations"`
	// Oldest is the one whose target became unhealthy first; absent if there is none.
	Oldest *CapacityWait `json:"oldest,omitempty"`
}

// CapacityWait says what the capacity of a machine, node or host waits for.
type CapacityWait struct {
	Reference `json:",inline"`
	// Due is when the machine, node or host became unhealthy.
	Due metav1.Time `json:"due"`
	// Reason is what the capacity waits for: the reason of the condition CapacityBack of the RemediationRecord.
	Reason string `json:"reason"`
	// Since is when this wait began.
	Since *metav1.Time `json:"since,omitempty"`
	// Message is what the capacity waits for, for people.
	Message string `json:"message,omitempty"`
}
