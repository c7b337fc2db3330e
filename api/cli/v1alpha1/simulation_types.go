package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Simulation lists the remediations that checks would start while nodes fail, on a virtual clock.
//
// +kubebuilder:object:root=true
type Simulation struct {
	metav1.TypeMeta `json:",inline"`

	// Time is when the simulation begins.
	Time    metav1.Time     `json:"time"`
	Horizon metav1.Duration `json:"horizon"`
	// Targets is how many machines and nodes the simulated checks select.
	Targets int `json:"targets"`
	// Remediated is for how many of them a remediation would start.
	Remediated int `json:"remediated"`
	// Starts are the remediations that would start, in this order.
	Starts []SimulatedStart `json:"starts"`
	// NotStarted are the machines and nodes that fail, or are unhealthy, and are not remediated.
	NotStarted []SimulatedTarget `json:"notStarted,omitempty"`
	// Limits are the results of the limits of each check, at Time and whenever they change.
	Limits []SimulatedLimit `json:"limits"`
	// Assumptions are what the simulation assumes about everything but the checks, for people.
	Assumptions []string `json:"assumptions"`
}

// SimulatedStart is a remediation that starts in a simulation.
type SimulatedStart struct {
	// After is the time since the beginning of the simulation.
	After  metav1.Duration `json:"after"`
	Time   metav1.Time     `json:"time"`
	Target Reference       `json:"target"`
	// Check is the check that remediates Target.
	Check Reference `json:"check"`
	// Action is what the check does, for people.
	Action string `json:"action"`
	// Groups are the limits that count the remediation; absent for a later escalation step, because the remediation is already counted.
	Groups []LimitGroup `json:"groups,omitempty"`
}

// LimitGroup is a group of targets to which a limit of a RemediationPolicy, or of a RemediationOverride with Allow, applies.
type LimitGroup struct {
	Policy Reference `json:"policy"`
	Limit  string    `json:"limit"`
	// Group is the value that all targets have in common; absent for all selected targets.
	Group string `json:"group,omitempty"`
}

// SimulatedTarget is a machine or node that is not remediated in a simulation.
type SimulatedTarget struct {
	Reference `json:",inline"`
	// Check is the check that does not remediate it; absent if no check counts it as unhealthy.
	Check *Reference `json:"check,omitempty"`
	// Reason is the reason of the first blocker.
	Reason string `json:"reason"`
	// Message is what blocks the remediation, for people.
	Message string `json:"message"`
}

// SimulatedLimit is the result of the limits of a check in a simulation, from Time on.
type SimulatedLimit struct {
	// After is the time since the beginning of the simulation.
	After metav1.Duration `json:"after"`
	Time  metav1.Time     `json:"time"`
	Check Reference       `json:"check"`
	// Reason is why the check starts no remediation, or not all of them; absent if nothing limits it.
	Reason string `json:"reason,omitempty"`
	// Message is the result, for people.
	Message string `json:"message"`
}
