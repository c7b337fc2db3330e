package machinehealthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Facts is everything that one decision depends on, read once. Decide must not change its objects, which are shared with caches.
type Facts struct {
	Now   time.Time
	Check *clusterv1.MachineHealthCheck
	// Cluster is the Cluster of the check. Its UID is empty if there is none, or if the check is ignored whatever its Cluster is.
	Cluster *clusterv1.Cluster
	Mode    Mode
	// ActsUnclaimed says that kubemend acts on checks that are not claimed.
	ActsUnclaimed bool
	// WatchFilter is the label value that the check, or its Cluster, lacks for this manager; empty if it has the label.
	WatchFilter string
	// SelectorErr is why spec.selector of the check cannot be parsed; nil if it can.
	SelectorErr error
	Policy      health.Policy
	Settings

	// Link is the state of the connection to the workload cluster.
	Link   health.Link
	Outage Outage
	// ClockAhead is how far the manager's clock is ahead of an API server's; negative if it is behind, 0 for less than 30 s.
	ClockAhead time.Duration
	// Reach is the condition WorkloadClusterReachable as of the reconcile before; zero if there was none.
	Reach metav1.Condition
	// SelectsNothing says that the selector of the check matches no Machine, and the labels of no template of Machines.
	SelectsNothing bool
	// Overlaps are the other checks of the cluster that are not paused.
	Overlaps []Overlap

	// Read says which of the facts that are read on demand were read.
	Read Needs
	// Explains says that a reader wants to know all blockers, also of machines that are not tried now.
	Explains bool

	Template Template
	// CyclesUnread is until when unread power cycles keep remediations of machines on hosts from starting; zero if they were read.
	CyclesUnread time.Time
	// Allowed is what a RemediationOverride allows beyond the limits of the check; nil if none does.
	Allowed *place.Allowance
	// Placeless are the blockers by which RemediationPolicies keep remediations from beginning, by the UIDs of the machines.
	Placeless map[types.UID][]rule.Blocker
	Spares    Spares
	// SpareWait returns how long the remediation of an unhealthy machine waits for a spare host; zero if it does not wait.
	SpareWait func(machine *clusterv1.Machine) time.Duration

	// Targets are the machines that the check selects and judges, sorted by name.
	Targets []*Target
	// Verdicts are the verdicts on Targets, in the same order.
	Verdicts []health.Verdict
	// Skipped are the selected machines with an annotation by which a user wants them left alone.
	Skipped []*Target
	Memory  Memory
	// Former are the records of earlier Machines that never had a Node, by the UID of their owner, for owners that have such a Machine now.
	Former map[types.UID][]mendv1.RemediationRecord
	// FormerAwaited is until when remediations wait for these records after a start; zero if they were read.
	FormerAwaited time.Time
	Capacity      Capacity
	// Trouble are the errors of reads that the decision does without.
	Trouble []error
}

// Idle reports whether the machines of the check are not read.
func (facts *Facts) Idle() bool { return facts.Cluster.UID == "" || facts.Mode == BadSelector }

// Claimed reports whether check is claimed for kubemend. Cluster API core then owns its condition Paused.
func Claimed(check *clusterv1.MachineHealthCheck) bool {
	return check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
}

// ClusterPaused reports whether cluster is paused. Cluster API then writes no conditions of its machines; after the pause, core sets the
// condition Paused of each machine to False before anything else (Cluster API, util/paused). The Cluster's own condition Paused does not
// show this: it is also True if only the Cluster has the annotation, and then Cluster API still reconciles the machines.
func ClusterPaused(cluster *clusterv1.Cluster) bool { return ptr.Deref(cluster.Spec.Paused, false) }

// Initialized reports whether the control plane of the Cluster is initialized. The workload cluster is not asked before: Link is Unsure.
func (facts *Facts) Initialized() bool {
	return ConditionTrue(facts.Cluster, clusterv1.ClusterControlPlaneInitializedCondition) != nil
}

// Settled reports whether the counts of targets can be trusted. While the workload cluster has not answered all machines are unknown:
// reported at each start of the manager, and at each lost probe, these counts would look like an outage.
func (facts *Facts) Settled() bool { return facts.Link != health.Unsure || !facts.Initialized() }

