package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GroupBy says what the targets of a group have in common.
type GroupBy string

const (
	// GroupByCluster groups by the Cluster.
	GroupByCluster GroupBy = "Cluster"
	// GroupByNamespace groups by the namespace.
	GroupByNamespace GroupBy = "Namespace"
	// GroupByFailureDomain groups by the label infrastructure.cluster.x-k8s.io/failure-domain of the BareMetalHost, else by the failure
	// domain of the Machine, else by the label topology.kubernetes.io/zone of the Node.
	GroupByFailureDomain GroupBy = "FailureDomain"
	// GroupByHostLabel groups by a label of the BareMetalHost.
	GroupByHostLabel GroupBy = "HostLabel"
	// GroupByMachineLabel groups by a label of the Machine.
	GroupByMachineLabel GroupBy = "MachineLabel"
)

// PolicyGroupKey is one value that the targets of a group have in common.
//
// +kubebuilder:validation:XValidation:rule="self.key in ['HostLabel', 'MachineLabel'] == has(self.label)",message="is for HostLabel and MachineLabel alone",fieldPath=".label"
type PolicyGroupKey struct {
	// key is what the value is of.
	// +required
	// +kubebuilder:validation:Enum=Cluster;Namespace;FailureDomain;HostLabel;MachineLabel
	Key GroupBy `json:"key"`
	// label is the name of the label, for HostLabel and MachineLabel.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label,omitempty"`
}

// SlowStart says whether the first remediations of a group prove themselves.
type SlowStart string

const (
	// SlowStartEnabled makes them.
	SlowStartEnabled SlowStart = "Enabled"
	// SlowStartDisabled does not.
	SlowStartDisabled SlowStart = "Disabled"
)

// PolicyLimit limits the remediations in each group of targets. A number that is left out does not limit.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxInFlight) || has(self.maxUnavailable) || has(self.maxPerHour) || has(self.slowStart)",message="limits nothing"
type PolicyLimit struct {
	// name is that of the limit in messages, metrics and status.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// groupBy is what the targets of a group have in common. Without it all selected targets are one group. A target that lacks a value is
	// in no group, and not bound by this limit.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	GroupBy []PolicyGroupKey `json:"groupBy,omitempty"`
	// maxInFlight is how many remediations may be under way at once in a group, from when they begin until the capacity of the target is
	// back: a number, or a percentage of the targets of the group, rounded up. With 0, or 0%, none begins.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must be 0 or more"
	MaxInFlight *intstr.IntOrString `json:"maxInFlight,omitempty"`
	// maxUnavailable is how many targets of a group may be unhealthy, or about to be, for a remediation to begin: a number, or a percentage
	// of the targets of the group, rounded up. Where more are, the cause is not the machine, and none begins.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must be 0 or more"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// maxPerHour is how many remediations may begin within any hour in a group.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxPerHour *int32 `json:"maxPerHour,omitempty"`
	// slowStart makes the first remediations of a group prove themselves: at first one may be under way, and each whose capacity has been
	// back for five minutes lets one more be: 1, 2, 4, 8 at once. After one that fails it is one again, and nothing begins for 1 minute,
	// then 2, 4, 8 and 10. Once nothing in the group is unavailable or under way, and when the manager starts, it begins anew. Without it
	// that is Disabled.
	// +optional
	// +kubebuilder:validation:Enum=Enabled;Disabled
	SlowStart SlowStart `json:"slowStart,omitempty"`
}

// WindowAction says what a window does.
type WindowAction string

const (
	// WindowDeny lets no remediation begin within the window.
	WindowDeny WindowAction = "Deny"
	// WindowAllow lets no remediation begin outside of all windows of this action.
	WindowAllow WindowAction = "Allow"
)

// WindowScope says which targets a window is for.
type WindowScope string

const (
	// WindowAll is for all selected targets.
	WindowAll WindowScope = "All"
	// WindowLiveNodes is for those whose node reports: its condition Ready is True or False. To remediate them costs workload that runs.
	WindowLiveNodes WindowScope = "LiveNodes"
)

