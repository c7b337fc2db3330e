package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Phase is what a check is doing.
type Phase string

const (
	// PhaseDisabled means that something about the check, or other checks, keeps it from working; the condition Disabled says what.
	PhaseDisabled Phase = "Disabled"
	// PhasePaused means that spec.pauseRequests keeps new remediations from starting.
	PhasePaused Phase = "Paused"
	// PhaseRemediating means that at least one node is being remediated.
	PhaseRemediating Phase = "Remediating"
	// PhaseEnabled means that all nodes are healthy, or that nothing can be done about those that are not.
	PhaseEnabled Phase = "Enabled"
)

// UnhealthyCondition calls a node unhealthy once one of its conditions has had a status for a time.
type UnhealthyCondition struct {
	// type is that of the node's condition.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	Type corev1.NodeConditionType `json:"type"`

	// status is that of the node's condition.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	Status corev1.ConditionStatus `json:"status"`

	// duration is how long the condition has to have had the status, such as 300s, 5m or 1h30m.
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('2562047h')",message="duration must be at most 2562047h"
	Duration metav1.Duration `json:"duration"`
}

// EscalatingRemediation is one step of a ladder.
type EscalatingRemediation struct {
	// remediationTemplate is what requests of this step are made from.
	// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) && self.apiVersion != ''",message="apiVersion of the remediation template must be set",fieldPath=".apiVersion"
	// +kubebuilder:validation:XValidation:rule="has(self.kind) && self.kind != ''",message="kind of the remediation template must be set",fieldPath=".kind"
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name of the remediation template must be set",fieldPath=".name"
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == '' || (self.kind.endsWith('Template') && self.kind != 'Template')",message="kind of the remediation template must be the kind of the remediation followed by Template",messageExpression="'kind of the remediation template must be the kind of the remediation followed by Template: found kind %s'.format([self.kind])",fieldPath=".kind"
	RemediationTemplate corev1.ObjectReference `json:"remediationTemplate"`

	// order is when it is this step's turn, ascending. No two steps may have the same.
	Order int `json:"order"`

	// timeout is how long the node may take to become healthy before it is the next step's turn: from 1m to 596523h, which is what the
	// seconds of a lease can hold.
	// ---
	// With so few digits, and so few characters, no number overflows what duration() can read: where it cannot, both rules would fail with
	// an error of their own, whatever else they say. A text that is no duration is the first rule's alone.
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(\\\\.[0-9]+)?h|[0-9]{1,7}(\\\\.[0-9]+)?m|[0-9]{1,9}(\\\\.[0-9]+)?s|[0-9]{1,12}(\\\\.[0-9]+)?(ms|us|µs|ns))+$') && duration(self) <= duration('596523h')",message="timeout must be a duration such as 5m, of at least 1m and at most 596523h"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}(\\\\.[0-9]+)?h|[0-9]{1,7}(\\\\.[0-9]+)?m|[0-9]{1,9}(\\\\.[0-9]+)?s|[0-9]{1,12}(\\\\.[0-9]+)?(ms|us|µs|ns))+$') || duration(self) >= duration('1m')",message="EscalatingRemediation Timeout must be at least one minute",messageExpression="'EscalatingRemediation Timeout must be at least one minute: found timeout %s'.format([self])"
	Timeout metav1.Duration `json:"timeout"`
}