// Capacity is the capacity that is missing since the check asked for remediations, as their RemediationRecords say.
type Capacity struct {
	// Known reports that the records were read.
	Known bool
	// Missing is the number of remediations whose capacity is not back.
	Missing int
	// Target is the target of the oldest of these remediations.
	Target string
	// Reason and Message are what its record says about the wait.
	Reason, Message string
}

// Mode is how kubemend treats a check.
type Mode int

// The modes, in the order of how much kubemend does. From Observed on the machines of a check are judged.
const (
	// Ignored is a check that another manager or controller handles, that is being deleted, or whose Cluster is being deleted.
	Ignored Mode = iota
	// NoCluster is a check whose Cluster does not exist.
	NoCluster
	// BadSelector is a check whose spec.selector cannot be parsed.
	BadSelector
	// Paused is a check that is paused, or whose Cluster is paused.
	Paused
	// Observed is a check on which Cluster API core acts: kubemend judges its machines and writes nothing.
	Observed
	// Active is a check on which kubemend acts.
	Active
)

// Needs are facts that are read only if a decision depends on them.
type Needs struct {
	// Cycles are the power cycles in progress, needed while a machine on a host is not healthy.
	Cycles bool
	// Template is the remediation template itself, needed before a request is created from it.
	Template bool
	// Spares are the free hosts, needed before an owner is asked to replace a machine on bare metal.
	Spares bool
	// Hosts are the hosts of the machines, needed before an owner is asked, or when an update in place takes long.
	Hosts bool
}

// Outage is what is known of an outage of a workload cluster.
type Outage struct {
	// Refused is what is wrong with the kubeconfig; empty if nothing is.
	Refused string
	// Changed says that another workload cluster answers; empty if none does.
	Changed string
	// Silent says that the API server answers probes and nothing else.
	Silent bool
}

// Overlap is another check of the cluster that is not paused.
type Overlap struct {
	Name string
	// Shared is the number of targets that both checks select.
	Shared int
	// Older says that the other check is older.
	Older bool
	// Acting says that kubemend acts on the other check.
	Acting bool

	selector labels.Selector
	// template is the name of the other check's template; empty if it has none, or one of another kind than this check's.
	template string
	opinions map[types.UID]Opinion
}

// Template is what is known of the remediation template of a check, and of the requests that are made from it.
type Template struct {
	// External says that the check has a template; without one the owners of the machines remediate them.
	External bool
	// Known says that the existing requests are known, as they always are without a template. Until then no request is created.
	Known bool
	// Syncing says that the requests will be known in a moment.
	Syncing bool
	// Kind is the kind of the requests.
	Kind string
	// TemplateKind and Name are the kind and name of the template.
	TemplateKind, Name string
	// Missing is a clause that says why there is no template, and Fix what a person can do; empty if there is one.
	Missing, Fix string
	// Refused says that the reference of the check names a kind that cannot be a template.
	Refused bool
}

// Memory is what a decision has to know of earlier ones. After a restart it is empty: the manager waits as long as after a change.
type Memory struct {
	// Check is the UID of the check that the decision before was about; empty if there was none.
	Check types.UID
	// NotHealthy is since when machines are not healthy, by the UIDs of the machines.
	NotHealthy map[types.UID]time.Time
	// ShortCircuited says that too many machines were not healthy, or too few.
	ShortCircuited bool
	// Calm is when the last short-circuit ended that this process has seen.
	Calm time.Time
	// Refused is when this process last tried to begin a remediation and could not, by the UIDs of the machines.
	Refused map[types.UID]time.Time
	// Opinions are the check's opinions on the machines that other checks select too, by the UIDs of the machines.
	Opinions map[types.UID]Opinion
}

