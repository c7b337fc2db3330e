package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Status is the state of all checks.
//
// +kubebuilder:object:root=true
type Status struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// Time is the moment for which all of it holds.
	Time metav1.Time `json:"time"`
	// Managers are the managers of kubemend, ManagersUnknown why there may be others, for people.
	Managers        []Manager `json:"managers"`
	ManagersUnknown string    `json:"managersUnknown,omitempty"`
	// Items are the checks, without their targets.
	Items []Check `json:"items"`
	// Unread are the kinds of checks that could not be read: there may be more than those.
	Unread []string `json:"unread,omitempty"`
	// Unreachable are the workload clusters that the manager cannot reach.
	Unreachable []UnreachableCluster `json:"unreachable,omitempty"`
	// CapacityMissing is that of all remediations in scope, also of those that none of the checks asked for; absent if RemediationRecords
	// are not installed or none could be read.
	CapacityMissing *MissingCapacity `json:"capacityMissing,omitempty"`
	// Notes are what could not be read, and other remarks, for people.
	Notes []string `json:"notes,omitempty"`
}

// UnreachableCluster is a workload cluster that the manager cannot reach.
type UnreachableCluster struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Since     metav1.Time `json:"since"`
	Message   string      `json:"message"`
}

// Manager is a manager that runs, or once did, in a namespace.
type Manager struct {
	Namespace string `json:"namespace"`
	// Holder is the replica that acts, or acted last.
	Holder string `json:"holder,omitempty"`
	// Alive reports that it acts, Ended when its lease ended if it does not.
	Alive   bool         `json:"alive"`
	Renewed *metav1.Time `json:"renewed,omitempty"`
	Ended   *metav1.Time `json:"ended,omitempty"`
	// Trusted reports that a ServiceAccount of the manager is bound where the lease is, and that its announcement can be read.
	Trusted bool `json:"trusted"`
	// Namespaces are those in which the manager has its rights; absent if in all.
	Namespaces []string `json:"namespaces,omitempty"`
	// Version and the flags are those that the manager announces; absent if it announces nothing.
	Version string       `json:"version,omitempty"`
	Started *metav1.Time `json:"started,omitempty"`
	// Unclaimed is the flag --unclaimed-machine-health-checks, WatchNamespace --namespace, WatchFilter --watch-filter.
	Unclaimed      string `json:"unclaimed,omitempty"`
	WatchNamespace string `json:"watchNamespace,omitempty"`
	WatchFilter    string `json:"watchFilter,omitempty"`
	// Outside reports that the manager runs in no pod of the cluster.
	Outside bool `json:"outside"`
	// Teardown reports that the manager removes all that kubemend made, and begins nothing.
	Teardown bool `json:"teardown"`
	// ClockAheadSeconds is by how many seconds its clock is ahead of that of the API server; less than 0 if it is behind, absent up to 30.
	ClockAheadSeconds int64 `json:"clockAheadSeconds,omitempty"`
	// Kinds are those that it serves, or could.
	Kinds []ServedKind `json:"kinds,omitempty"`
	// Message is what could not be found out about the manager.
	Message string `json:"message,omitempty"`
}

// ServedKind is whether a manager serves a kind.
type ServedKind struct {
	// CRD is the name of the CustomResourceDefinition.
	CRD    string `json:"crd"`
	Served bool   `json:"served"`
	// Reason is why it is not served, as in the metric kubemend_kind_served.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}
