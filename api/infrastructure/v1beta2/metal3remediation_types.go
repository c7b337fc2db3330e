package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemediationType is the kind of remediation of a host.
//
// +kubebuilder:validation:Enum=Reboot
type RemediationType string

// RebootRemediationStrategy powers the host off and on again. CAPM3 and kubemend have no other type.
const RebootRemediationStrategy RemediationType = "Reboot"

// Defaults of a strategy.
const (
	// DefaultRetryLimit is also the minimum.
	DefaultRetryLimit = 1
	// DefaultTimeoutSeconds is ten minutes.
	DefaultTimeoutSeconds = 600
)

// RemediationPhase is the progress of a remediation. It is empty until the first reconcile.
//
// +kubebuilder:validation:Enum=Running;Waiting;Deleting machine;Failed
type RemediationPhase string

const (
	// PhaseRunning lasts until kubemend asks the host to power on.
	PhaseRunning RemediationPhase = "Running"
	// PhaseWaiting means that the host powers on or the node boots. It ends with the remediation, the next attempt or PhaseDeleting.
	PhaseWaiting RemediationPhase = "Waiting"
	// PhaseDeleting means that the last attempt has failed and kubemend has asked the owner of the machine to replace it.
	PhaseDeleting RemediationPhase = "Deleting machine"
	// PhaseFailed means that kubemend cannot remediate the host, such as one that its owner has powered off, or that it was stopped.
	PhaseFailed RemediationPhase = "Failed"
)

// RemediationStrategy says how a host is remediated: in which way, how often, and how long an attempt may take.
type RemediationStrategy struct {
	// type is how the host is remediated. Reboot, the only supported value, powers it off and on again.
	// +optional
	Type RemediationType `json:"type,omitempty"`

	// retryLimit is how many further attempts may follow the first one if the machine stays unhealthy: at least 1, by default 1. After the
	// last attempt kubemend marks the host unhealthy and asks the owner of the machine to replace it.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	RetryLimit int32 `json:"retryLimit,omitempty"`

	// timeoutSeconds is how long each part of an attempt may take, in seconds: at least 100, by default 600. The parts are: until the host
	// is asked to power on, then until it is on, then until the machine is healthy.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=100
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// Metal3RemediationSpec is the desired remediation of a host.
type Metal3RemediationSpec struct {
	// strategy says how to remediate the host of the Machine that owns this object. Without a strategy kubemend does nothing.
	// +optional
	Strategy *RemediationStrategy `json:"strategy,omitempty"`
}

// Metal3RemediationStatus is the observed progress of a Metal3Remediation.
type Metal3RemediationStatus struct {
	// phase is Running (until power on is requested), Waiting (for a healthy node), Deleting machine (its owner replaces it) or Failed.
	// +optional
	Phase RemediationPhase `json:"phase,omitempty"`

	// retryCount is how many attempts have begun after the first one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	RetryCount int32 `json:"retryCount,omitempty"`

	// lastRemediated is when the last attempt began.
	// +optional
	LastRemediated *metav1.Time `json:"lastRemediated,omitempty"`

	// conditions say which steps the current attempt has completed, and why not the others. kubemend adds this field; CAPM3's CRD drops it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// message says in a sentence what kubemend does or waits for. kubemend adds this field; CAPM3's CRD drops it.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	Message string `json:"message,omitempty"`
}

// Metal3Remediation requests a power cycle of the bare-metal host of the Machine that owns it. A MachineHealthCheck creates it from a
// Metal3RemediationTemplate, and deletes it when the machine is healthy again.
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

	// spec is the desired remediation.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.timeoutSeconds) || self.strategy.timeoutSeconds == 0 || self.strategy.timeoutSeconds >= 100",message="min duration is 100 seconds",fieldPath=".strategy.timeoutSeconds"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.type) && self.strategy.type == 'Reboot')",message="is only supported remediation strategy",fieldPath=".strategy.type"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.retryLimit) && self.strategy.retryLimit >= 1)",message="is minimum retrylimit",fieldPath=".strategy.retryLimit"
	Spec Metal3RemediationSpec `json:"spec,omitempty"`

	// status is the observed progress of the remediation.
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
