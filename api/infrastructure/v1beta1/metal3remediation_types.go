package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemediationType is the kind of remediation of a host. The schema of this version has no enum; a CEL rule of the spec allows only Reboot.
type RemediationType string

// RemediationStrategy says how a host is remediated: in which way, how often, and how long an attempt may take.
type RemediationStrategy struct {
	// type is how the host is remediated. Reboot, the only supported value, powers it off and on again.
	// +optional
	Type RemediationType `json:"type,omitempty"`

	// retryLimit is how many further attempts may follow the first one if the machine stays unhealthy: at least 1, at most 2147483647.
	// +optional
	RetryLimit int `json:"retryLimit,omitempty"`

	// timeout is how long each part of an attempt may take, for example 300s or 10m: at least 100s, by default 10m. The parts are: until
	// the host is asked to power on, then until it is on, then until the machine is healthy. Fractions of a second are dropped.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
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
	Phase string `json:"phase,omitempty"`

	// retryCount is how many attempts have begun after the first one.
	// +optional
	RetryCount int `json:"retryCount,omitempty"`

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

	// spec is the desired remediation.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.timeout) || duration(self.strategy.timeout).getSeconds() == 0 || duration(self.strategy.timeout).getSeconds() >= 100",message="min duration is 100 seconds",fieldPath=".strategy.timeout"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.type) && self.strategy.type == 'Reboot')",message="is only supported remediation strategy",fieldPath=".strategy.type"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.retryLimit) && self.strategy.retryLimit >= 1)",message="is minimum retrylimit",fieldPath=".strategy.retryLimit"
	Spec Metal3RemediationSpec `json:"spec,omitempty"`

	// status is the observed progress of the remediation.
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
