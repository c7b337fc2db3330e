package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemediationType names what is done to a host. The schema of this version lists no values; a rule of the spec does.
type RemediationType string

// RemediationStrategy says what is done, how often and for how long.
type RemediationStrategy struct {
	// type is what is done to the host. Reboot is the only supported value.
	// +optional
	Type RemediationType `json:"type,omitempty"`

	// retryLimit is how many further attempts follow a first one that did not help, at least 1. What is more than an int32
	// holds counts as the largest int32.
	// +optional
	RetryLimit int `json:"retryLimit,omitempty"`

	// timeout is how long an attempt may take until the host is asked to power on, for example 300s or 10m, at least 100s. The same
	// again is given until it is on, and until the machine is healthy. Fractions of a second are dropped.
	// Without it, or if it is shorter than a second, it is ten minutes.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
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
	Phase string `json:"phase,omitempty"`

	// retryCount is how many attempts were begun after the first one.
	// +optional
	RetryCount int `json:"retryCount,omitempty"`

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
// +kubebuilder:deprecatedversion
// +kubebuilder:subresource:status
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
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.timeout) || duration(self.strategy.timeout).getSeconds() == 0 || duration(self.strategy.timeout).getSeconds() >= 100",message="min duration is 100 seconds",fieldPath=".strategy.timeout"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.type) && self.strategy.type == 'Reboot')",message="is only supported remediation strategy",fieldPath=".strategy.type"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.retryLimit) && self.strategy.retryLimit >= 1)",message="is minimum retrylimit",fieldPath=".strategy.retryLimit"
	Spec Metal3RemediationSpec `json:"spec,omitempty"`

	// status is how far it is.
	// +optional
	Status Metal3RemediationStatus `json:"status,omitempty,omitzero"`
}

// Metal3RemediationList is a list of Metal3Remediations.
//
// +kubebuilder:object:root=true
type Metal3RemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Metal3Remediation `json:"items"`
}