// NodeHealthCheckSpec says which nodes are watched, when they are unhealthy, and what is done then.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minHealthy) || !has(self.maxUnhealthy)",message="minHealthy and maxUnhealthy cannot be specified at the same time"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnhealthy) || !has(self.remediationTemplate) || !has(self.remediationTemplate.kind) || self.remediationTemplate.kind.lowerAscii() != 'machinedeletionremediationtemplate'",message="maxUnhealthy can't be used with MachineDeletionRemediationTemplate",fieldPath=".maxUnhealthy"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnhealthy) || !has(self.escalatingRemediations) || self.escalatingRemediations.all(r, !has(r.remediationTemplate.kind) || r.remediationTemplate.kind.lowerAscii() != 'machinedeletionremediationtemplate')",message="maxUnhealthy can't be used with MachineDeletionRemediationTemplate escalating remediation",fieldPath=".maxUnhealthy"
// +kubebuilder:validation:XValidation:rule="has(self.remediationTemplate) || (has(self.escalatingRemediations) && size(self.escalatingRemediations) > 0)",message="Either RemediationTemplate or at least one EscalatingRemediations must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.remediationTemplate) || !has(self.escalatingRemediations) || size(self.escalatingRemediations) == 0",message="RemediationTemplate and EscalatingRemediations usage is mutual exclusive"
type NodeHealthCheckSpec struct {
	// selector selects the nodes that are watched. An empty one selects all nodes of the cluster.
	// +optional
	Selector metav1.LabelSelector `json:"selector,omitempty"`

	// unhealthyConditions say when a node is unhealthy: as soon as one of them is met.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +listMapKey=status
	// +kubebuilder:default={{type:"Ready",status:"False",duration:"300s"},{type:"Ready",status:"Unknown",duration:"300s"}}
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="unhealthyConditions must not be empty: no node would ever be unhealthy"
	UnhealthyConditions []UnhealthyCondition `json:"unhealthyConditions,omitempty"`

	// minHealthy is how many of the watched nodes have to be healthy for remediation to start: a number, or a percentage that is
	// rounded up. If neither this nor maxUnhealthy is set, it is 51%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="minHealthy must not be negative",messageExpression="'minHealthy must not be negative: %d'.format([self])"
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self <= 2147483647",message="minHealthy must be at most 2147483647"
	MinHealthy *intstr.IntOrString `json:"minHealthy,omitempty"`

	// maxUnhealthy is how many of the watched nodes may be not healthy for remediation to start: a number, or a percentage that is
	// rounded down.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="maxUnhealthy must not be negative",messageExpression="'maxUnhealthy must not be negative: %d'.format([self])"
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self <= 2147483647",message="maxUnhealthy must be at most 2147483647"
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty"`

	// stormCooldownDuration is for how long enough nodes have to have been healthy again, after too few were, before new
	// remediations start. Without it they start at once.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('2562047h')",message="stormCooldownDuration must be at most 2562047h"
	StormCooldownDuration *metav1.Duration `json:"stormCooldownDuration,omitempty"`

	// remediationTemplate is what remediation requests are made from. Either this or escalatingRemediations has to be set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) && self.apiVersion != ''",message="apiVersion of the remediation template must be set",fieldPath=".apiVersion"
	// +kubebuilder:validation:XValidation:rule="has(self.kind) && self.kind != ''",message="kind of the remediation template must be set",fieldPath=".kind"
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name of the remediation template must be set",fieldPath=".name"
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == '' || (self.kind.endsWith('Template') && self.kind != 'Template')",message="kind of the remediation template must be the kind of the remediation followed by Template",messageExpression="'kind of the remediation template must be the kind of the remediation followed by Template: found kind %s'.format([self.kind])",fieldPath=".kind"
	RemediationTemplate *corev1.ObjectReference `json:"remediationTemplate,omitempty"`

	// escalatingRemediations are steps, one after the other until the node is healthy. No two may have the same template, since the
	// requests of the two could not be distinguished.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.order == a.order))",message="EscalatingRemediation Order must be unique",messageExpression="'EscalatingRemediation Order must be unique: found duplicate order %d'.format([self.filter(a, !self.exists_one(b, b.order == a.order))[0].order])"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, [b.remediationTemplate.?apiVersion.orValue(''), b.remediationTemplate.?kind.orValue(''), b.remediationTemplate.?namespace.orValue(''), b.remediationTemplate.?name.orValue('')] == [a.remediationTemplate.?apiVersion.orValue(''), a.remediationTemplate.?kind.orValue(''), a.remediationTemplate.?namespace.orValue(''), a.remediationTemplate.?name.orValue('')]))",message="EscalatingRemediation RemediationTemplate must be unique",messageExpression="self.filter(a, !self.exists_one(b, [b.remediationTemplate.?apiVersion.orValue(''), b.remediationTemplate.?kind.orValue(''), b.remediationTemplate.?namespace.orValue(''), b.remediationTemplate.?name.orValue('')] == [a.remediationTemplate.?apiVersion.orValue(''), a.remediationTemplate.?kind.orValue(''), a.remediationTemplate.?namespace.orValue(''), a.remediationTemplate.?name.orValue('')])).map(a, 'EscalatingRemediation RemediationTemplate must be unique: found %s %s/%s in more than one step'.format([a.remediationTemplate.?kind.orValue(''), a.remediationTemplate.?namespace.orValue(''), a.remediationTemplate.?name.orValue('')]))[0]"
	EscalatingRemediations []EscalatingRemediation `json:"escalatingRemediations,omitempty"`

	// pauseRequests keep new remediations from starting while there is at least one. Each says who asks for it, or why.
	// +optional
	PauseRequests []string `json:"pauseRequests,omitempty"`

	// healthyDelay is for how long a remediated node has to have been healthy before its remediation is over. With a negative value
	// a person has to confirm it, by the annotation remediation.medik8s.io/manually-confirmed-healthy on the node.
	// +optional
	// +kubebuilder:validation:Pattern=`^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="healthyDelay must be at most 2562047h"
	HealthyDelay *metav1.Duration `json:"healthyDelay,omitempty"`
}

