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

const (
	// Healthy says: nothing is wrong, or all targets of the check are healthy.
	Healthy Phase = "Healthy"
	// Pending says: a timeout is running. The object counts as unhealthy when it expires.
	Pending Phase = "Pending"
	// Remediating says: it is unhealthy, and a remediation is in progress or starts now.
	Remediating Phase = "Remediating"
	// Blocked says: it is unhealthy and not remediated, or its remediation does not go on. The reason says why.
	Blocked Phase = "Blocked"
	// Unknown says: it could not be judged.
	Unknown Phase = "Unknown"
	// NotChecked says: no check judges it.
	NotChecked Phase = "NotChecked"
)

// State is the verdict of a check on one target.
type State string

const (
	// StateHealthy says: no rule matches.
	StateHealthy State = "Healthy"
	// StateStarting says: the machine has no node yet, and its startup timeout has not expired.
	StateStarting State = "Starting"
	// StatePending says: a rule matches, and its timeout has not expired.
	StatePending State = "Pending"
	// StateUnhealthy says: the target is to be remediated.
	StateUnhealthy State = "Unhealthy"
	// StateUnknown says: the target could not be judged.
	StateUnknown State = "Unknown"
	// StateSkipped says: a user has annotated the target, so that it is not judged.
	StateSkipped State = "Skipped"
)

// Mode is who acts on a check.
type Mode string

const (
	// ModeActing says: kubemend acts.
	ModeActing Mode = "Acting"
	// ModeObserving says: kubemend judges and writes nothing but records, Cluster API core acts.
	ModeObserving Mode = "Observing"
	// ModeCore says: Cluster API core acts, kubemend does not reconcile the check.
	ModeCore Mode = "Core"
	// ModeOther says: another controller serves the kind.
	ModeOther Mode = "Other"
	// ModePaused says: no controller acts, since a user has paused the check or its Cluster.
	ModePaused Mode = "Paused"
	// ModeNone says: no controller acts, for another reason.
	ModeNone Mode = "None"
	// ModeUnknown says: the check could not be explained, or no manager of kubemend ever had a lease.
	ModeUnknown Mode = "Unknown"
)

// ActionKind is what kubemend does about an unhealthy target.
type ActionKind string

const (
	// RequestOwnerRemediation asks the owner of the machine to replace it.
	RequestOwnerRemediation ActionKind = "RequestOwnerRemediation"
	// CreateRemediationRequest makes a remediation request from a template.
	CreateRemediationRequest ActionKind = "CreateRemediationRequest"
	// NoAction says: there is nothing to do, or no template is left.
	NoAction ActionKind = "None"
)