// PolicyWindow is a time that comes again and again.
type PolicyWindow struct {
	// action is what the window does. Deny goes before Allow.
	// +required
	// +kubebuilder:validation:Enum=Deny;Allow
	Action WindowAction `json:"action"`
	// schedule is when a window opens, in the five fields of cron: minute, hour, day and month, and day of the week.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`
	// timeZone is that of the schedule, by its name in the IANA database, such as Europe/Berlin. Without it that is Etc/UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// durationSeconds is for how long a window is open, in seconds of real time, also over a change of clocks: from a minute to a week.
	// +required
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	DurationSeconds int32 `json:"durationSeconds"`
	// scope is which targets it is for. Without it that is All.
	// +optional
	// +kubebuilder:validation:Enum=All;LiveNodes
	Scope WindowScope `json:"scope,omitempty"`
}

// Signal is what others say of a node or its Cluster.
type Signal string

const (
	// SignalNodeMaintenance is that the node has the condition MaintenanceInProgress or DrainInProgress, or the taint medik8s.io/drain.
	SignalNodeMaintenance Signal = "NodeMaintenance"
	// SignalNodeShutdown is that the node has the condition GracefulNodeShutdownInProgress, for ten minutes since it turned.
	SignalNodeShutdown Signal = "NodeShutdown"
	// SignalAutoscalerScaleDown is that the node has the taint ToBeDeletedByClusterAutoscaler, for half an hour after the time in it.
	SignalAutoscalerScaleDown Signal = "AutoscalerScaleDown"
	// SignalClusterRollout is that the Cluster has the condition RollingOut.
	SignalClusterRollout Signal = "ClusterRollout"
)

// PolicySelector selects targets. Those are selected that match all parts that are given.
type PolicySelector struct {
	// kinds are those of the checks. A power cycle is of the kind of its request if no check of kubemend asked for it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=MachineHealthCheck;NodeHealthCheck;HostRemediation;Metal3Remediation
	Kinds []string `json:"kinds,omitempty"`
	// namespaces selects by the labels of the Namespace. It is for policies in the manager's own namespace alone.
	// +optional
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	// clusters selects by the labels of the Cluster. A node without a Machine has no Cluster, and no Namespace.
	// +optional
	Clusters *metav1.LabelSelector `json:"clusters,omitempty"`
	// checks selects by the labels of the MachineHealthCheck or NodeHealthCheck.
	// +optional
	Checks *metav1.LabelSelector `json:"checks,omitempty"`
	// targets selects by the labels of the Machine; of the Node if it has none.
	// +optional
	Targets *metav1.LabelSelector `json:"targets,omitempty"`
}

