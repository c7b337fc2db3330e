package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// OverrideAction says what an override does.
type OverrideAction string

const (
	// OverrideHold lets no remediation begin.
	OverrideHold OverrideAction = "Hold"
	// OverrideAllow lets remediations begin although more targets are unhealthy than the check allows, or lifts the limits of a policy.
	OverrideAllow OverrideAction = "Allow"
)

// OverrideTarget is what an override is about.
type OverrideTarget struct {
	// kind is that of the object, in the namespace of the override. In the policy namespace there are also Namespace, FailureDomain, whose
	// name is its value, and RemediationPolicy, whose limits Allow lifts.
	// +required
	// +kubebuilder:validation:Enum=Cluster;MachineHealthCheck;MachineDeployment;Machine;BareMetalHost;Namespace;FailureDomain;RemediationPolicy
	Kind string `json:"kind"`
	// name is that of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// OverrideAllowance is how far an override that allows goes.
type OverrideAllowance struct {
	// maxUnhealthy stands in place of the limit of each check, while it is higher: a number, or a percentage of its targets, rounded down.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must be 0 or more"
	MaxUnhealthy intstr.IntOrString `json:"maxUnhealthy"`
	// maxInFlight is how many remediations of all that the override is about may be under way at once meanwhile: so many machines do not go
	// at once. It is a number, or a percentage, rounded up.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must be 0 or more"
	MaxInFlight intstr.IntOrString `json:"maxInFlight"`
}

// RemediationOverrideSpec is an exception that ends.
//
// +kubebuilder:validation:XValidation:rule="has(self.allow) == (self.action == 'Allow' && self.targetRef.kind != 'RemediationPolicy')",message="is needed for Allow of a Cluster or a MachineHealthCheck, and for nothing else",fieldPath=".allow"
// +kubebuilder:validation:XValidation:rule="self.action == 'Hold' ? self.targetRef.kind != 'RemediationPolicy' : self.targetRef.kind in ['Cluster', 'MachineHealthCheck', 'RemediationPolicy']",message="Allow is for a Cluster, a MachineHealthCheck or a RemediationPolicy, and Hold for all others and the first two",fieldPath=".targetRef"
type RemediationOverrideSpec struct {
	// targetRef is what the override is about.
	// +required
	TargetRef OverrideTarget `json:"targetRef"`
	// action is what it does.
	// +required
	// +kubebuilder:validation:Enum=Hold;Allow
	Action OverrideAction `json:"action"`
	// allow is how far Allow goes.
	// +optional
	Allow *OverrideAllowance `json:"allow,omitempty"`
	// until is when it ends, at most seven days after it was created. The manager removes it a day later.
	// +required
	Until metav1.Time `json:"until"`
	// reason is why, for those who find remediations held.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason"`
	// by is who asked for it, as kubectl mend fills it in. The audit log of the API server is the proof.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	By string `json:"by,omitempty"`
}

// OverrideActive is the condition of a RemediationOverride that is True while it has an effect.
const OverrideActive = "Active"

// Reasons of OverrideActive.
const (
	OverrideActiveReason  = "Active"          // Active=True: it has an effect
	OverrideEndedReason   = "Ended"           // Active=False: its time is over
	OverrideTooLongReason = "TooLong"         // Active=False: it would end later than seven days after it was created
	OverrideReachReason   = "TargetNotInHere" // Active=False: its target is not in its namespace, which is not the policy namespace
)

// RemediationOverrideStatus is what an override does now.
type RemediationOverrideStatus struct {
	// targets is how many targets it is about, and blocked how many remediations wait that it blocks.
	// +optional
	Targets int32 `json:"targets,omitempty"`
	// +optional
	Blocked int32 `json:"blocked,omitempty"`
	// conditions are Active.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RemediationOverride is an exception that ends by itself: it holds remediations, or allows more of them, for some hours. What has begun
// goes on.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=remediationoverrides,scope=Namespaced,categories=kubemend,shortName=rover
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.action`,description="Hold or Allow"
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.targetRef.kind`,description="The kind of its target"
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`,description="The name of its target"
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`,description="Whether it has an effect"
// +kubebuilder:printcolumn:name="Until",type=string,JSONPath=`.spec.until`,description="When it ends"
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.spec.by`,description="Who asked for it"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`,description="Why"
type RemediationOverride struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the exception.
	// +required
	Spec RemediationOverrideSpec `json:"spec"`
	// status is what it does now.
	// +optional
	Status RemediationOverrideStatus `json:"status,omitempty,omitzero"`
}

// RemediationOverrideList is a list of RemediationOverrides.
//
// +kubebuilder:object:root=true
type RemediationOverrideList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RemediationOverride `json:"items"`
}
