package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GroupBy is what all targets of a group have in common.
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

// PolicyGroupKey is one property that all targets of a group have in common.
//
// +kubebuilder:validation:XValidation:rule="self.key in ['HostLabel', 'MachineLabel'] == has(self.label)",message="is for HostLabel and MachineLabel alone",fieldPath=".label"
type PolicyGroupKey struct {
	// key is the property: the Cluster, the Namespace, the failure domain, or a label of the BareMetalHost or the Machine.
	// +required
	// +kubebuilder:validation:Enum=Cluster;Namespace;FailureDomain;HostLabel;MachineLabel
	Key GroupBy `json:"key"`
	// label is the name of the label. It is required for HostLabel and MachineLabel, and forbidden otherwise.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label,omitempty"`
}

// SlowStart says whether the first remediations of a group must succeed before more may begin.
type SlowStart string

const (
	// SlowStartEnabled begins with one remediation and allows one more for each that succeeds.
	SlowStartEnabled SlowStart = "Enabled"
	// SlowStartDisabled has no such limit.
	SlowStartDisabled SlowStart = "Disabled"
)

// PolicyLimit limits the remediations in each group of targets. A field that is not set does not limit.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxInFlight) || has(self.maxUnavailable) || has(self.maxPerHour) || has(self.slowStart)",message="limits nothing"
type PolicyLimit struct {
	// name is the name of the limit in messages, metrics and status.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// groupBy is what all targets of a group have in common: at most two properties. Without it all selected targets are one group. A
	// target without the value is in no group, and this limit does not apply to it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	GroupBy []PolicyGroupKey `json:"groupBy,omitempty"`
	// maxInFlight is how many remediations of a group may be in flight at the same time. A remediation is in flight from its beginning
	// until the target or its replacement is healthy. It is a number, or a percentage of the group's targets, rounded up; 0 allows none.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must be 0 or more"
	MaxInFlight *intstr.IntOrString `json:"maxInFlight,omitempty"`
	// maxUnavailable is how many targets of a group may be unhealthy or pending for a remediation to begin: a number, or a percentage of
	// the targets of the group, rounded up. If more are, they probably share a cause that no remediation of a single machine ends.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must be 0 or more"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// maxPerHour is how many remediations may begin in a group within any hour.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxPerHour *int32 `json:"maxPerHour,omitempty"`
	// slowStart, if Enabled, lets one remediation of a group be in flight at first, and one more for each whose capacity has been back for
	// five minutes. After a failed remediation the number is one again, and none begins for 1 minute, after further failures for 2, 4, 8,
	// then 10 minutes. It also starts again at one when no target of the group is unavailable or in flight, and when the manager starts. By
	// default Disabled.
	// +optional
	// +kubebuilder:validation:Enum=Enabled;Disabled
	SlowStart SlowStart `json:"slowStart,omitempty"`
}

// WindowAction is what a window does.
type WindowAction string

const (
	// WindowDeny keeps remediations from beginning within the window.
	WindowDeny WindowAction = "Deny"
	// WindowAllow keeps remediations from beginning outside of all windows with this action.
	WindowAllow WindowAction = "Allow"
)

// WindowScope is the set of targets to which a window applies.
type WindowScope string

const (
	// WindowAll means all selected targets.
	WindowAll WindowScope = "All"
	// WindowLiveNodes means targets whose node reports (Ready is True or False). Their remediation disrupts running workload.
	WindowLiveNodes WindowScope = "LiveNodes"
)

// PolicyWindow is a recurring period of time.
type PolicyWindow struct {
	// action is Deny (no remediation begins within the window) or Allow (none begins outside of all windows with Allow). Deny wins.
	// +required
	// +kubebuilder:validation:Enum=Deny;Allow
	Action WindowAction `json:"action"`
	// schedule is when the window opens, in the five fields of cron: minute, hour, day, month, and day of the week.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`
	// timeZone is the time zone of the schedule, by its name in the IANA database, such as Europe/Berlin. The default is Etc/UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// durationSeconds is how long the window stays open, in elapsed seconds, also when clocks change: from 60 to 604800 (a week).
	// +required
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	DurationSeconds int32 `json:"durationSeconds"`
	// scope is the targets to which the window applies: All, or LiveNodes for those whose node still reports. The default is All.
	// +optional
	// +kubebuilder:validation:Enum=All;LiveNodes
	Scope WindowScope `json:"scope,omitempty"`
}

