package v1alpha1

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Phase is the answer in a word.
type Phase string

// The phases. docs/cli/output.md says what each means.
const (
	Healthy     Phase = "Healthy"
	Pending     Phase = "Pending"
	Remediating Phase = "Remediating"
	Blocked     Phase = "Blocked"
	Unknown     Phase = "Unknown"
	NotChecked  Phase = "NotChecked"
)

// State is the verdict of a check on one target.
type State string

// The states are those of the package health, and StateSkipped, which means that an annotation by a user excludes the target.
const (
	StateHealthy   State = "Healthy"
	StateStarting  State = "Starting"
	StatePending   State = "Pending"
	StateUnhealthy State = "Unhealthy"
	StateUnknown   State = "Unknown"
	StateSkipped   State = "Skipped"
)

// Mode says which controller acts on a check.
type Mode string

// The modes. Mode.Sentence says what each means.
const (
	ModeActing    Mode = "Acting"
	ModeObserving Mode = "Observing"
	// ModeCore means that Cluster API core acts and kubemend does not reconcile the check.
	ModeCore Mode = "Core"
	// ModeOther means that another controller serves the kind.
	ModeOther Mode = "Other"
	// ModePaused means that no controller acts, because a user has paused the check or its Cluster.
	ModePaused Mode = "Paused"
	ModeNone   Mode = "None"
	// ModeUnknown means that the check could not be explained, or that no manager of kubemend ever had a lease.
	ModeUnknown Mode = "Unknown"
)

// ActionKind is what kubemend does about an unhealthy target.
type ActionKind string

// The kinds of actions. NoAction means that there is nothing to do, or that no template is left.
const (
	RequestOwnerRemediation  ActionKind = "RequestOwnerRemediation"
	CreateRemediationRequest ActionKind = "CreateRemediationRequest"
	NoAction                 ActionKind = "None"
)

