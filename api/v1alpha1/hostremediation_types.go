package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// HostRemediationFinalizer keeps a HostRemediation until its host is no longer held off and its node is free again.
const HostRemediationFinalizer = "kubemend.io/hostremediation"

// The limits of a HostRemediationStrategy. The least timeout is that of a Metal3Remediation.
const (
	// MaxRetryLimit is more attempts than anybody waits for.
	MaxRetryLimit = 100
	// MaxTimeoutSeconds is a day.
	MaxTimeoutSeconds = 86400
	// DefaultBootTimeoutSeconds and MaxDefaultBootTimeoutSeconds are the least and the most that a boot has by default.
	DefaultBootTimeoutSeconds    = 1200
	MaxDefaultBootTimeoutSeconds = 3600
)

// HostRemediationStrategy says what is done, how often and for how long. It is that of a Metal3Remediation, with limits, and with a
// retryLimit that may be 0.
type HostRemediationStrategy struct {
	// type is what is done to the host. Reboot is the only supported value.
	// +optional
	Type infrav1.RemediationType `json:"type,omitempty"`

	// retryLimit is how many further attempts follow a first one that did not help. After the last one the host is marked unhealthy and the
	// machine is handed to its owner: with 0, after the first.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RetryLimit *int32 `json:"retryLimit,omitempty"`

	// timeoutSeconds is how long, in seconds, an attempt may take until the host is asked to power on, from 100 to 86400, a day. A host
	// that was off when it was asked has 185 seconds at least, and a workload that moves 120. The same again is given until it is on.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// bootTimeoutSeconds is how long, in seconds, the machine may take to be healthy once its host is on, from 100 to 86400. Without it
	// that is 1200, or twice as long as the last boot of the host has taken by its RemediationRecords if that is more, up to 3600.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=86400
	BootTimeoutSeconds int32 `json:"bootTimeoutSeconds,omitempty"`
}

// HostRemediationSpec is what a HostRemediation asks for.
type HostRemediationSpec struct {
	// strategy is what to do to the host of the machine that owns this object. Without it nothing is done.
	// +optional
	Strategy *HostRemediationStrategy `json:"strategy,omitempty"`
}

// HostRemediationStatus says all about a power cycle: how far it is, on which host, since when and until when. It is
// for users only. After `clusterctl move` it is empty, so nothing is decided by it.
type HostRemediationStatus struct {
	// phase is Running, Waiting, Deleting machine or Failed, as in a Metal3Remediation.
	// +optional
	Phase infrav1.RemediationPhase `json:"phase,omitempty"`

	// step is what is being done or waited for within the phase.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Step string `json:"step,omitempty"`

	// attempt is the number of the present attempt. The first one is 1; the last one is spec.strategy.retryLimit + 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Attempt int32 `json:"attempt,omitempty"`

	// host is the name of the BareMetalHost, which is in the namespace of this object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`

	// started is when the present attempt began.
	// +optional
	Started *metav1.Time `json:"started,omitempty"`

	// deadline is when the present step times out: waiting for the turn, everything until the host is asked to power
	// on, powering on, becoming healthy. During a pause there is none.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// blockedUntil is when time alone ends what the power cycle waits for before it begins.
	// +optional
	BlockedUntil *metav1.Time `json:"blockedUntil,omitempty"`

	// conditions say what has been reached in the present attempt, each with a reason.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// message says in a sentence what is being done or waited for.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	Message string `json:"message,omitempty"`
}

// HostRemediation asks for the power cycle of one bare-metal host, that of the Machine which owns it, as a
// Metal3Remediation does. It is for management clusters where CAPM3 is installed, whose controller acts on every
// Metal3Remediation and has no switch to stop.
//
// clusterctl move takes it along with the Machine that owns it, and waits while it holds a host off, because the CRD has the label
// clusterctl.cluster.x-k8s.io: clusterctl discovers no kind without it. (Cluster API, clusterctl's getCRDList.)
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=hostremediations,scope=Namespaced,categories=cluster-api;kubemend,shortName=hrem
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`,description="The BareMetalHost"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="How far the remediation is"
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`,description="What is being done or waited for"
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.status.attempt`,description="The number of the attempt, from 1"
// +kubebuilder:printcolumn:name="Retry limit",type=integer,JSONPath=`.spec.strategy.retryLimit`,description="How many attempts may follow the first one",priority=1
// +kubebuilder:printcolumn:name="Started",type=date,JSONPath=`.status.started`,description="When the attempt began"
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=`.status.deadline`,description="When the attempt has failed if nothing changes",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,description="What is being done or waited for, as a sentence",priority=1
type HostRemediation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.timeoutSeconds) || self.strategy.timeoutSeconds == 0 || self.strategy.timeoutSeconds >= 100",message="min duration is 100 seconds",fieldPath=".strategy.timeoutSeconds"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.type) && self.strategy.type == 'Reboot')",message="is only supported remediation strategy",fieldPath=".strategy.type"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.retryLimit) && self.strategy.retryLimit >= 0)",message="minimum retry limit is 0",fieldPath=".strategy.retryLimit"
	Spec HostRemediationSpec `json:"spec,omitempty"`

	// status is how far it is.
	// +optional
	Status HostRemediationStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the status, for sigs.k8s.io/cluster-api/util/conditions.
func (r *HostRemediation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the status, for sigs.k8s.io/cluster-api/util/conditions.
func (r *HostRemediation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// HostRemediationList is a list of HostRemediations.
//
// +kubebuilder:object:root=true
type HostRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostRemediation `json:"items"`
}
