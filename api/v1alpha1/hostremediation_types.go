package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// HostRemediationFinalizer keeps a HostRemediation until kubemend has released its host and removed the taint from its node.
const HostRemediationFinalizer = "kubemend.io/hostremediation"

// Bounds of a HostRemediationStrategy. The minimum of its timeouts is that of a Metal3Remediation.
const (
	// MaxRetryLimit is the maximum of retryLimit.
	MaxRetryLimit = 100
	// MaxTimeoutSeconds is one day.
	MaxTimeoutSeconds = 86400
	// DefaultBootTimeoutSeconds is the shortest boot timeout if bootTimeoutSeconds is not set.
	DefaultBootTimeoutSeconds = 1200
	// MaxDefaultBootTimeoutSeconds is the longest boot timeout if bootTimeoutSeconds is not set.
	MaxDefaultBootTimeoutSeconds = 3600
)

// HostRemediationStrategy says how a host is remediated: in which way, how often, and how long an attempt may take. It is the strategy of a
// Metal3Remediation with upper bounds, with bootTimeoutSeconds, and with a retryLimit that may be 0.
type HostRemediationStrategy struct {
	// type is how the host is remediated. Reboot, the only supported value, powers it off and on again.
	// +optional
	Type infrav1.RemediationType `json:"type,omitempty"`

	// retryLimit is how many further attempts may follow the first one if the machine stays unhealthy: from 0 to 100, by default 1. After
	// the last attempt kubemend marks the host unhealthy and asks the owner of the machine to replace it.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RetryLimit *int32 `json:"retryLimit,omitempty"`

	// timeoutSeconds is how many seconds an attempt may take until power on is requested, then again until the host is on: 100 to 86400, by
	// default 600. A host that was off when asked always has at least 185 to be proven off, and a workload 120 to move.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// bootTimeoutSeconds is how long the machine may take to become healthy once its host is on, in seconds: from 100 to 86400. The default
	// is twice the time that the last boot of the host took by its RemediationRecords, but at least 1200 and at most 3600.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=86400
	BootTimeoutSeconds int32 `json:"bootTimeoutSeconds,omitempty"`
}

// HostRemediationSpec is the desired remediation of a host.
type HostRemediationSpec struct {
	// strategy says how to remediate the host of the Machine that owns this object. Without a strategy kubemend does nothing.
	// +optional
	Strategy *HostRemediationStrategy `json:"strategy,omitempty"`
}

// HostRemediationStatus is the observed progress of a power cycle. No decision depends on it, because `clusterctl move` drops it.
type HostRemediationStatus struct {
	// phase is Running (until the host is asked to power on), Waiting (until the machine is healthy), Deleting machine (the owner was asked
	// to replace the machine) or Failed, as in a Metal3Remediation.
	// +optional
	Phase infrav1.RemediationPhase `json:"phase,omitempty"`

	// step is what kubemend does or waits for within the phase, such as MovingWorkload.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Step string `json:"step,omitempty"`

	// attempt is the number of the current attempt, from 1 to spec.strategy.retryLimit + 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Attempt int32 `json:"attempt,omitempty"`

	// host is the name of the BareMetalHost, in the namespace of this object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`

	// started is when the current attempt began.
	// +optional
	Started *metav1.Time `json:"started,omitempty"`

	// deadline is when the wait in the queue, the steps until power on is requested, power on, or booting times out; empty during a pause.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// blockedUntil is when the power cycle may begin if nothing but time blocks it, such as a window of a RemediationPolicy.
	// +optional
	BlockedUntil *metav1.Time `json:"blockedUntil,omitempty"`

	// conditions say which steps the current attempt has completed, and why not the others.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// message says in a sentence what kubemend does or waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	Message string `json:"message,omitempty"`
}

// HostRemediation requests a power cycle of the bare-metal host of the Machine that owns it, like a Metal3Remediation. Use it where CAPM3
// is installed: CAPM3's controller acts on every Metal3Remediation and cannot be switched off.
//
// `clusterctl move` moves it with the Machine, and waits while a host is kept powered off. For this the CRD needs the label
// clusterctl.cluster.x-k8s.io: clusterctl ignores kinds without it. (Cluster API, clusterctl's getCRDList.)
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

	// spec is the desired remediation.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.timeoutSeconds) || self.strategy.timeoutSeconds == 0 || self.strategy.timeoutSeconds >= 100",message="min duration is 100 seconds",fieldPath=".strategy.timeoutSeconds"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.type) && self.strategy.type == 'Reboot')",message="is only supported remediation strategy",fieldPath=".strategy.type"
	// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || (has(self.strategy.retryLimit) && self.strategy.retryLimit >= 0)",message="minimum retry limit is 0",fieldPath=".strategy.retryLimit"
	Spec HostRemediationSpec `json:"spec,omitempty"`

	// status is the observed progress of the remediation.
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
