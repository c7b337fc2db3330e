package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RecordRemediator is what carries out a remediation.
type RecordRemediator string

const (
	// RemediatedByOwner means that the owner of the Machine replaces it.
	RemediatedByOwner RecordRemediator = "Owner"
	// RemediatedByRequest means that a remediator acts on remediation requests, such as HostRemediations.
	RemediatedByRequest RecordRemediator = "Request"
)

// RecordOutcome is how a remediation has ended.
type RecordOutcome string

const (
	// RecordHealed means that the same machine, or node, is healthy again.
	RecordHealed RecordOutcome = "Healed"
	// RecordReplaced means that another Machine in its place is healthy.
	RecordReplaced RecordOutcome = "Replaced"
	// RecordGone means that the target was deleted and is not replaced, for example because its owner was scaled down.
	RecordGone RecordOutcome = "Gone"
	// RecordGivenUp means that the target is unhealthy and nothing acts on it any more.
	RecordGivenUp RecordOutcome = "GivenUp"
	// RecordCancelled means that the remediation did not begin, or was withdrawn before it had an effect.
	RecordCancelled RecordOutcome = "Cancelled"
)

// Conditions of a RemediationRecord.
const (
	// RecordBegun is True once the remediation has begun: the owner was asked, or a request exists.
	RecordBegun = "Begun"
	// RecordCapacityBack is True once the machine, or its replacement, is healthy. Until then its reason says what the capacity waits for.
	RecordCapacityBack = "CapacityBack"
	// RecordEnded is True once the record is closed. Its reason is the outcome.
	RecordEnded = "Ended"
)

// Bounds of a RemediationRecord. If the list of steps is full, a new step replaces the last one.
const (
	// MaxRecordSteps is the maximal number of steps.
	MaxRecordSteps = 64
	// MaxRecordEvidence is the maximal number of findings.
	MaxRecordEvidence = 16
	// MaxRecordText is the maximal length of a text, in characters.
	MaxRecordText = 512
)

