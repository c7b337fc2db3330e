package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RecordRemediator says what carries out a remediation.
type RecordRemediator string

const (
	// RemediatedByOwner is a remediation by the owner of the Machine, which replaces it.
	RemediatedByOwner RecordRemediator = "Owner"
	// RemediatedByRequest is a remediation by requests that a remediator acts on, such as a HostRemediation.
	RemediatedByRequest RecordRemediator = "Request"
)

// RecordOutcome is how a remediation has ended.
type RecordOutcome string

const (
	// RecordHealed is a remediation after which the same machine, or node, was healthy.
	RecordHealed RecordOutcome = "Healed"
	// RecordReplaced is one after which another Machine in its place was healthy.
	RecordReplaced RecordOutcome = "Replaced"
	// RecordGone is one whose target was deleted, and to which no other Machine was to come: the owner was scaled down, or there is none.
	RecordGone RecordOutcome = "Gone"
	// RecordGivenUp is one that every remediator has given up.
	RecordGivenUp RecordOutcome = "GivenUp"
	// RecordCancelled is one that was not begun, or that was withdrawn before it had an effect.
	RecordCancelled RecordOutcome = "Cancelled"
)

// Conditions of a RemediationRecord.
const (
	// RecordBegun is True once the remediation was begun: the owner was asked, or a request exists.
	RecordBegun = "Begun"
	// RecordCapacityBack is True once the machine, or the one in its place, is healthy. Until then its reason says what is waited for.
	RecordCapacityBack = "CapacityBack"
	// RecordEnded is True once nothing more is written to the record. Its reason is the outcome.
	RecordEnded = "Ended"
)

// The bounds of a RemediationRecord. A step that is one too many replaces the last but one.
const (
	// MaxRecordSteps is how many steps a record holds.
	MaxRecordSteps = 64
	// MaxRecordEvidence is how much evidence it holds.
	MaxRecordEvidence = 16
	// MaxRecordText is how long a text in it is, in characters.
	MaxRecordText = 512
)