// Plan is what follows from the facts.
type Plan struct {
	// Needs are facts without which the plan is not final: read them, and decide again.
	Needs      Needs
	Population budget.Population
	Grant      budget.Grant
	// Conditions are to be set on the check or, without a status, to be removed. If one changes and has no time, it gets the current time.
	Conditions []metav1.Condition
	// Reach and Allowed are WorkloadClusterReachable and RemediationAllowed, also if Conditions does not have them.
	Reach, Allowed metav1.Condition
	// Decisions are the decisions about Facts.Targets, in the same order.
	Decisions []*Decision
	// Open are the decisions about machines that are not simply healthy. All others do nothing.
	Open []*Decision
	// Recheck is the first moment at which time alone starts a remediation or changes the grant; zero if it never does.
	Recheck time.Time
	// VerdictsUntil is the first moment at which time alone changes what is known of a machine; zero if it never does.
	VerdictsUntil time.Time
	Memory        Memory
}

// Decision is the part of a plan that is about one machine.
type Decision struct {
	Target  *Target
	Verdict health.Verdict
	// InFlight says that a remediation was begun and is not over.
	InFlight bool
	// Tried says that the remediation starts now unless no request can be created from the template.
	Tried bool
	// Blockers are the reasons why no remediation starts, in the order of rules. A remediation starts exactly if Blockers is empty and none
	// is in flight.
	Blockers []Blocker
	Step     Step
	// Conditions are those of the machine to set or, if they have no status, to remove. The message of a failed health check is added when
	// the condition is written.
	Conditions []metav1.Condition
	// AwaitsTurn says that the failure is contradicted, and that another such machine goes first.
	AwaitsTurn bool
	// PutOff is why a remediation that is due waits; zero if it does not wait.
	PutOff PutOff
	// Spare is what was found for a remediation that needs a spare host; nil if it needs none.
	Spare *Spare
}

// PutOff is why a remediation that is due does not start now.
type PutOff struct {
	Reason Reason
	// Until is how long the remediation waits at most.
	Until time.Time
	// Recheck is when the wait is decided on again without an event.
	Recheck time.Time
}

// Starts reports whether a remediation of the machine starts now. A machine without blockers and without a remediation in flight is always
// tried. Tried is required so that a Decision that was never made, such as the zero value, starts nothing.
func (decision *Decision) Starts() bool { return decision.Tried && len(decision.Blockers) == 0 }

// Acts reports whether decision begins or ends a remediation, or newly marks the machine unhealthy.
func (decision *Decision) Acts() bool {
	marks := Failed(decision.Target.Machine) == nil && decision.Sets(HealthCheckSucceeded, metav1.ConditionFalse)
	return marks || decision.Starts() || decision.Step == DeleteRequest
}

// Blocker is a rule that keeps a remediation from starting, with its words; these are empty if the rule is not reported to users.
type Blocker struct {
	Rule Reason
	rule.Blocker

	unjudged bool
}

// BlockedBy returns the blocker of that rule; nil if the rule does not block.
func (decision *Decision) BlockedBy(by Reason) *Blocker {
	return first(decision.Blockers, func(blocker Blocker) bool { return blocker.Rule == by })
}

// first returns the first element of list that matches; nil if none does.
func first[T any](list []T, matches func(T) bool) *T {
	if i := slices.IndexFunc(list, matches); i >= 0 {
		return &list[i]
	}
	return nil
}

// Blocked reports whether decision is blocked by that rule.
func (decision *Decision) Blocked(by Reason) bool { return decision.BlockedBy(by) != nil }

// Acting returns who acts on a check and, if that is not kubemend, why: as a sentence, and in a few words.
func (facts *Facts) Acting() (by cliv1.Mode, text, detail string) {
	cluster := facts.Check.Spec.ClusterName
	label := fmt.Sprintf("The label %s of the check, or of its Cluster if the check has none, is not %s, "+
		"which the manager's flag --watch-filter asks for", clusterv1.WatchLabel, facts.WatchFilter)
	switch {
	case !facts.Check.DeletionTimestamp.IsZero():
		return cliv1.ModeNone, "The check is being deleted", "check being deleted"
	case facts.WatchFilter != "" && Claimed(facts.Check):
		text = "The check is claimed for kubemend, so Cluster API core leaves it alone, and " + clause(label)
		return cliv1.ModeNone, text, clusterv1.WatchLabel + " differs"
	case facts.WatchFilter != "":
		return cliv1.ModeCore, label, clusterv1.WatchLabel + " differs"
	case !facts.Cluster.DeletionTimestamp.IsZero():
		return cliv1.ModeNone, fmt.Sprintf("Cluster %s is being deleted", cluster), "Cluster being deleted"
	}
	paused, detail := facts.paused()
	switch facts.Mode {
	case NoCluster:
		return cliv1.ModeNone, fmt.Sprintf("There is no Cluster %s in namespace %s", cluster, facts.Check.Namespace), detail
	case BadSelector:
		return cliv1.ModeNone, "The spec.selector of the check cannot be read", detail
	case Paused:
		return cliv1.ModePaused, paused, detail
	case Ignored:
		return cliv1.ModeCore, "The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: " +
			"Cluster API core acts on it", detail
	case Observed:
		return cliv1.ModeObserving, "The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges", detail
	case Active:
	}
	return cliv1.ModeActing, "", detail
}