// Reference names an object.
type Reference struct {
	Kind string `json:"kind"`
	// Namespace is absent for kinds without a namespace.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the kind, then the name, with its namespace if it has one.
func (r Reference) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Action is what kubemend does about an unhealthy target.
type Action struct {
	Kind ActionKind `json:"kind"`
	// Target is the owner that is asked to replace the machine, or the template of the request.
	Target *Reference `json:"target,omitempty"`
	// Message is the action as a clause, for people.
	Message string `json:"message,omitempty"`
}

// Step is the next thing that happens, or what a user has to do.
//
// +kubebuilder:object:generate=false
type Step struct {
	// Reason is what happens, or which blocker has to end.
	Reason string `json:"reason"`
	// When it happens, at the latest; absent if it does not depend on time.
	At time.Time `json:"time,omitzero"`
	// Target is the target of the check to which it happens.
	Target string `json:"target,omitempty"`
	// Manual is true if a user has to do it.
	Manual bool `json:"manual"`
	// The step for people.
	Text string `json:"message"`
}

// MarshalJSON writes At in UTC and whole seconds, as conditions have times.
func (s Step) MarshalJSON() ([]byte, error) {
	type document Step
	d := document(s)
	d.At = s.At.UTC().Truncate(time.Second)
	return json.Marshal(d)
}

// DeepCopyInto copies a step. Steps have no pointers.
func (s *Step) DeepCopyInto(out *Step) { *out = *s }

// Same reports whether both are the same step, whichever target of the check each one names.
func (s Step) Same(other Step) bool {
	_, after, named := strings.Cut(other.Text, ": ")
	return s == other || s.At.Equal(other.At) && s.Manual == other.Manual && named && after == s.Text
}

// Blocker is one thing that keeps a remediation from starting or going on.
//
// +kubebuilder:object:generate=false
type Blocker struct {
	// Reason is the reason of the condition or event that reports the blocker, if there is one.
	Reason string `json:"reason"`
	// Cause is the reason of the decision, if several of them share one Reason; absent if it is the same as Reason.
	Cause string `json:"cause,omitempty"`
	// Object is the object that blocks, such as an older check or a request; absent if it is not a single object.
	Object Reference `json:"object,omitzero"`
	// Until is when the blocker ends by time alone; absent if it does not.
	Until time.Time `json:"until,omitzero"`
	// Fix is what a user has to do to end the blocker, for people; absent if it ends by itself.
	Fix string `json:"fix,omitempty"`
	// The blocker for people, without a full stop at the end. It contains no age, so it changes only with the facts.
	Text string `json:"message"`

	// Brief is Text without the parts that change with other machines or hosts, for a condition of the machine; empty if there are none.
	Brief string `json:"-"`
	// EndsWhen is what else ends the blocker, as a clause that follows "until"; empty if Text implies it.
	EndsWhen string `json:"-"`
	// Next is what happens at Until, as a clause; empty if the blocker only ends.
	Next string `json:"-"`
	// Detail is the numbers or the name that belong to Reason, for the first line of a page.
	Detail string `json:"-"`
}

// MarshalJSON writes Until in UTC and whole seconds, as conditions have times.
func (b Blocker) MarshalJSON() ([]byte, error) {
	type document Blocker
	d := document(b)
	d.Until = b.Until.UTC().Truncate(time.Second)
	return json.Marshal(d)
}

// DeepCopyInto copies a blocker. Blockers have no pointers.
func (b *Blocker) DeepCopyInto(out *Blocker) { *out = *b }

// Name returns the reason, followed by the cause if the reason is that of the event for all blockers of a node.
func (b *Blocker) Name() string {
	if b.Reason == nhcv1.EventRemediationSkipped && b.Cause != "" {
		return b.Reason + " (" + b.Cause + ")"
	}
	return b.Reason
}

// Finding is a rule that matches a target.
type Finding struct {
	Reason string `json:"reason"`
	// Since is when the timeout began; absent if the finding has no timeout.
	Since   *metav1.Time     `json:"since,omitempty"`
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	Expires *metav1.Time     `json:"expires,omitempty"`
	// Expired is true if the timeout has expired, or the finding has none: it makes the target unhealthy.
	Expired bool `json:"expired"`
	// SinceMessage says why the timeout began later than the condition changed, for people.
	SinceMessage string `json:"sinceMessage,omitempty"`
	// Message is the finding for people.
	Message string `json:"message"`

	// Observed is the observed state, whether the timeout has expired or not.
	Observed string `json:"-"`
	// Unless is what keeps the finding from making the target unhealthy, as a clause.
	Unless string `json:"-"`
}

// IgnoredFinding is a rule that matches but is ignored, because what it matches may be out of date.
type IgnoredFinding struct {
	Reason string `json:"reason"`
	// Message is the finding, for people.
	Message string `json:"message"`
	// Why is the reason for ignoring it, for people.
	Why string `json:"why"`
}

// Population counts the targets of a check, each in one of Healthy, Unhealthy, Pending, Starting, Recovering, Deleting, Unknown, Unread.
type Population struct {
	Total int `json:"total"`
	// NotHealthy is what the limits count: all targets that are not Healthy.
	NotHealthy int `json:"notHealthy"`
	Healthy    int `json:"healthy"`
	Unhealthy  int `json:"unhealthy"`
	Pending    int `json:"pending"`
	Starting   int `json:"starting"`
	Recovering int `json:"recovering"`
	Deleting   int `json:"deleting"`
	Unknown    int `json:"unknown"`
	// Unread is how many targets were not read and are not healthy by the status of the check.
	Unread int `json:"unread"`
	// Remediating is how many targets have a remediation in progress, in any state.
	Remediating int `json:"remediating"`
	// Waiting is how many Unhealthy targets have no remediation yet.
	Waiting int `json:"waiting"`
}

// Limits are the limits of a check, in numbers of targets.
type Limits struct {
	// Spec is the limit in the spec of the check, such as "unhealthyLessThanOrEqualTo 40%".
	Spec string `json:"spec"`
	// AtMost is how many targets may be not healthy for a remediation to start; absent if Spec cannot be parsed.
	AtMost *int `json:"atMost,omitempty"`
	// AtLeast is how many targets must be not healthy for a remediation to start.
	AtLeast int `json:"atLeast"`
	// Remaining is how many more targets may become unhealthy before no remediation starts.
	Remaining int `json:"remaining"`
}

// NodesUnknown says why the nodes of a workload cluster cannot be judged.
type NodesUnknown struct {
	// Reason is the reason of the condition WorkloadClusterReachable, or MissingPermission if the user of kubectl mend may not read the
	// nodes, or NoAnswer if the cluster did not answer kubectl mend in time.
	Reason string `json:"reason"`
	// Since is when the manager lost the connection.
	Since   *metav1.Time `json:"since,omitempty"`
	Message string       `json:"message"`
}

// Check is a MachineHealthCheck or NodeHealthCheck.
type Check struct {
	Reference `json:",inline"`
	Cluster   string `json:"cluster,omitempty"`
	// Phase is the worst phase of all targets.
	Phase Phase `json:"phase"`
	// Reason is the reason of the condition RemediationAllowed; absent if remediations may start.
	Reason string `json:"reason,omitempty"`
	Mode   Mode   `json:"mode"`
	// ModeMessage says why that is not kubemend, for people.
	ModeMessage string `json:"modeMessage,omitempty"`
	// Population is absent if the targets could not be counted.
	Population *Population `json:"population,omitempty"`
	Limits     Limits      `json:"limits"`
	// CountedByStatus is true if not all targets were read; the status of the check counts the others.
	CountedByStatus bool          `json:"countedByStatus"`
	NodesUnknown    *NodesUnknown `json:"nodesUnknown,omitempty"`
	// Conditions are the conditions that a reconcile at this moment would write to the check.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ClaimedBy is what claimed the check if no user did, for people.
	ClaimedBy string `json:"claimedBy,omitempty"`
	// CapacityMissing counts the remediations that the check requested and whose capacity is not back. Only a Status has it; absent also if
	// RemediationRecords are not installed or none could be read.
	CapacityMissing *MissingCapacity `json:"capacityMissing,omitempty"`
	// NotHealthy are the names of the targets that are not healthy.
	NotHealthy []Group `json:"notHealthy,omitempty"`
	// Targets are the targets that the document is about.
	Targets []Target `json:"targets,omitempty"`
	// ReadErrors say what could not be read.
	ReadErrors []string `json:"readErrors,omitempty"`
	Next       Step     `json:"next,omitzero"`
	// Message is the message of the condition RemediationAllowed.
	Message string `json:"message,omitempty"`
}

// Group are the names of the targets that one field of the population counts.
type Group struct {
	// Class is that field.
	Class string   `json:"class"`
	Names []string `json:"names"`
}

// Target is a machine or node that a check selects.
type Target struct {
	Reference `json:",inline"`
	// Node is the node of a machine, if it is known.
	Node string `json:"node,omitempty"`
	// Machine is the machine of a node, if it is known.
	Machine *Reference `json:"machine,omitempty"`
	State   State      `json:"state"`
	// Phase is the state together with what is done about it.
	Phase Phase `json:"phase"`
	// Reason is the reason of the first blocker, of the finding, of the step of a power cycle, or of the answer of the owner.
	Reason   string           `json:"reason,omitempty"`
	Findings []Finding        `json:"findings,omitempty"`
	Ignored  []IgnoredFinding `json:"ignoredFindings,omitempty"`
	// Skipped says why the target is not judged, for people.
	Skipped string  `json:"skipped,omitempty"`
	Action  *Action `json:"action,omitempty"`
	// StartsNow is true if a reconcile at this moment would start the action.
	StartsNow bool `json:"startsNow"`
	// InFlight is true if a remediation is in progress.
	InFlight      bool         `json:"inFlight"`
	InFlightSince *metav1.Time `json:"inFlightSince,omitempty"`
	// Deferred is true if the owner of the machine reports that it will replace it later.
	Deferred bool `json:"deferred"`
	// Refused is true if the owner reports that it cannot replace it.
	Refused bool `json:"refused"`
	// Blockers are in the order in which the controller checks them.
	Blockers []Blocker `json:"blockers,omitempty"`
	// Requests are the existing remediation requests, whoever created them.
	Requests []Reference `json:"requests,omitempty"`
	Next     Step        `json:"next,omitzero"`
	// Written is the condition that the manager wrote on the Machine; absent if kubectl mend judged the target itself.
	Written *metav1.Condition `json:"written,omitempty"`
	// Message is what the remediator reports.
	Message string `json:"message,omitempty"`
}

// HostRemediation is the power cycle of a host.
type HostRemediation struct {
	Reference `json:",inline"`
	Machine   *Reference `json:"machine,omitempty"`
	Node      string     `json:"node,omitempty"`
	Host      string     `json:"host,omitempty"`
	// RemediationPhase is the phase in the status of the object.
	RemediationPhase string `json:"remediationPhase,omitempty"`
	State            string `json:"state"`
	Phase            Phase  `json:"phase"`
	Attempt          int    `json:"attempt"`
	Attempts         int    `json:"attempts"`
	// Reason is the reason of the step that the manager wrote last.
	Reason string `json:"reason"`
	// Acts is true if a manager runs that acts on the remediation.
	Acts           bool         `json:"acts"`
	AttemptStarted *metav1.Time `json:"attemptStarted,omitempty"`
	StateSince     *metav1.Time `json:"stateSince,omitempty"`
	// Deadline is when the state times out.
	Deadline *metav1.Time `json:"deadline,omitempty"`
	Blockers []Blocker    `json:"blockers,omitempty"`
	// Evidence are the steps that were completed or given up, in the order in which the manager wrote them, for people.
	Evidence []string `json:"evidence,omitempty"`
	Next     Step     `json:"next,omitzero"`
	// Message is the step for people.
	Message string `json:"message"`
}
