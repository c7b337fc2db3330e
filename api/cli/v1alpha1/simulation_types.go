package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Simulation is which remediations checks would start while nodes fail, on a virtual clock.
//
// +kubebuilder:object:root=true
type Simulation struct {
	metav1.TypeMeta `json:",inline"`

	// Time is when the simulation begins, Horizon how long it is.
	Time    metav1.Time     `json:"time"`
	Horizon metav1.Duration `json:"horizon"`
	// Targets counts the machines and nodes that the simulated checks select, Remediated those of which a remediation would start.
	Targets    int `json:"targets"`
	Remediated int `json:"remediated"`
	// Starts are the remediations that would start, in their order.
	Starts []SimulatedStart `json:"starts"`
	// NotStarted are the machines and nodes that fail, or are unhealthy, and are not remediated.
	NotStarted []SimulatedTarget `json:"notStarted,omitempty"`
	// Limits are what the limits of each check answer, at Time and whenever the answer changes.
	Limits []SimulatedLimit `json:"limits"`
	// Assumptions are what is assumed of all but the checks, for people.
	Assumptions []string `json:"assumptions"`
}

// SimulatedStart is a remediation that starts in a simulation.
type SimulatedStart struct {
	// After is how long after the beginning.
	After metav1.Duration `json:"after"`
	Time  metav1.Time     `json:"time"`
	// Target is the machine or node, Check the check that remediates it.
	Target Reference `json:"target"`
	Check  Reference `json:"check"`
	// Action is what the check does, for people.
	Action string `json:"action"`
	// Groups are those that count it; none of a later step of a remediation, which is counted.
	Groups []LimitGroup `json:"groups,omitempty"`
}

// LimitGroup is a group of targets to which a limit of a RemediationPolicy, or of a RemediationOverride that allows, applies together.
type LimitGroup struct {
	// Group is the values that the targets have in common; empty for all that are selected.
	Policy Reference `json:"policy"`
	Limit  string    `json:"limit"`
	Group  string    `json:"group,omitempty"`
}

// SimulatedTarget is a machine or node that is not remediated in a simulation.
type SimulatedTarget struct {
	Reference `json:",inline"`
	// Check is the check that does not remediate it; absent if none counts it as unhealthy.
	Check *Reference `json:"check,omitempty"`
	// Reason is that of the first blocker, Message what blocks the remediation, for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// SimulatedLimit is what the limits of a check answer in a simulation, from a moment on.
type SimulatedLimit struct {
	// After is how long after the beginning.
	After metav1.Duration `json:"after"`
	Time  metav1.Time     `json:"time"`
	Check Reference       `json:"check"`
	// Reason is why the check starts no remediation, or not all of them; absent if nothing limits it.
	Reason string `json:"reason,omitempty"`
	// Message is the answer, for people.
	Message string `json:"message"`
}