// PolicyWaitForSpare makes remediations wait for a spare host.
type PolicyWaitForSpare struct {
	// timeoutSeconds is how long after a machine became unhealthy its remediation waits at most.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// PolicyMode says whether kubemend acts on checks.
type PolicyMode string

const (
	// PolicyActs has kubemend claim the MachineHealthChecks, also those that are made later, and act in place of Cluster API core.
	PolicyActs PolicyMode = "Act"
	// PolicyObserves lets no check of kubemend's begin a remediation, and has it release what PolicyActs had it claim. It goes before
	// PolicyActs.
	PolicyObserves PolicyMode = "Observe"
)

// RemediationPolicySpec is whether and when remediations may begin.
//
// +kubebuilder:validation:XValidation:rule="has(self.limits) || has(self.windows) || has(self.blockWhile) || has(self.waitForSpare) || has(self.mode)",message="set limits, windows, blockWhile, waitForSpare or mode"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || !has(self.selector.targets)",message="a check is claimed whole: a policy with mode selects no targets",fieldPath=".selector.targets"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Act' || has(self.selector.namespaces) || has(self.selector.clusters) || has(self.selector.checks)",message="would claim everything: with mode Act select namespaces, clusters or checks",fieldPath=".selector"
type RemediationPolicySpec struct {
	// selector selects the targets that the policy is for: the machines and nodes of checks on which kubemend acts, and the machines of power
	// cycles that other checks ask for. {} selects all that are in its reach: of all namespaces, and all nodes, for a policy in the manager's
	// own namespace (--policy-namespace), else of its own namespace.
	// +required
	Selector PolicySelector `json:"selector"`
	// limits are how many remediations may be under way. All of them apply.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Limits []PolicyLimit `json:"limits,omitempty"`
	// windows are when remediations may begin. What has begun goes on.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []PolicyWindow `json:"windows,omitempty"`
	// blockWhile are the signals of others while which no remediation begins. Where no policy of the manager's own namespace has it, that
	// is NodeMaintenance, NodeShutdown and AutoscalerScaleDown; with it, what these policies list together. A policy in another namespace
	// adds to that.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=NodeMaintenance;NodeShutdown;AutoscalerScaleDown;ClusterRollout
	BlockWhile []Signal `json:"blockWhile,omitzero"`
	// waitForSpare makes the remediation of a machine on bare metal by its owner, where the check has no template, wait while no free host
	// fits its replacement. Of several policies the longest wait counts.
	// +optional
	WaitForSpare *PolicyWaitForSpare `json:"waitForSpare,omitempty"`
	// mode is whether kubemend acts on the selected checks. Act claims each MachineHealthCheck, by the annotation
	// cluster.x-k8s.io/paused: kubemend, and releases it when no policy asks for that any more. With Observe checks begin no remediation,
	// whatever other policies say; power cycles that Cluster API core asks for go on. Without a mode the policy says nothing about that.
	// +optional
	// +kubebuilder:validation:Enum=Act;Observe
	Mode PolicyMode `json:"mode,omitempty"`
}

// Conditions of a RemediationPolicy, and their reasons.
const (
	// PolicyValid is False while a field cannot be read. Its message names the field.
	PolicyValid = "Valid"
	// PolicyGrouped is False while selected targets are in no group of a limit, which does not bind them.
	PolicyGrouped = "Grouped"

	PolicyReadReason          = "Read"                // Valid=True: all of it applies
	InvalidPolicyReason       = "InvalidField"        // Valid=False: no selected target is remediated
	InvalidPolicyTargets      = "InvalidSelector"     // Valid=False: it selects nothing
	AllGroupedReason          = "AllGrouped"          // Grouped=True: each limit binds all selected targets
	TargetsWithoutGroupReason = "TargetsWithoutGroup" // Grouped=False: some lack a value by which a limit groups
)

// PolicySelected is how much a policy selects.
type PolicySelected struct {
	// checks and targets are how many it selects.
	Checks  int32 `json:"checks"`
	Targets int32 `json:"targets"`
	// ungrouped is how many of the targets are in no group of some limit.
	// +optional
	Ungrouped int32 `json:"ungrouped,omitempty"`
}

// PolicyGroup is a group of targets in which something is not idle.
type PolicyGroup struct {
	// limit is the name of the limit, group are the values that its targets have in common; empty for all that are selected.
	// +kubebuilder:validation:MaxLength=63
	Limit string `json:"limit"`
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Group string `json:"group,omitempty"`
	// targets is how many can be judged; unavailable how many of them are unhealthy, or about to be; inFlight how many remediations are
	// under way; waiting how many are due.
	Targets     int32 `json:"targets"`
	Unavailable int32 `json:"unavailable"`
	InFlight    int32 `json:"inFlight"`
	Waiting     int32 `json:"waiting"`
	// reason is why those that wait do, if it is this limit.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
}

// RemediationPolicyStatus is what a policy does now.
type RemediationPolicyStatus struct {
	// observedGeneration is that of the spec which the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// selected is how much the policy selects.
	// +optional
	Selected PolicySelected `json:"selected,omitempty,omitzero"`
	// inFlight and waiting are how many remediations of selected targets are under way, and wait for this policy.
	// +optional
	InFlight int32 `json:"inFlight,omitempty"`
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
	// groups are those that are not idle; those first in which most wait.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Groups []PolicyGroup `json:"groups,omitempty"`
	// conditions are Valid and Grouped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RemediationPolicy says whether and when the remediations of many checks and clusters may begin. All policies that select a target apply;
// the strictest wins.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=remediationpolicies,scope=Namespaced,categories=kubemend,shortName=rpol
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.selected.targets`,description="How many targets it selects"
// +kubebuilder:printcolumn:name="In flight",type=integer,JSONPath=`.status.inFlight`,description="How many remediations are under way"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`,description="How many wait for it"
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`,description="Whether it can be read"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RemediationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is whether and when remediations may begin.
	// +required
	Spec RemediationPolicySpec `json:"spec"`
	// status is what the policy does now.
	// +optional
	Status RemediationPolicyStatus `json:"status,omitempty,omitzero"`
}

// RemediationPolicyList is a list of RemediationPolicies.
//
// +kubebuilder:object:root=true
type RemediationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RemediationPolicy `json:"items"`
}
