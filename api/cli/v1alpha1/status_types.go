package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Status is the state of all checks.
//
// +kubebuilder:object:root=true
type Status struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// Time is the moment that the document describes.
	Time     metav1.Time `json:"time"`
	Managers []Manager   `json:"managers"`
	// ManagersUnknown says why there may be others, for people.
	ManagersUnknown string `json:"managersUnknown,omitempty"`
	// Items are the checks, without their targets.
	Items []Check `json:"items"`
	// Unread are the kinds of checks that could not be read, so Items may be incomplete.
	Unread []string `json:"unread,omitempty"`
	// Unreachable are the workload clusters that the manager cannot reach.
	Unreachable []UnreachableCluster `json:"unreachable,omitempty"`
	// CapacityMissing counts all remediations in scope whose capacity is not back, also those that none of the checks requested; absent if
	// RemediationRecords are not installed or none could be read.
	CapacityMissing *MissingCapacity `json:"capacityMissing,omitempty"`
	// Notes say what could not be read, and have other remarks, for people.
	Notes []string `json:"notes,omitempty"`
}

// UnreachableCluster is a workload cluster that the manager cannot reach.
type UnreachableCluster struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Since     metav1.Time `json:"since"`
	Message   string      `json:"message"`
}

// Manager is a manager that runs, or once ran, in a namespace.
type Manager struct {
	Namespace string `json:"namespace"`
	// Holder is the replica that acts, or acted last.
	Holder string `json:"holder,omitempty"`
	Alive  bool   `json:"alive"`
	// Renewed is when it last renewed its lease.
	Renewed *metav1.Time `json:"renewed,omitempty"`
	// Ended is when its lease ended, if it does not act.
	Ended *metav1.Time `json:"ended,omitempty"`
	// Trusted is true if a ServiceAccount of the manager is bound in the namespace of the lease, and its announcement can be parsed.
	Trusted bool `json:"trusted"`
	// Namespaces are those in which the manager has its rights; absent if it has them in all.
	Namespaces []string `json:"namespaces,omitempty"`
	// Version is the version that the manager announces. It is absent, as are the flags, if the manager announces nothing.
	Version string       `json:"version,omitempty"`
	Started *metav1.Time `json:"started,omitempty"`
	// Unclaimed is the flag --unclaimed-machine-health-checks.
	Unclaimed string `json:"unclaimed,omitempty"`
	// WatchNamespace is the flag --namespace.
	WatchNamespace string `json:"watchNamespace,omitempty"`
	// WatchFilter is the flag --watch-filter.
	WatchFilter string `json:"watchFilter,omitempty"`
	// Outside is true if the manager runs in no pod of the cluster.
	Outside bool `json:"outside"`
	// Teardown is true if the manager removes everything that kubemend made, and begins nothing.
	Teardown bool `json:"teardown"`
	// ClockAheadSeconds is how far its clock is ahead of the API server's, in seconds; negative if behind, absent up to 30.
	ClockAheadSeconds int64 `json:"clockAheadSeconds,omitempty"`
	// Kinds are those that it serves or could serve.
	Kinds []ServedKind `json:"kinds,omitempty"`
	// Message is what could not be found out about the manager.
	Message string `json:"message,omitempty"`
}

// ServedKind says whether a manager serves a kind.
type ServedKind struct {
	CRD    string `json:"crd"`
	Served bool   `json:"served"`
	// Reason is why it is not served, as in the metric kubemend_kind_served.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}
