package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// OverrideAction is what an override does.
type OverrideAction string

const (
	// OverrideHold keeps remediations from beginning.
	OverrideHold OverrideAction = "Hold"
	// OverrideAllow replaces the limit of checks by a higher one, or lifts the limits of a policy.
	OverrideAllow OverrideAction = "Allow"
)

// OverrideTarget is the object to which an override applies.
type OverrideTarget struct {
	// kind is the kind of the object, which is in the namespace of the override. Only an override in the policy namespace may name a
	// Namespace, a FailureDomain (its name is the value of the failure domain), or a RemediationPolicy, whose limits Allow lifts.
	// +required
	// +kubebuilder:validation:Enum=Cluster;MachineHealthCheck;MachineDeployment;Machine;BareMetalHost;Namespace;FailureDomain;RemediationPolicy
	Kind string `json:"kind"`
	// name is the name of the object, or the failure domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// OverrideAllowance says how many unhealthy targets and how many remediations an override allows.
type OverrideAllowance struct {
	// maxUnhealthy replaces the limit of each check if it is higher: a number, or a percentage of the targets of the check, rounded down.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must be 0 or more"
	MaxUnhealthy intstr.IntOrString `json:"maxUnhealthy"`
	// maxInFlight is how many remediations of all these targets may be in flight at the same time meanwhile: a number, or a percentage,
	// rounded up. It keeps the override from starting the remediation of too many machines at once.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9]?[0-9])%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must be 0 or more"
	MaxInFlight intstr.IntOrString `json:"maxInFlight"`
}

// RemediationOverrideSpec is a temporary exception.
//
// +kubebuilder:validation:XValidation:rule="has(self.allow) == (self.action == 'Allow' && self.targetRef.kind != 'RemediationPolicy')",message="is needed for Allow of a Cluster or a MachineHealthCheck, and for nothing else",fieldPath=".allow"
// +kubebuilder:validation:XValidation:rule="self.action == 'Hold' ? self.targetRef.kind != 'RemediationPolicy' : self.targetRef.kind in ['Cluster', 'MachineHealthCheck', 'RemediationPolicy']",message="Allow is for a Cluster, a MachineHealthCheck or a RemediationPolicy, and Hold for all others and the first two",fieldPath=".targetRef"
type RemediationOverrideSpec struct {
	// targetRef names the object to which the override applies.
	// +required
	TargetRef OverrideTarget `json:"targetRef"`
	// action is Hold, which keeps remediations from beginning, or Allow, which allows more of them.
	// +required
	// +kubebuilder:validation:Enum=Hold;Allow
	Action OverrideAction `json:"action"`
	// allow says how far Allow goes. It is required for Allow of a Cluster or a MachineHealthCheck, and forbidden otherwise.
	// +optional
	Allow *OverrideAllowance `json:"allow,omitempty"`
	// until is when the override ends: at most seven days after its creation. The manager deletes it a day later.
	// +required
	Until metav1.Time `json:"until"`
	// reason is why the override exists, for users who find remediations blocked or allowed by it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason"`
	// by is who asked for the override; kubectl mend fills it in. The audit log of the API server is the proof.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	By string `json:"by,omitempty"`
}

// OverrideActive is a condition of a RemediationOverride: it is True while the override has an effect.
const OverrideActive = "Active"

// Reasons of OverrideActive.
const (
	OverrideActiveReason  = "Active"          // Active=True: it has an effect
	OverrideEndedReason   = "Ended"           // Active=False: its time is over
	OverrideTooLongReason = "TooLong"         // Active=False: it would end later than seven days after it was created
	OverrideReachReason   = "TargetNotInHere" // Active=False: its kind is allowed only in the policy namespace
)

// RemediationOverrideStatus is the current effect of an override.
type RemediationOverrideStatus struct {
	// targets is how many targets the override applies to.
	// +optional
	Targets int32 `json:"targets,omitempty"`
	// blocked is how many remediations wait because of this override.
	// +optional
	Blocked int32 `json:"blocked,omitempty"`
	// conditions has the condition Active.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RemediationOverride is a temporary exception: it keeps remediations from beginning, or allows more of them. Those that have begun go on.
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
	// status is the current effect of the override.
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