// Signal is something that another program reports about a node or its Cluster.
type Signal string

const (
	// SignalNodeMaintenance means that the node has the condition MaintenanceInProgress or DrainInProgress, or the taint medik8s.io/drain.
	SignalNodeMaintenance Signal = "NodeMaintenance"
	// SignalNodeShutdown means that the node has the condition GracefulNodeShutdownInProgress, for ten minutes after it became True.
	SignalNodeShutdown Signal = "NodeShutdown"
	// SignalAutoscalerScaleDown means that the node has the taint ToBeDeletedByClusterAutoscaler, for 30 minutes after its value.
	SignalAutoscalerScaleDown Signal = "AutoscalerScaleDown"
	// SignalClusterRollout means that the Cluster has the condition RollingOut.
	SignalClusterRollout Signal = "ClusterRollout"
)

// PolicySelector selects the targets that match all given parts.
type PolicySelector struct {
	// kinds are the kinds of the checks. HostRemediation and Metal3Remediation select power cycles that no check of kubemend requested.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=MachineHealthCheck;NodeHealthCheck;HostRemediation;Metal3Remediation
	Kinds []string `json:"kinds,omitempty"`
	// namespaces selects by labels of the Namespace. Only a policy in the manager's own namespace may use it.
	// +optional
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	// clusters selects by labels of the Cluster. It matches no node without a Machine, and neither does namespaces.
	// +optional
	Clusters *metav1.LabelSelector `json:"clusters,omitempty"`
	// checks selects by labels of the MachineHealthCheck or NodeHealthCheck.
	// +optional
	Checks *metav1.LabelSelector `json:"checks,omitempty"`
	// targets selects by labels of the Machine, or of the Node if it has no Machine.
	// +optional
	Targets *metav1.LabelSelector `json:"targets,omitempty"`
}

