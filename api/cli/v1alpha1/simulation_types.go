package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Simulation is what checks would do, now and later on a virtual clock.
//
// +kubebuilder:object:root=true
type Simulation struct {
	metav1.TypeMeta `json:",inline"`

	// Time is when the simulation begins, Horizon how long it is.
	Time    metav1.Time     `json:"time"`
	Horizon metav1.Duration `json:"horizon"`
	// Assumptions are those about all but the controllers, for people.
	Assumptions []string `json:"assumptions"`
	// Manifest are notes about the manifest, Refused why the API server would refuse it, for people.
	Manifest []string `json:"manifest,omitempty"`
	Refused  []string `json:"refused,omitempty"`
	// Checks are those of the manifest once it is applied, or all if there is none, at Time.
	Checks []Check `json:"checks"`
	// Timeline is what happens, in its order.
	Timeline     []SimulatedEvent       `json:"timeline"`
	Remediations []SimulatedRemediation `json:"remediations"`
	Summary      SimulationSummary      `json:"summary"`
}

// SimulatedEvent is something that happens in a simulation.
type SimulatedEvent struct {
	// After is how long after the beginning.
	After metav1.Duration `json:"after"`
	Time  metav1.Time     `json:"time"`
	Type  EventType       `json:"type"`
	// Reason is that of the event.
	Reason string    `json:"reason"`
	Object Reference `json:"object"`
	// Assumed reports that it is assumed of others, and not done by kubemend.
	Assumed bool   `json:"assumed"`
	Message string `json:"message"`
}

// SimulatedRemediation is a remediation that begins in a simulation.
type SimulatedRemediation struct {
	After metav1.Duration `json:"after"`
	Time  metav1.Time     `json:"time"`
	// Target is the machine or node.
	Target Reference `json:"target"`
	// Request is what was made for it; absent if its owner was asked.
	Request *Reference `json:"request,omitempty"`
}

// SimulationSummary is the sum of a simulation.
type SimulationSummary struct {
	// Begun counts the remediations, AtOnce how many were in progress at most at the same time.
	Begun  int `json:"begun"`
	AtOnce int `json:"atOnce"`
	// Blocked are the times in which checks allowed no remediation.
	Blocked []SimulatedBlock `json:"blocked,omitempty"`
	// NotHealthy are those that are not healthy at the end.
	NotHealthy []SimulatedTarget `json:"notHealthy,omitempty"`
}

// SimulatedBlock is a time in which a check allowed no remediation.
type SimulatedBlock struct {
	Check  Reference `json:"check"`
	Reason string    `json:"reason"`
	// From is how long after the beginning, Until as well; absent if it lasts to the end.
	From  metav1.Duration  `json:"from"`
	Until *metav1.Duration `json:"until,omitempty"`
}

// SimulatedTarget is a machine or node at the end of a simulation.
type SimulatedTarget struct {
	Reference `json:",inline"`
	State     State `json:"state"`
}