// RecordRef names an object of a record.
type RecordRef struct {
	// apiVersion is its group and version.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is its kind.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace is that of the object; empty if it has none, or is in the cluster that kubemend does not run in.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name is its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid is its UID, if it is known. After clusterctl move the objects have others.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

// RecordTarget is what is remediated. What is not known is left out.
type RecordTarget struct {
	// clusterName is the Cluster; empty for nodes of the cluster that kubemend runs in.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName,omitempty"`
	// clusterUID is the UID that the Cluster had. If the record's owner has another one, the record was moved by clusterctl, and all other
	// UIDs in it are those of before.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClusterUID string `json:"clusterUID,omitempty"`
	// machine is the Machine.
	// +optional
	Machine *RecordRef `json:"machine,omitempty"`
	// owner is the controller of the Machine, such as a MachineSet.
	// +optional
	Owner *RecordRef `json:"owner,omitempty"`
	// node is the Node, by its name and UID in its cluster.
	// +optional
	Node *RecordRef `json:"node,omitempty"`
	// host is the BareMetalHost.
	// +optional
	Host *RecordRef `json:"host,omitempty"`
	// hostModel is the manufacturer and the product name of the host, as the Bare Metal Operator has inspected them.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	HostModel string `json:"hostModel,omitempty"`
	// failureDomain is the label infrastructure.cluster.x-k8s.io/failure-domain of the BareMetalHost, else the failure domain of the
	// Machine, else the zone of the node (its label topology.kubernetes.io/zone).
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
	// controlPlane says that the Machine, or the node, is part of a control plane.
	// +optional
	ControlPlane bool `json:"controlPlane,omitempty"`
}

// RecordRequester is what asked for a remediation.
type RecordRequester struct {
	// check is the MachineHealthCheck or NodeHealthCheck; nil if the remediation was requested without one.
	// +optional
	Check *RecordRef `json:"check,omitempty"`
	// user is the name of the user who asked for it by hand, as the API server knows it; empty if no user did.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	User string `json:"user,omitempty"`
	// reason is what the user gave as a reason.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
}

// Moments have a pattern beside their format: an API server takes a date-time that metav1.Time cannot read, such as one with a t in lower
// case, and a list with one such record cannot be read at all. A Condition is not of this project: a rule, which reads the time as
// strictly, stands for the pattern.

// RecordEvidence is one finding for which the target counts as unhealthy.
type RecordEvidence struct {
	// type is that of the condition, or what else was found, such as NodeNotFound.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// status is that of the condition.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Status string `json:"status,omitempty"`
	// since is from when on it counts.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Since *metav1.Time `json:"since,omitempty"`
	// timeoutSeconds is how long it may last.
	// +optional
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// message is what the condition says.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// RecordCounts is the arithmetic of the check at the moment at which the remediation was decided.
type RecordCounts struct {
	// targets is how many machines, or nodes, the check selects; healthy and inFlight are how many of them are healthy, and are being
	// remediated.
	Targets  int32 `json:"targets"`
	Healthy  int32 `json:"healthy"`
	InFlight int32 `json:"inFlight"`
	// limit is maxUnhealthy, unhealthyRange or minHealthy, as the check has it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Limit string `json:"limit,omitempty"`
}

// RemediationRecordSpec is what is known at the moment at which the remediation is decided. It never changes.
type RemediationRecordSpec struct {
	// remediator is what carries it out.
	// +kubebuilder:validation:Enum=Owner;Request
	Remediator RecordRemediator `json:"remediator"`
	// target is what is remediated.
	Target RecordTarget `json:"target"`
	// requester is what asked for it.
	// +optional
	Requester RecordRequester `json:"requester,omitempty,omitzero"`
	// cause is the first finding, in a word or as condition=status, such as Ready=Unknown. Reports count by it.
	// +optional
	// +kubebuilder:validation:MaxLength=333
	Cause string `json:"cause,omitempty"`
	// evidence is all that was found.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Evidence []RecordEvidence `json:"evidence,omitempty"`
	// unhealthySince is when the target stopped being healthy, as far as it is known, and due when it counted as unhealthy, which is later
	// by the timeout. decided is when the controller decided to begin.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	UnhealthySince *metav1.Time `json:"unhealthySince,omitempty"`
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Due *metav1.Time `json:"due,omitempty"`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Decided metav1.Time `json:"decided"`
	// counts is the arithmetic of the check at that moment; nil without a check.
	// +optional
	Counts *RecordCounts `json:"counts,omitempty"`
}

// RecordStep is one thing that has happened.
type RecordStep struct {
	// time is when, to the millisecond: several steps may be taken within a second.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Time metav1.MicroTime `json:"time"`
	// reason is what, in a word.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message is what, as a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// object is what it happened to, if it is not the target.
	// +optional
	Object *RecordRef `json:"object,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. A MicroTime reads six decimals alone, and steps that are stored may have whole seconds: a list
// with one record that cannot be decoded is none, so that no controller of records would start.
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

// RecordReplacement is the Machine that came in place of the target.
type RecordReplacement struct {
	// machine, node and host are what came in place.
	Machine RecordRef `json:"machine"`
	// +optional
	Node *RecordRef `json:"node,omitempty"`
	// +optional
	Host *RecordRef `json:"host,omitempty"`
	// guessed says that it was found by its owner and its time alone, while several Machines were replaced at once.
	// +optional
	Guessed bool `json:"guessed,omitempty"`
}

// RemediationRecordStatus is how the remediation goes.
type RemediationRecordStatus struct {
	// attempted is when the controller was last about to begin. A record that is not begun minutes later is cancelled.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Attempted *metav1.Time `json:"attempted,omitempty"`
	// begun is when the remediation was begun: when the owner was asked, or the first request was created.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Begun *metav1.Time `json:"begun,omitempty"`
	// begunBy is who began it: kubemend, or another controller or user.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	BegunBy string `json:"begunBy,omitempty"`
	// capacityBack is when the target, or the one in its place, was healthy again.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	CapacityBack *metav1.Time `json:"capacityBack,omitempty"`
	// ended is when the record was closed. Nothing is written to it any more.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Ended *metav1.Time `json:"ended,omitempty"`
	// outcome is how it has ended; empty while it goes on.
	// +optional
	// +kubebuilder:validation:Enum=Healed;Replaced;Gone;GivenUp;Cancelled
	Outcome RecordOutcome `json:"outcome,omitempty"`
	// endedBy is what or who ended it, if it is not the remediation itself.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	EndedBy string `json:"endedBy,omitempty"`
	// requests are the remediation requests that it was made of, in their order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Requests []RecordRef `json:"requests,omitempty"`
	// replacement is the Machine in place of the target.
	// +optional
	Replacement *RecordReplacement `json:"replacement,omitempty"`
	// steps are what has happened, oldest first.
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

// RemediationRecord is the record of one remediation: what was found, what was decided and by which numbers, what was done, and how it has
// ended. The manager writes it before it begins the remediation, and closes it when the capacity is back or no longer to be expected. It
// outlives the Machine, and is removed with the Cluster, or when there are newer ones in its place (--record-retention). Remediations that
// begin again and again wait by their records.
//
// It has no status subresource: clusterctl move creates objects anew, and the API server would drop a status that has one. (Cluster API,
// clusterctl's object mover, createTargetObject.)
//
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.ended) || has(self.status) && self.status == oldSelf.status",message="status is that of a remediation that has ended, and never changes",fieldPath=".status"
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
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is the record of a decision, and never changes"
	Spec RemediationRecordSpec `json:"spec"`

	// status is the observed progress of the remediation.
	// +optional
	Status RemediationRecordStatus `json:"status,omitempty,omitzero"`
}

// Open reports whether more may be written to it.
func (r *RemediationRecord) Open() bool { return r.Status.Ended == nil }

// RemediationRecordList is a list of RemediationRecords.
//
// +kubebuilder:object:root=true
type RemediationRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RemediationRecord `json:"items"`
}
