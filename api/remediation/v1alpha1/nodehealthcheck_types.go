package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Phase is the state of a check in a word.
type Phase string

const (
	// PhaseDisabled means that the check does nothing; the condition Disabled says why.
	PhaseDisabled Phase = "Disabled"
	// PhasePaused means that an entry of spec.pauseRequests keeps new remediations from starting.
	PhasePaused Phase = "Paused"
	// PhaseRemediating means that at least one node is being remediated.
	PhaseRemediating Phase = "Remediating"
	// PhaseEnabled means that all nodes are healthy, or that the remediation of all unhealthy ones is blocked.
	PhaseEnabled Phase = "Enabled"
)

// UnhealthyCondition makes a node unhealthy once a condition of the node has had a status for some time.
type UnhealthyCondition struct {
	// type is the type of the node's condition, such as Ready.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	Type corev1.NodeConditionType `json:"type"`

	// status is the status of the condition that makes the node unhealthy: "True", "False" or Unknown.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	Status corev1.ConditionStatus `json:"status"`

	// duration is how long the condition must have had the status, such as 300s, 5m or 1h30m; at most 2562047h.
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('2562047h')",message="duration must be at most 2562047h"
	Duration metav1.Duration `json:"duration"`
}

// EscalatingRemediation is one escalation step.
type EscalatingRemediation struct {
	// remediationTemplate names the template of the remediation requests of this step.
	// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) && self.apiVersion != ''",message="apiVersion of the remediation template must be set",fieldPath=".apiVersion"
	// +kubebuilder:validation:XValidation:rule="has(self.kind) && self.kind != ''",message="kind of the remediation template must be set",fieldPath=".kind"
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name of the remediation template must be set",fieldPath=".name"
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == '' || (self.kind.endsWith('Template') && self.kind != 'Template')",message="kind of the remediation template must be the kind of the remediation followed by Template",messageExpression="'kind of the remediation template must be the kind of the remediation followed by Template: found kind %s'.format([self.kind])",fieldPath=".kind"
	RemediationTemplate corev1.ObjectReference `json:"remediationTemplate"`

	// order is the position of this step: steps run in ascending order. It must be unique.
	Order int `json:"order"`

	// timeout is how long the node may take to become healthy before the next step starts: from 1m to 596523h, in at most 20 characters.
	// ---
	// A Lease counts its seconds in 32 bits. The pattern limits digits and characters so that duration() cannot overflow: then both rules
	// would fail with an error of their own instead of their message. The first rule alone refuses a text that is no duration.
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(\\\\.[0-9]+)?h|[0-9]{1,7}(\\\\.[0-9]+)?m|[0-9]{1,9}(\\\\.[0-9]+)?s|[0-9]{1,12}(\\\\.[0-9]+)?(ms|us|µs|ns))+$') && duration(self) <= duration('596523h')",message="timeout must be a duration such as 5m, of at least 1m and at most 596523h"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}(\\\\.[0-9]+)?h|[0-9]{1,7}(\\\\.[0-9]+)?m|[0-9]{1,9}(\\\\.[0-9]+)?s|[0-9]{1,12}(\\\\.[0-9]+)?(ms|us|µs|ns))+$') || duration(self) >= duration('1m')",message="EscalatingRemediation Timeout must be at least one minute",messageExpression="'EscalatingRemediation Timeout must be at least one minute: found timeout %s'.format([self])"
	Timeout metav1.Duration `json:"timeout"`
}