// RecordRef names an object.
type RecordRef struct {
	// apiVersion is the group and version of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is the kind of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace is the namespace of the object. It is empty for kinds without a namespace, and for nodes of workload clusters.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid is the UID of the object, if it is known. It stays the same when `clusterctl move` gives the object another UID.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

// RecordTarget is what is remediated. Unknown fields are empty.
type RecordTarget struct {
	// clusterName is the name of the Cluster. It is empty for nodes of the cluster that kubemend runs in.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName,omitempty"`
	// clusterUID is the UID of the Cluster when the remediation was decided. If the owner reference of the record has another UID,
	// `clusterctl move` has moved the record, and all UIDs in the record are those from before the move.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClusterUID string `json:"clusterUID,omitempty"`
	// machine is the Machine.
	// +optional
	Machine *RecordRef `json:"machine,omitempty"`
	// owner is the controller of the Machine, such as a MachineSet.
	// +optional
	Owner *RecordRef `json:"owner,omitempty"`
	// node is the Node, with its name and UID in its own cluster.
	// +optional
	Node *RecordRef `json:"node,omitempty"`
	// host is the BareMetalHost.
	// +optional
	Host *RecordRef `json:"host,omitempty"`
	// hostModel is the manufacturer and product name of the host, as inspected by the Bare Metal Operator.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	HostModel string `json:"hostModel,omitempty"`
	// failureDomain is the label infrastructure.cluster.x-k8s.io/failure-domain of the BareMetalHost, else the failure domain of the
	// Machine, else the zone of the Node (label topology.kubernetes.io/zone).
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
	// controlPlane is true if the Machine or Node is part of a control plane.
	// +optional
	ControlPlane bool `json:"controlPlane,omitempty"`
}

// RecordRequester is what requested a remediation.
type RecordRequester struct {
	// check is the MachineHealthCheck or NodeHealthCheck. It is empty if no check requested the remediation.
	// +optional
	Check *RecordRef `json:"check,omitempty"`
	// user is the user who requested the remediation with kubectl mend, as the API server knows the name. It is empty if no user did.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	User string `json:"user,omitempty"`
	// reason is the reason that the user gave.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
}

// Times have a pattern in addition to their format: the API server accepts a date-time that metav1.Time cannot parse, such as one with a
// lowercase t, and then no client can decode a list with that record. The type Condition belongs to Kubernetes, so a CEL rule, which parses
// the time as strictly, replaces the pattern there.

// RecordEvidence is one finding that made the target unhealthy.
type RecordEvidence struct {
	// type is the type of the condition, or another finding, such as NodeNotFound.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// status is the status of the condition.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Status string `json:"status,omitempty"`
	// since is the last transition of the condition. The timeout counts from here.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Since *metav1.Time `json:"since,omitempty"`
	// timeoutSeconds is how long the finding must last before the target is unhealthy, in seconds.
	// +optional
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// message is the reason of the condition, or the failure message of another finding.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// RecordCounts are the numbers of the check when the remediation was decided.
type RecordCounts struct {
	// targets is how many machines or nodes the check selects.
	Targets int32 `json:"targets"`
	// healthy is how many of them are healthy.
	Healthy int32 `json:"healthy"`
	// inFlight is how many of them are being remediated.
	InFlight int32 `json:"inFlight"`
	// limit is the maxUnhealthy, unhealthyRange or minHealthy of the check.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Limit string `json:"limit,omitempty"`
}

// RemediationRecordSpec is what was known when the remediation was decided. It never changes.
type RemediationRecordSpec struct {
	// remediator is Owner if the owner of the Machine replaces it, or Request if a remediator acts on remediation requests.
	// +kubebuilder:validation:Enum=Owner;Request
	Remediator RecordRemediator `json:"remediator"`
	// target is what is remediated.
	Target RecordTarget `json:"target"`
	// requester is the check or the user that requested the remediation.
	// +optional
	Requester RecordRequester `json:"requester,omitempty,omitzero"`
	// cause is the first finding, in a word or as condition=status, such as Ready=Unknown. `kubectl mend report` groups by it.
	// +optional
	// +kubebuilder:validation:MaxLength=333
	Cause string `json:"cause,omitempty"`
	// evidence are all findings.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Evidence []RecordEvidence `json:"evidence,omitempty"`
	// unhealthySince is when the target stopped being healthy, if that is known.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	UnhealthySince *metav1.Time `json:"unhealthySince,omitempty"`
	// due is when the target became unhealthy: at unhealthySince plus the timeout.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Due *metav1.Time `json:"due,omitempty"`
	// decided is when the controller decided to begin the remediation.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Decided metav1.Time `json:"decided"`
	// counts are the numbers of the check at that time. They are empty if no check requested the remediation.
	// +optional
	Counts *RecordCounts `json:"counts,omitempty"`
}

// RecordStep is one event of a remediation.
type RecordStep struct {
	// time is when it happened, to the millisecond, because several steps may happen within a second.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Time metav1.MicroTime `json:"time"`
	// reason is what happened, in a word.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message is what happened, in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// object is the object that it happened to, if that is not the target.
	// +optional
	Object *RecordRef `json:"object,omitempty"`
}

// UnmarshalJSON accepts a time with any number of decimals. A MicroTime needs exactly six, but stored steps may have whole seconds, and a
// list cannot be decoded if one of its records cannot: then the controllers that read records would not start.
func (s *RecordStep) UnmarshalJSON(data []byte) error {
	type fields RecordStep
	step := struct {
		*fields

		Time metav1.Time `json:"time"`
	}{fields: (*fields)(s)}
	if err := json.Unmarshal(data, &step); err != nil {
		return err
	}
	s.Time = metav1.NewMicroTime(step.Time.Time)
	return nil
}

// RecordReplacement is the Machine that replaced the target.
type RecordReplacement struct {
	// machine is the new Machine.
	Machine RecordRef `json:"machine"`
	// node is the Node of the new Machine.
	// +optional
	Node *RecordRef `json:"node,omitempty"`
	// host is the BareMetalHost of the new Machine.
	// +optional
	Host *RecordRef `json:"host,omitempty"`
	// guessed is true if no controller has recorded the replacement, so that kubemend had to find it by owner, host and time.
	// +optional
	Guessed bool `json:"guessed,omitempty"`
}

// RemediationRecordStatus is the observed progress of a remediation.
type RemediationRecordStatus struct {
	// attempted is when the controller last tried to begin the remediation. The record is cancelled if it has not begun five minutes later.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Attempted *metav1.Time `json:"attempted,omitempty"`
	// begun is when the remediation began: when the owner was asked, or the first request was created.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Begun *metav1.Time `json:"begun,omitempty"`
	// capacityBack is when the target, or its replacement, was healthy again.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	CapacityBack *metav1.Time `json:"capacityBack,omitempty"`
	// ended is when the record was closed. Nothing changes in the status after that.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Ended *metav1.Time `json:"ended,omitempty"`
	// outcome is Healed, Replaced, Gone, GivenUp or Cancelled. It is empty until the record is closed.
	// +optional
	// +kubebuilder:validation:Enum=Healed;Replaced;Gone;GivenUp;Cancelled
	Outcome RecordOutcome `json:"outcome,omitempty"`
	// endedBy is what ended the remediation, such as Recovered or ScaledDown. It is empty if the remediation itself did.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	EndedBy string `json:"endedBy,omitempty"`
	// requests are the remediation requests in the order of their creation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Requests []RecordRef `json:"requests,omitempty"`
	// replacement is the Machine that replaced the target.
	// +optional
	Replacement *RecordReplacement `json:"replacement,omitempty"`
	// steps are what happened, oldest first; at most 64. If the list is full, a new step replaces the last one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Steps []RecordStep `json:"steps,omitempty"`
	// conditions are Begun, CapacityBack and Ended.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime >= timestamp('0001-01-01T00:00:00Z'))",message="lastTransitionTime is no time"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RemediationRecord records one remediation: what was found, what was decided and with which numbers, what was done, and how it ended. The
// manager creates it before the remediation begins, and closes it when the capacity is back or not expected any more. The record outlives
// the Machine. It is deleted with the Cluster, when it is older than --record-retention, or when the Cluster has more than
// --records-per-cluster. kubemend reads records to delay remediations that fail again and again.
//
// It has no status subresource, which `clusterctl move` would lose. (Cluster API, clusterctl's object mover, createTargetObject.)
//
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.ended) || has(self.status) && self.status == oldSelf.status",message="the status of a closed record cannot be changed",fieldPath=".status"
// +kubebuilder:resource:path=remediationrecords,scope=Namespaced,categories=kubemend,shortName=rrec
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.target.clusterName`,description="The Cluster"
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.target.machine.name`,description="The Machine"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.target.node.name`,description="The Node",priority=1
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.target.host.name`,description="The BareMetalHost",priority=1
// +kubebuilder:printcolumn:name="Check",type=string,JSONPath=`.spec.requester.check.name`,description="The check that asked for it",priority=1
// +kubebuilder:printcolumn:name="Cause",type=string,JSONPath=`.spec.cause`,description="Why the target counted as unhealthy"
// +kubebuilder:printcolumn:name="Outcome",type=string,JSONPath=`.status.outcome`,description="How it has ended; empty while it goes on"
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.status.conditions[?(@.type=="CapacityBack")].reason`,description="What is waited for until capacity is back, and then how it came back"
// +kubebuilder:printcolumn:name="Begun",type=date,JSONPath=`.status.begun`,description="When it was begun"
// +kubebuilder:printcolumn:name="Back",type=date,JSONPath=`.status.capacityBack`,description="When capacity was back"
type RemediationRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what was known when the remediation was decided.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed"
	Spec RemediationRecordSpec `json:"spec"`

	// status is the observed progress of the remediation.
	// +optional
	Status RemediationRecordStatus `json:"status,omitempty,omitzero"`
}

// Open reports whether the record is not closed yet.
func (r *RemediationRecord) Open() bool { return r.Status.Ended == nil }

// RemediationRecordList is a list of RemediationRecords.
//
// +kubebuilder:object:root=true
type RemediationRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RemediationRecord `json:"items"`
}