// PolicyWaitForSpare makes remediations wait for a spare host.
type PolicyWaitForSpare struct {
	// timeoutSeconds is how many seconds a remediation waits at most after its machine became unhealthy: 60 to 86400, by default 3600.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// PolicyMode says whether kubemend acts on checks.
type PolicyMode string

const (
	// PolicyActs makes kubemend claim the selected MachineHealthChecks, also new ones, and act on them in place of Cluster API core.
	PolicyActs PolicyMode = "Act"
	// PolicyObserves keeps checks from beginning remediations, and releases claims by policies. It wins over PolicyActs.
	PolicyObserves PolicyMode = "Observe"
)

// RemediationPolicySpec says whether and when remediations may begin.
//
// +kubebuilder:validation:XValidation:rule="has(self.limits) || has(self.windows) || has(self.blockWhile) || has(self.waitForSpare) || has(self.mode)",message="set limits, windows, blockWhile, waitForSpare or mode"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || !has(self.selector.targets)",message="a check is claimed whole: a policy with mode selects no targets",fieldPath=".selector.targets"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Act' || has(self.selector.namespaces) || has(self.selector.clusters) || has(self.selector.checks)",message="would claim everything: with mode Act select namespaces, clusters or checks",fieldPath=".selector"
type RemediationPolicySpec struct {
	// selector selects the targets to which the policy applies: the machines and nodes of checks on which kubemend acts, and the machines
	// of power cycles that Cluster API core requests. A policy in the manager's own namespace (--policy-namespace) reaches all namespaces
	// and all nodes, another one only its own namespace. {} selects everything in reach.
	// +required
	Selector PolicySelector `json:"selector"`
	// limits say how many remediations may be in flight. All limits apply. At most 8.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Limits []PolicyLimit `json:"limits,omitempty"`
	// windows say when remediations may begin. A remediation that has begun goes on. At most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []PolicyWindow `json:"windows,omitempty"`
	// blockWhile are the signals of other programs that keep remediations from beginning. Without it in any policy of the manager's own
	// namespace, NodeMaintenance, NodeShutdown and AutoscalerScaleDown block; else only the signals that these policies list together. A
	// policy in another namespace adds signals.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=NodeMaintenance;NodeShutdown;AutoscalerScaleDown;ClusterRollout
	BlockWhile []Signal `json:"blockWhile,omitzero"`
	// waitForSpare delays the replacement of a bare-metal machine, where the check has no template, until a free host fits its replacement.
	// If several policies have it, the longest timeout applies.
	// +optional
	WaitForSpare *PolicyWaitForSpare `json:"waitForSpare,omitempty"`
	// mode says whether kubemend acts on the selected checks. Act claims every MachineHealthCheck with the annotation
	// cluster.x-k8s.io/paused: kubemend, and releases it when no policy selects it any more. With Observe in any policy the checks begin no
	// remediation; power cycles that Cluster API core requests go on. Without mode the policy changes nothing about this.
	// +optional
	// +kubebuilder:validation:Enum=Act;Observe
	Mode PolicyMode `json:"mode,omitempty"`
}

// Conditions of a RemediationPolicy, and their reasons.
const (
	// PolicyValid is False while a field is invalid. Its message names the field.
	PolicyValid = "Valid"
	// PolicyGrouped is False while selected targets are in no group of a limit, which therefore does not apply to them.
	PolicyGrouped = "Grouped"

	PolicyReadReason          = "Read"                // Valid=True: all of it applies
	InvalidPolicyReason       = "InvalidField"        // Valid=False: no selected target is remediated
	InvalidPolicyTargets      = "InvalidSelector"     // Valid=False: its selector is invalid, so it selects nothing
	AllGroupedReason          = "AllGrouped"          // Grouped=True: each limit applies to all selected targets
	TargetsWithoutGroupReason = "TargetsWithoutGroup" // Grouped=False: some targets lack a value of `groupBy`
)

// PolicySelected is how much a policy selects.
type PolicySelected struct {
	// checks is how many checks it selects.
	Checks int32 `json:"checks"`
	// targets is how many machines and nodes it selects.
	Targets int32 `json:"targets"`
	// ungrouped is how many of the targets are in no group of some limit.
	// +optional
	Ungrouped int32 `json:"ungrouped,omitempty"`
}

// PolicyGroup is a group of targets in which a target is unavailable, in flight or waiting.
type PolicyGroup struct {
	// limit is the name of the limit.
	// +kubebuilder:validation:MaxLength=63
	Limit string `json:"limit"`
	// group is the values that all targets of the group have in common. It is empty for the group of all selected targets.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Group string `json:"group,omitempty"`
	// targets is how many targets of the group can be judged.
	Targets int32 `json:"targets"`
	// unavailable is how many of them are unhealthy or pending.
	Unavailable int32 `json:"unavailable"`
	// inFlight is how many remediations of the group are in flight.
	InFlight int32 `json:"inFlight"`
	// waiting is how many remediations of the group are due and have not begun.
	Waiting int32 `json:"waiting"`
	// reason is why they wait, if this limit blocks them.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
}

// RemediationPolicyStatus is the current effect of a policy.
type RemediationPolicyStatus struct {
	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// selected is how much the policy selects.
	// +optional
	Selected PolicySelected `json:"selected,omitempty,omitzero"`
	// inFlight is how many remediations of selected targets are in flight.
	// +optional
	InFlight int32 `json:"inFlight,omitempty"`
	// waiting is how many remediations wait because of this policy.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
	// groups are at most 64 groups in which a target is unavailable, in flight or waiting, those with the most waiting first.
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

// RemediationPolicy says whether and when remediations of many checks and clusters may begin. Of several policies the strictest wins.
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

	// spec says whether and when remediations may begin.
	// +required
	Spec RemediationPolicySpec `json:"spec"`
	// status is the current effect of the policy.
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