// NodeHealthCheckSpec says which nodes kubemend watches, when they are unhealthy, and how they are remediated.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minHealthy) || !has(self.maxUnhealthy)",message="minHealthy and maxUnhealthy cannot be specified at the same time"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnhealthy) || !has(self.remediationTemplate) || !has(self.remediationTemplate.kind) || self.remediationTemplate.kind.lowerAscii() != 'machinedeletionremediationtemplate'",message="maxUnhealthy can't be used with MachineDeletionRemediationTemplate",fieldPath=".maxUnhealthy"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnhealthy) || !has(self.escalatingRemediations) || self.escalatingRemediations.all(r, !has(r.remediationTemplate.kind) || r.remediationTemplate.kind.lowerAscii() != 'machinedeletionremediationtemplate')",message="maxUnhealthy can't be used with MachineDeletionRemediationTemplate escalating remediation",fieldPath=".maxUnhealthy"
// +kubebuilder:validation:XValidation:rule="has(self.remediationTemplate) || (has(self.escalatingRemediations) && size(self.escalatingRemediations) > 0)",message="Either RemediationTemplate or at least one EscalatingRemediations must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.remediationTemplate) || !has(self.escalatingRemediations) || size(self.escalatingRemediations) == 0",message="RemediationTemplate and EscalatingRemediations usage is mutual exclusive"
type NodeHealthCheckSpec struct {
	// selector selects the nodes to watch. An empty selector selects all nodes of the cluster.
	// +optional
	Selector metav1.LabelSelector `json:"selector,omitempty"`

	// unhealthyConditions say when a node is unhealthy: one match is enough. By default Ready must have been "False" or Unknown for 300s.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +listMapKey=status
	// +kubebuilder:default={{type:"Ready",status:"False",duration:"300s"},{type:"Ready",status:"Unknown",duration:"300s"}}
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="unhealthyConditions must not be empty: no node would ever be unhealthy"
	UnhealthyConditions []UnhealthyCondition `json:"unhealthyConditions,omitempty"`

	// minHealthy is how many of the watched nodes must be healthy for a remediation to start: a number, or a percentage that is rounded up.
	// The default is 51% if maxUnhealthy is not set either. Set only one of the two.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="minHealthy must not be negative",messageExpression="'minHealthy must not be negative: %d'.format([self])"
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self <= 2147483647",message="minHealthy must be at most 2147483647"
	MinHealthy *intstr.IntOrString `json:"minHealthy,omitempty"`

	// maxUnhealthy is how many of the watched nodes may be unhealthy or pending for a remediation to start: a number, or a percentage that
	// is rounded down. Set only one of minHealthy and maxUnhealthy.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="maxUnhealthy must not be negative",messageExpression="'maxUnhealthy must not be negative: %d'.format([self])"
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self <= 2147483647",message="maxUnhealthy must be at most 2147483647"
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty"`

	// stormCooldownDuration is how long enough nodes must have been healthy again, after too many were unhealthy, before new remediations
	// start. By default they start at once. At most 2562047h.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('2562047h')",message="stormCooldownDuration must be at most 2562047h"
	StormCooldownDuration *metav1.Duration `json:"stormCooldownDuration,omitempty"`

	// remediationTemplate names the template of the remediation requests. Set either this or escalatingRemediations.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) && self.apiVersion != ''",message="apiVersion of the remediation template must be set",fieldPath=".apiVersion"
	// +kubebuilder:validation:XValidation:rule="has(self.kind) && self.kind != ''",message="kind of the remediation template must be set",fieldPath=".kind"
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name of the remediation template must be set",fieldPath=".name"
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == '' || (self.kind.endsWith('Template') && self.kind != 'Template')",message="kind of the remediation template must be the kind of the remediation followed by Template",messageExpression="'kind of the remediation template must be the kind of the remediation followed by Template: found kind %s'.format([self.kind])",fieldPath=".kind"
	RemediationTemplate *corev1.ObjectReference `json:"remediationTemplate,omitempty"`

	// escalatingRemediations are steps that run one after the other until the node is healthy; at most 20. Each step needs its own
	// template, because otherwise kubemend could not tell their requests apart.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.order == a.order))",message="EscalatingRemediation Order must be unique",messageExpression="'EscalatingRemediation Order must be unique: found duplicate order %d'.format([self.filter(a, !self.exists_one(b, b.order == a.order))[0].order])"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, [b.remediationTemplate.?apiVersion.orValue(''), b.remediationTemplate.?kind.orValue(''), b.remediationTemplate.?namespace.orValue(''), b.remediationTemplate.?name.orValue('')] == [a.remediationTemplate.?apiVersion.orValue(''), a.remediationTemplate.?kind.orValue(''), a.remediationTemplate.?namespace.orValue(''), a.remediationTemplate.?name.orValue('')]))",message="EscalatingRemediation RemediationTemplate must be unique",messageExpression="self.filter(a, !self.exists_one(b, [b.remediationTemplate.?apiVersion.orValue(''), b.remediationTemplate.?kind.orValue(''), b.remediationTemplate.?namespace.orValue(''), b.remediationTemplate.?name.orValue('')] == [a.remediationTemplate.?apiVersion.orValue(''), a.remediationTemplate.?kind.orValue(''), a.remediationTemplate.?namespace.orValue(''), a.remediationTemplate.?name.orValue('')])).map(a, 'EscalatingRemediation RemediationTemplate must be unique: found %s %s/%s in more than one step'.format([a.remediationTemplate.?kind.orValue(''), a.remediationTemplate.?namespace.orValue(''), a.remediationTemplate.?name.orValue('')]))[0]"
	EscalatingRemediations []EscalatingRemediation `json:"escalatingRemediations,omitempty"`

	// pauseRequests keep new remediations from starting while the list has an entry. An entry says who asked for the pause, or why.
	// +optional
	PauseRequests []string `json:"pauseRequests,omitempty"`

	// healthyDelay is how long a remediated node must have been healthy before kubemend deletes its requests; by default they are deleted
	// at once. A negative value waits until a user sets the annotation remediation.medik8s.io/manually-confirmed-healthy on the node.
	// +optional
	// +kubebuilder:validation:Pattern=`^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="healthyDelay must be at most 2562047h"
	HealthyDelay *metav1.Duration `json:"healthyDelay,omitempty"`
}