// Reference names an object.
type Reference struct {
	Kind string `json:"kind"`
	// Namespace is absent where the kind has none.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is the kind, then the name with its namespace, if it has one.
func (r Reference) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Action is what kubemend does about an unhealthy target.
type Action struct {
	Kind ActionKind `json:"kind"`
	// Target is the owner that is asked, or the template that the request is made from.
	Target *Reference `json:"target,omitempty"`
	// Message is the action as a clause, for people.
	Message string `json:"message,omitempty"`
}

// Step is the next thing that happens, or what a user has to do.
//
// +kubebuilder:object:generate=false
type Step struct {
	// Reason says what happens, or which blocker has to be ended.
	Reason string `json:"reason"`
	// When it happens at the latest; absent if it does not depend on time.
	At time.Time `json:"time,omitzero"`
	// NotBefore is before when it certainly does not happen; absent if that is not known.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Target is the target of a check that it happens to.
	Target string `json:"target,omitempty"`
	// Manual reports that a user has to do it.
	Manual bool `json:"manual"`
	// The step for people.
	Text string `json:"message"`
}

// MarshalJSON has times as those of conditions are, and the name of a target without its kind.
func (s Step) MarshalJSON() ([]byte, error) {
	type document Step
	d := document(s)
	d.At, d.NotBefore = s.At.UTC().Truncate(time.Second), s.NotBefore.UTC().Truncate(time.Second)
	d.Target = s.Target[strings.Index(s.Target, " ")+1:]
	return json.Marshal(d)
}

// DeepCopyInto copies a step, which shares nothing.
func (s *Step) DeepCopyInto(out *Step) { *out = *s }

// Same reports whether s is another, of any target of the same check.
func (s Step) Same(other Step) bool {
	_, after, named := strings.Cut(other.Text, ": ")
	return s == other || s.At.Equal(other.At) && s.Manual == other.Manual && named && after == s.Text
}

// Blocker is one thing that keeps a remediation from starting, or from going on.
//
// +kubebuilder:object:generate=false
type Blocker struct {
	// Reason is that of the condition or event that reports the blocker, where there is one.
	Reason string `json:"reason"`
	// Cause is the reason of the decision, where conditions and events have one Reason for several; absent if it is Reason.
	Cause string `json:"cause,omitempty"`
	// Object is what blocks, if that is one object: an older check, a request.
	Object Reference `json:"object,omitzero"`
	// Until is when time alone ends the blocker; absent if it does not.
	Until time.Time `json:"until,omitzero"`
	// Fix is what a user has to do to end it, for people; absent if it ends without that.
	Fix string `json:"fix,omitempty"`
	// The blocker for people: one sentence or more, without a full stop at its end. It holds no age: it is the same as long as the facts are.
	Text string `json:"message"`

	// Brief is Text without what changes with other machines or hosts, for a condition of the machine; empty if Text has nothing of that.
	Brief string `json:"-"`
	// EndsWhen is what else ends the blocker, as a clause that follows "until"; empty if Text implies it.
	EndsWhen string `json:"-"`
	// Next is what happens at Until, as a clause; empty if that is nothing more than that the blocker ends.
	Next string `json:"-"`
	// Detail are the numbers or the name that belong to Reason, for the first line of a page.
	Detail string `json:"-"`
}

// MarshalJSON has the time as that of a condition is.
func (b Blocker) MarshalJSON() ([]byte, error) {
	type document Blocker
	d := document(b)
	d.Until = b.Until.UTC().Truncate(time.Second)
	return json.Marshal(d)
}

// DeepCopyInto copies a blocker, which shares nothing.
func (b *Blocker) DeepCopyInto(out *Blocker) { *out = *b }

// Name is the reason, with its cause where that is one of many with the same event.
func (b *Blocker) Name() string {
	if b.Reason == nhcv1.EventRemediationSkipped && b.Cause != "" {
		return b.Reason + " (" + b.Cause + ")"
	}
	return b.Reason
}

// Finding is a rule that a target matches.
type Finding struct {
	Reason string `json:"reason"`
	// Since is when the timeout began, Expires when it ends; absent if there is none.
	Since   *metav1.Time     `json:"since,omitempty"`
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	Expires *metav1.Time     `json:"expires,omitempty"`
	// Expired reports that the finding counts.
	Expired bool `json:"expired"`
	// SinceMessage is why the timeout began later than the condition changed, for people.
	SinceMessage string `json:"sinceMessage,omitempty"`
	// Message is the finding for people.
	Message string `json:"message"`

	// Observed is what is observed, whether the timeout has expired or not; Unless is what keeps the finding from counting, as a clause.
	Observed string `json:"-"`
	Unless   string `json:"-"`
}

// IgnoredFinding is a rule that matches and does not count, since it may be out of date.
type IgnoredFinding struct {
	Reason string `json:"reason"`
	// Message is the finding, Why is why it does not count, for people.
	Message string `json:"message"`
	Why     string `json:"why"`
}

// Population counts the targets of a check. Each is counted in exactly one of Healthy, Unhealthy, Pending, Starting, Recovering, Deleting,
// Unknown and Unread.
type Population struct {
	Total int `json:"total"`
	// NotHealthy is what the limits count: all but the healthy ones.
	NotHealthy int `json:"notHealthy"`
	Healthy    int `json:"healthy"`
	Unhealthy  int `json:"unhealthy"`
	Pending    int `json:"pending"`
	Starting   int `json:"starting"`
	Recovering int `json:"recovering"`
	Deleting   int `json:"deleting"`
	Unknown    int `json:"unknown"`
	// Unread are not healthy by the status of the check, and were not read.
	Unread int `json:"unread"`
	// Remediating are those whose remediation is in progress, in whatever state they are.
	Remediating int `json:"remediating"`
	// Waiting are those of Unhealthy whose remediation has not begun.
	Waiting int `json:"waiting"`
}

// Limits of a check, in numbers of targets.
type Limits struct {
	// Spec is the limit as the check has it, such as "unhealthyLessThanOrEqualTo 40%".
	Spec string `json:"spec"`
	// AtMost is how many targets may be not healthy before no remediation starts any more, AtLeast how many have to be. AtMost is absent if
	// Spec cannot be parsed.
	AtMost  *int `json:"atMost,omitempty"`
	AtLeast int  `json:"atLeast"`
	// Remaining is how many more targets may become unhealthy.
	Remaining int `json:"remaining"`
}

// NodesUnknown is why the nodes of a workload cluster cannot be judged.
type NodesUnknown struct {
	// Reason is that of the condition WorkloadClusterReachable, or MissingPermission if the reader may not read the nodes, or NoAnswer if
	// the cluster did not answer the reader in time.
	Reason string `json:"reason"`
	// Since is when the manager lost contact.
	Since   *metav1.Time `json:"since,omitempty"`
	Message string       `json:"message"`
}

// Check is a MachineHealthCheck or NodeHealthCheck.
type Check struct {
	Reference `json:",inline"`
	// Cluster is that of a MachineHealthCheck.
	Cluster string `json:"cluster,omitempty"`
	// Phase is the worst of all targets.
	Phase Phase `json:"phase"`
	// Reason is why no remediation starts, that of the condition RemediationAllowed; absent if they may.
	Reason string `json:"reason,omitempty"`
	// Mode is who acts on the check, ModeMessage why it is not kubemend.
	Mode        Mode   `json:"mode"`
	ModeMessage string `json:"modeMessage,omitempty"`
	// Population is absent if the targets could not be counted.
	Population *Population `json:"population,omitempty"`
	Limits     Limits      `json:"limits"`
	// CountedByStatus reports that not all targets were read: the status of the check counts the others.
	CountedByStatus bool          `json:"countedByStatus"`
	NodesUnknown    *NodesUnknown `json:"nodesUnknown,omitempty"`
	// Conditions are those that the check has after a reconcile at this moment.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ClaimedBy is what claimed the check, if that was no person, for people.
	ClaimedBy string `json:"claimedBy,omitempty"`
	// CapacityMissing is that of remediations which the check asked for; absent outside of a Status, and if RemediationRecords are not
	// installed or none could be read.
	CapacityMissing *MissingCapacity `json:"capacityMissing,omitempty"`
	// NotHealthy are the names of the targets that the limits count.
	NotHealthy []Group `json:"notHealthy,omitempty"`
	// Targets are those that the document is about.
	Targets []Target `json:"targets,omitempty"`
	// ReadErrors are what could not be read.
	ReadErrors []string `json:"readErrors,omitempty"`
	Next       Step     `json:"next,omitzero"`
	// Message is that of the condition RemediationAllowed.
	Message string `json:"message,omitempty"`
}

// Group are the names of targets that are counted alike.
type Group struct {
	// Class is the field of the population that counts them.
	Class string   `json:"class"`
	Names []string `json:"names"`
}

// Target is a machine or node that a check selects.
type Target struct {
	Reference `json:",inline"`
	// Node is that of a machine, Machine that of a node, if it is known.
	Node    string     `json:"node,omitempty"`
	Machine *Reference `json:"machine,omitempty"`
	State   State      `json:"state"`
	// Phase is the state, and what is done about it.
	Phase Phase `json:"phase"`
	// Reason is that of the blocker or finding that counts, of the step of a power cycle, or of what the owner reports.
	Reason   string           `json:"reason,omitempty"`
	Findings []Finding        `json:"findings,omitempty"`
	Ignored  []IgnoredFinding `json:"ignoredFindings,omitempty"`
	// Skipped is why the target is not judged, for people.
	Skipped string  `json:"skipped,omitempty"`
	Action  *Action `json:"action,omitempty"`
	// StartsNow reports that a reconcile at this moment starts the action.
	StartsNow bool `json:"startsNow"`
	// InFlight reports that a remediation is in progress, InFlightSince since when.
	InFlight      bool         `json:"inFlight"`
	InFlightSince *metav1.Time `json:"inFlightSince,omitempty"`
	// Deferred reports that the owner of the machine has put its replacement off, Refused that it says that it cannot replace it.
	Deferred bool `json:"deferred"`
	Refused  bool `json:"refused"`
	// Blockers are in the order in which the controller asks.
	Blockers []Blocker `json:"blockers,omitempty"`
	// Requests are the remediation requests that exist, also those of other makers.
	Requests []Reference `json:"requests,omitempty"`
	Next     Step        `json:"next,omitzero"`
	// Written is the condition of the Machine by which the manager says how it is; absent if the target was judged here.
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
	// RemediationPhase is the phase in the status of the object, State that of the power cycle.
	RemediationPhase string `json:"remediationPhase,omitempty"`
	State            string `json:"state"`
	Phase            Phase  `json:"phase"`
	Attempt          int    `json:"attempt"`
	Attempts         int    `json:"attempts"`
	// Reason is that of the step which the manager wrote last. Acts says that a manager runs that acts on it.
	Reason         string       `json:"reason"`
	Acts           bool         `json:"acts"`
	AttemptStarted *metav1.Time `json:"attemptStarted,omitempty"`
	StateSince     *metav1.Time `json:"stateSince,omitempty"`
	// Deadline is when the state times out.
	Deadline *metav1.Time `json:"deadline,omitempty"`
	Blockers []Blocker    `json:"blockers,omitempty"`
	// Evidence are the steps that were done, or given up, in the order in which the manager wrote that, for people.
	Evidence []string `json:"evidence,omitempty"`
	Next     Step     `json:"next,omitzero"`
	// Message is the step for people.
	Message string `json:"message"`
}