// clause returns sentence with a small first letter, to go on in another sentence.
func clause(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }

// pause is a reason why a check is paused: as a sentence and as a word, how a person ends it, and the text in the condition Paused.
type pause struct{ text, what, end, wire string }

// pauses returns the pauses of the check. The annotation by which kubemend claims a check pauses only Cluster API core.
func (facts *Facts) pauses() []pause {
	var pauses []pause
	if cluster := facts.Check.Spec.ClusterName; ClusterPaused(facts.Cluster) {
		pauses = append(pauses, pause{
			text: "Cluster " + cluster + " is paused (spec.paused)", what: "Cluster",
			end: "set spec.paused of Cluster " + cluster + " to false", wire: "Cluster spec.paused is set to true",
		})
	}
	if value, annotated := facts.Check.Annotations[clusterv1.PausedAnnotation]; annotated && !Claimed(facts.Check) {
		text := fmt.Sprintf("The check has the annotation %s: %q", clusterv1.PausedAnnotation, value)
		if strings.EqualFold(strings.TrimSpace(value), mendv1.Claim) {
			text += fmt.Sprintf(", which pauses it for all; %q claims it", mendv1.Claim)
		}
		pauses = append(pauses, pause{
			text: text, what: "check", end: "remove the annotation " + clusterv1.PausedAnnotation + " from the check",
			wire: "MachineHealthCheck has the cluster.x-k8s.io/paused annotation",
		})
	}
	return pauses
}

func (facts *Facts) paused() (text, detail string) {
	pauses := facts.pauses()
	switch len(pauses) {
	case 0:
		return "", "check not claimed"
	case 1:
		return pauses[0].text, pauses[0].what + " paused"
	}
	return pauses[0].text + ", and " + clause(pauses[1].text), pauses[0].what + " and " + pauses[1].what + " paused"
}

// Enable returns what a person can do so that kubemend acts on the check; empty if nothing.
func (facts *Facts) Enable() string {
	if facts.ActsInCore() {
		return fmt.Sprintf("If kubemend is to act on it, claim the check: kubectl mend claim mhc/%s -n %s",
			facts.Check.Name, facts.Check.Namespace)
	}
	if facts.Mode != Paused {
		return ""
	}
	var ends []string
	for _, pause := range slices.Backward(facts.pauses()) {
		ends = append(ends, pause.end)
	}
	return "When it is to go on, " + strings.Join(ends, ", and ")
}

// ActsInCore reports whether Cluster API core acts on the check.
func (facts *Facts) ActsInCore() bool {
	return facts.Mode == Observed || facts.Mode == Ignored && facts.Cluster.DeletionTimestamp.IsZero()
}

// Action returns, as a clause, what kubemend does when machine is unhealthy.
func (facts *Facts) Action(machine *clusterv1.Machine) string {
	if facts.Template.External {
		template := &facts.Template
		return fmt.Sprintf("requests a %s from %s %s/%s", template.Kind, template.TemplateKind, facts.Check.Namespace, template.Name)
	}
	if owner := metav1.GetControllerOfNoCopy(machine); owner != nil {
		return fmt.Sprintf("asks its owner, %s %s, to remediate it", owner.Kind, owner.Name)
	}
	return "asks its owner to remediate it, but it has none"
}