// Remediation is one remediation request for a node.
type Remediation struct {
	// resource names the request.
	Resource corev1.ObjectReference `json:"resource"`

	// started is when the request was created. The timeout of its step counts from here.
	Started metav1.Time `json:"started"`

	// timedOut is when kubemend asked the remediator to stop, because the timeout had expired or the request had failed.
	// +optional
	TimedOut *metav1.Time `json:"timedOut,omitempty"`

	// templateName is the template that the request was created from.
	// +optional
	TemplateName string `json:"templateName,omitempty"`
}

// UnhealthyNode is a node that is unhealthy or still has remediation requests.
type UnhealthyNode struct {
	// name is the name of the node.
	Name string `json:"name"`

	// remediations are the remediation requests for the node.
	// +optional
	Remediations []Remediation `json:"remediations,omitempty"`

	// conditionsHealthyTimestamp is when the node became healthy, or was deleted, while it still has requests.
	// +optional
	ConditionsHealthyTimestamp *metav1.Time `json:"conditionsHealthyTimestamp,omitempty"`

	// healthyDelayed is true while spec.healthyDelay keeps the requests of the node: it is healthy, or became unhealthy again during the
	// delay after a remediation that had succeeded.
	// +optional
	HealthyDelayed *bool `json:"healthyDelayed,omitempty"`
}

// NodeHealthCheckStatus is the observed state of a check.
type NodeHealthCheckStatus struct {
	// observedNodes is how many nodes the selector selects.
	// +optional
	ObservedNodes *int `json:"observedNodes,omitempty"`

	// healthyNodes is how many of these nodes match no unhealthyConditions, not even within a duration, and have no remediation request.
	// +optional
	HealthyNodes *int `json:"healthyNodes,omitempty"`

	// unhealthyNodes are the nodes that are unhealthy or still have remediation requests.
	// +optional
	// +listType=map
	// +listMapKey=name
	UnhealthyNodes []UnhealthyNode `json:"unhealthyNodes,omitempty"`

	// inFlightRemediations is no longer used: see unhealthyNodes.
	// +optional
	InFlightRemediations map[string]metav1.Time `json:"inFlightRemediations,omitempty"`

	// conditions are Disabled, StormActive, StormCooldownActive, RemediationAllowed and Effective.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is Disabled, Paused, Remediating or Enabled.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// reason says in a sentence why the check is in its phase.
	// +optional
	Reason string `json:"reason,omitempty"`

	// lastUpdateTime is when the status last changed.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
}

// NodeHealthCheck watches nodes of the cluster that kubemend runs in, and requests the remediation of unhealthy ones.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodehealthchecks,scope=Cluster,shortName=nhc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="What the check is doing"
// +kubebuilder:printcolumn:name="Observed",type=integer,JSONPath=`.status.observedNodes`,description="How many nodes it watches"
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.healthyNodes`,description="How many of them are healthy"
// +kubebuilder:printcolumn:name="Remediating",type=string,JSONPath=`.status.unhealthyNodes[?(@.remediations)].name`,description="The first of the nodes that are being remediated; a column cannot show all"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`,description="Why, and how many nodes are being remediated",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))",optionalOldSelf=true,message="Either RemediationTemplate or at least one EscalatingRemediations must be set",fieldPath=".spec"
type NodeHealthCheck struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which nodes to watch, when they are unhealthy, and how to remediate them.
	// +optional
	Spec NodeHealthCheckSpec `json:"spec,omitempty"`

	// status is the observed state of the check.
	// +optional
	Status NodeHealthCheckStatus `json:"status,omitempty"`
}

// NodeHealthCheckList is a list of NodeHealthChecks.
//
// +kubebuilder:object:root=true
type NodeHealthCheckList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeHealthCheck `json:"items"`
}