// Remediation is one request for a node.
type Remediation struct {
	// resource is the request.
	Resource corev1.ObjectReference `json:"resource"`

	// started is when the request was made.
	Started metav1.Time `json:"started"`

	// timedOut is when the request was given up.
	// +optional
	TimedOut *metav1.Time `json:"timedOut,omitempty"`

	// templateName is the template that the request was made from.
	// +optional
	TemplateName string `json:"templateName,omitempty"`
}

// UnhealthyNode is a node that is unhealthy, or whose remediation is not over.
type UnhealthyNode struct {
	// name is that of the node.
	Name string `json:"name"`

	// remediations are the requests made for it.
	// +optional
	Remediations []Remediation `json:"remediations,omitempty"`

	// conditionsHealthyTimestamp is since when the node has been healthy while its remediation is not over.
	// +optional
	ConditionsHealthyTimestamp *metav1.Time `json:"conditionsHealthyTimestamp,omitempty"`

	// healthyDelayed is true while spec.healthyDelay keeps the remediation from being over: the node is healthy, or, after a remediation
	// that had succeeded, has become unhealthy again in that time.
	// +optional
	HealthyDelayed *bool `json:"healthyDelayed,omitempty"`
}

// NodeHealthCheckStatus says what a check sees and does.
type NodeHealthCheckStatus struct {
	// observedNodes is the number of nodes that the selector selects.
	// +optional
	ObservedNodes *int `json:"observedNodes,omitempty"`

	// healthyNodes is the number of those that no unhealthy condition matches, not even one that is not due yet, and whose
	// remediation, if there was one, is over.
	// +optional
	HealthyNodes *int `json:"healthyNodes,omitempty"`

	// unhealthyNodes are the nodes that are unhealthy, or whose remediation is not over.
	// +optional
	// +listType=map
	// +listMapKey=name
	UnhealthyNodes []UnhealthyNode `json:"unhealthyNodes,omitempty"`

	// inFlightRemediations is not used any more; unhealthyNodes has what it had.
	// +optional
	InFlightRemediations map[string]metav1.Time `json:"inFlightRemediations,omitempty"`

	// conditions are Disabled, StormActive, StormCooldownActive and RemediationAllowed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is Disabled, Paused, Remediating or Enabled.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// reason says why the check is in its phase.
	// +optional
	Reason string `json:"reason,omitempty"`

	// lastUpdateTime is when the status was last written.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
}

// NodeHealthCheck watches nodes of the cluster that it is in, and has those that are unhealthy remediated.
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

	// spec says which nodes are watched, when they are unhealthy, and what is done then.
	// +optional
	Spec NodeHealthCheckSpec `json:"spec,omitempty"`

	// status says what the check sees and does.
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
