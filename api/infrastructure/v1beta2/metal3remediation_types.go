package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemediationType names what is done to a host.
//
// +kubebuilder:validation:Enum=Reboot
type RemediationType string

// RebootRemediationStrategy switches the host off and on again. It is the only one.
const RebootRemediationStrategy RemediationType = "Reboot"

// What a strategy has if it does not say, and the least that it may have.
const (
	// DefaultRetryLimit is also the least.
	DefaultRetryLimit = 1
	// DefaultTimeoutSeconds is ten minutes.
	DefaultTimeoutSeconds = 600
)

// RemediationPhase says how far a remediation is. Empty means that it was not reconciled yet.
//
// +kubebuilder:validation:Enum=Running;Waiting;Deleting machine;Failed
type RemediationPhase string

const (
	// PhaseRunning lasts until the host is to be switched on again.
	PhaseRunning RemediationPhase = "Running"
	// PhaseWaiting is for the host and the node to come back. It ends with the deletion of the remediation, with another
	// attempt or with PhaseDeleting.
	PhaseWaiting RemediationPhase = "Waiting"
	// PhaseDeleting means that no attempt is left and the machine was handed to its owner.
	PhaseDeleting RemediationPhase = "Deleting machine"
	// PhaseFailed means that the host cannot be remediated, for example because its owner has switched it off, or that the remediation was
	// told to stop.
	PhaseFailed RemediationPhase = "Failed"
)

// RemediationStrategy says what is done, how often and for how long.
type RemediationStrategy struct {
	// type is what is done to the host. Reboot is the only supported value.
	// +optional
	Type RemediationType `json:"type,omitempty"`

	// retryLimit is how many further attempts follow a first one that did not help, at least 1. After the last one the
	// host is marked unhealthy and the machine is handed to its owner.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	RetryLimit int32 `json:"retryLimit,omitempty"`

	// timeoutSeconds is how long, in seconds, an attempt may take until the host is asked to power on, at least 100.
	// The same again is given until it is on, and until the machine is healthy.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=100
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// Metal3RemediationSpec is what a Metal3Remediation asks for.
type Metal3RemediationSpec struct {
	// strategy is what to do to the host of the machine that owns this object. Without it nothing is done.
	// +optional
	Strategy *RemediationStrategy `json:"strategy,omitempty"`
}

// Metal3RemediationStatus is how far a Metal3Remediation is.
type Metal3RemediationStatus struct {
	// phase is Running, Waiting, Deleting machine or Failed.
	// +optional
	Phase RemediationPhase `json:"phase,omitempty"`

	// retryCount is how many attempts were begun after the first one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	RetryCount int32 `json:"retryCount,omitempty"`

	// lastRemediated is when the last attempt began.
	// +optional
	LastRemediated *metav1.Time `json:"lastRemediated,omitempty"`

	// conditions say what has been reached in the present attempt, each with a reason. They are not part of CAPM3's kind,
	// whose CRD drops them.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// message says in a sentence what is being done or waited for. It is not part of CAPM3's kind, whose CRD drops it.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	Message string `json:"message,omitempty"`
}

// Metal3Remediation asks for the power cycle of one bare-metal host: that of the Machine which owns it. A
// MachineHealthCheck makes it from a Metal3RemediationTemplate, and deletes it when the machine is healthy again.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metal3remediations,scope=Namespaced,categories=cluster-api,shortName=m3r;m3remediation
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta2","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Retry limit",type=string,JSONPath=`.spec.strategy.retryLimit`,description="How many attempts may follow the first one"
// +kubebuilder:printcolumn:name="Retry count",type=string,JSONPath=`.status.retryCount`,description="How many attempts have followed the first one"
// +kubebuilder:printcolumn:name="Last Remediated",type=string,JSONPath=`.status.lastRemediated`,description="When the last attempt began"
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy.type`,description="What is done to the host"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="How far the remediation is"
type Metal3Remediation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.timeoutSeconds) || self.strategy.timeoutSeconds == 0 || self.strategy.timeoutSeconds >= 100",message="min duration is 100 seconds",fieldPath=".strategy.timeoutSeconds"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.type) && self.strategy.type == 'Reboot')",message="is only supported remediation strategy",fieldPath=".strategy.type"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.retryLimit) && self.strategy.retryLimit >= 1)",message="is minimum retrylimit",fieldPath=".strategy.retryLimit"
	Spec Metal3RemediationSpec `json:"spec,omitempty"`

	// status is how far it is.
	// +optional
	Status Metal3RemediationStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the status, for sigs.k8s.io/cluster-api/util/conditions.
func (r *Metal3Remediation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the status, for sigs.k8s.io/cluster-api/util/conditions.
func (r *Metal3Remediation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// Metal3RemediationList is a list of Metal3Remediations.
//
// +kubebuilder:object:root=true
type Metal3RemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Remediation `json:"items"`
}
