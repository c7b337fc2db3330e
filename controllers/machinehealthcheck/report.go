package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/undone"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// tell exports metrics, sends events about what was saved, remembers what the next reconcile needs, and says when that is.
func (r *Reconciler) tell(ctx context.Context, state *observed, plan *Plan, done applied) ctrl.Result {
	notes := machineNotes(state, done.outcomes) // which go by what was done before this time
	next := after(state, plan, done)
	if done.status != nil {
		limits, warned := limitNotes(state, plan, done.status)
		notes, next.warned = slices.Concat(notes, limits, turnNotes(state, done.status)), &warned
	}
	r.memory.Store(client.ObjectKeyFromObject(state.Check), next)
	r.wakeOthers(state, plan, &next)
	waits := func(decision *Decision) bool { return decision.Spare.blocks() }
	r.spares.wait(client.ObjectKeyFromObject(state.Check), slices.ContainsFunc(plan.Open, waits))
	measure(state, plan, done.outcomes)
	for _, n := range notes {
		recorder.Send(r.Recorder, n)
		log.FromContext(ctx).Info("Reported an event", "reason", n.Reason, "note", n.Text,
			n.About.GetObjectKind().GroupVersionKind().Kind, klog.KObj(n.About))
	}
	return r.next(ctx, state, plan, done, next.failed)
}

// machineNotes are the events about machines: on each machine one for each change of its conditions, and on the check one for each whose
// remediation began or that recovered.
//
// Each on the check names the machine as related. Events that differ in nothing but their text are one to the API server's clients, which
// only count how often it came: the second machine would be reported under the name of the first. (client-go, tools/events: a series is
// what has the same regarding, by its resourceVersion too, related, reason and action.)
func machineNotes(state *observed, outcomes []outcome) []recorder.Event {
	var notes []recorder.Event
	check := state.Check.Namespace + "/" + state.Check.Name
	for _, o := range outcomes {
		machine := machineOf(o.Target.Machine)
		marked := fmt.Sprintf("Machine %s/%s has been marked as ", machine.Namespace, machine.Name)
		add := func(kind, reason, action, text string) {
			notes = append(notes, recorder.Event{About: machine, Related: state.Check, Kind: kind, Reason: reason, Action: action, Text: text})
		}
		addToCheck := func(reason, action, text string) {
			notes = append(notes, recorder.Event{
				About: state.Check, Related: machine, Kind: corev1.EventTypeNormal, Reason: reason, Action: action, Text: text,
			})
		}
		switch {
		case o.newlyUnhealthy(): // (Cluster API's sentence, and the findings.)
			kind, text := corev1.EventTypeNormal, marked+"unhealthy by "+check+": "+strings.Join(health.Texts(o.Verdict.Due(state.Now)), "; ")
			if blocker := o.BlockedBy(FailureContradicted); blocker != nil {
				kind, text = corev1.EventTypeWarning, text+". "+blocker.Text+". "+blocker.Fix
			}
			add(kind, mendv1.EventMachineMarkedUnhealthy, "Judge", text)
		case o.recovered():
			add(corev1.EventTypeNormal, mendv1.EventMachineHealthy, "Judge", marked+"healthy again by "+check)
		}
		if did := state.before.did[o.Target.UID]; o.saved != nil && did.Again(o.wrote, state.Now).Times == undone.Tells {
			writers := undone.WritersSince(o.saved, "status", did.At)
			add(corev1.EventTypeWarning, mendv1.EventUndone, "Judge", undone.Text("conditions", writers))
		}
		if o.newlyRefused() {
			add(corev1.EventTypeWarning, mendv1.EventRemediationFailed, "Remediate",
				"No remediation request could be made: "+o.refused.Error())
		}
		switch {
		case o.requested && state.Template.External:
			text := fmt.Sprintf("Requested a %s for %s", state.Template.Kind, machine.Name)
			addToCheck(mendv1.EventRemediationStarted, "Remediate", text)
		case o.requested:
			addToCheck(mendv1.EventRemediationStarted, "Remediate", "Asked the owner to remediate "+machine.Name+o.Spare.InVain())
		case o.recovered():
			addToCheck(mendv1.EventRemediationEnded, "Judge", "Healthy again: "+machine.Name)
		}
	}
	return notes
}

// machineOf returns machine with the kind that an event refers to; objects from a cache do not carry theirs.
func machineOf(machine *clusterv1.Machine) *clusterv1.Machine {
	about := &clusterv1.Machine{TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"}}
	about.Name, about.Namespace, about.UID = machine.Name, machine.Namespace, machine.UID
	return about
}

// limitNotes are the events on the check about its limits. Warned is the restriction of which the last one tells; without any, as after a
// restart, the one before is what the check's condition says, which tells as well of limits that kept no machine from being remediated.
func limitNotes(state *observed, plan *Plan, next *clusterv1.MachineHealthCheck) (notes []recorder.Event, warned string) {
	add := func(kind, reason, text string) {
		notes = append(notes, recorder.Event{About: state.Check, Kind: kind, Reason: reason, Action: "Grant", Text: text})
	}
	if said := ConditionOf(state.Check, RemediationAllowed); said != nil && said.Status == metav1.ConditionFalse {
		warned = said.Reason
	}
	warned = ptr.Deref(state.before.warned, warned)
	allowed, now := ConditionOf(next, RemediationAllowed), restriction(plan)
	switch {
	case allowed == nil, !state.Settled(), warned == now:
	case now != "":
		add(corev1.EventTypeWarning, mendv1.EventRemediationRestricted, allowed.Message)
		warned = now
	case allowed.Status == metav1.ConditionTrue:
		add(corev1.EventTypeNormal, mendv1.EventRemediationAllowed, "Remediation is allowed again")
		warned = ""
	}
	return notes, warned
}

// turnNotes are the events on the check about what else it says of itself: one for each condition that turned.
func turnNotes(state *observed, next *clusterv1.MachineHealthCheck) (notes []recorder.Event) {
	add := func(kind, reason, action, text string) {
		notes = append(notes, recorder.Event{About: state.Check, Kind: kind, Reason: reason, Action: action, Text: text})
	}
	if cond, turned := turned(state.Check, next, mendv1.TargetsExclusive); turned && cond.Status == metav1.ConditionFalse {
		add(corev1.EventTypeWarning, mendv1.EventOverlap, "Select", cond.Message)
	}
	cond, stored := ConditionOf(next, mendv1.Effective), ConditionOf(state.Check, mendv1.Effective)
	if cond != nil && (stored == nil || stored.Message != cond.Message) {
		add(corev1.EventTypeWarning, mendv1.EventIneffective, "Select", cond.Message)
	}
	reach, turned := turned(state.Check, next, mendv1.WorkloadClusterReachable)
	switch changed := reach.Reason == mendv1.ChangedReason; {
	case changed && conditions.GetReason(state.Check, reach.Type) != reach.Reason:
		add(corev1.EventTypeWarning, mendv1.EventWorkloadClusterChanged, "Observe", reach.Message)
	case changed || !turned:
	case reach.Status == metav1.ConditionFalse:
		add(corev1.EventTypeWarning, mendv1.EventUnreachable, "Observe", reach.Message)
	default:
		add(corev1.EventTypeNormal, mendv1.EventReachable, "Observe", "The workload cluster can be reached again")
	}
	return notes
}

// turned returns the condition of that type in next, which a check always has on which kubemend acts, and whether its status differs from
// before. One that was not there before counts as good: a new check has nothing to announce but trouble.
func turned(before, next *clusterv1.MachineHealthCheck, kind string) (*metav1.Condition, bool) {
	cond, status := ConditionOf(next, kind), metav1.ConditionTrue
	if stored := ConditionOf(before, kind); stored != nil && stored.Status != metav1.ConditionUnknown {
		status = stored.Status
	}
	return cond, cond.Status != status && cond.Status != metav1.ConditionUnknown
}

// next says when to reconcile again: at the first moment at which time alone changes something, and sooner if something failed, for as
// often as that.
//
// What failed is logged here and not returned. An error that is returned makes the queue drop every other moment, and
// one machine that cannot be written would hold up the deadlines of all others.
func (r *Reconciler) next(ctx context.Context, state *observed, plan *Plan, done applied, failed int) ctrl.Result {
	at := health.Earliest(health.Earliest(state.recheck, plan.VerdictsUntil), done.statusDue)
	if state.Mode == Active || r.Records != nil { // or a record tells what would begin
		at = health.Earliest(at, plan.Recheck)
	}
	if r.Resync > 0 {
		at = health.Earliest(at, state.Now.Add(r.Resync))
	}
	if failed > 0 {
		at = health.Earliest(at, state.Now.Add(enqueue.Backoff(failed)))
	}
	for _, o := range done.outcomes {
		at = health.Earliest(at, o.undone)
	}
	if errs, _ := done.failures(state); len(errs) > 0 {
		log.FromContext(ctx).Error(errors.Join(errs...), "Reconcile failed, retrying", "tries", failed)
	}
	return enqueue.At(at, r.Clock.Now())
}

// failures are the errors of a reconcile, and whether it is to be repeated for what another writer did meanwhile.
func (done applied) failures(state *observed) (errs []error, retry bool) {
	errs = append(errs, state.Trouble...)
	add := func(err error) {
		if apierrors.IsConflict(err) {
			retry = true
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	for _, o := range done.outcomes {
		add(o.err)
		retry = retry || o.again
	}
	add(done.err)
	return errs, retry
}

// Reason names a rule. Where a condition or an event says the same, it has the same reason.
type Reason string

// The rules, which say below what they mean.
const (
	MachineDeleting            Reason = explain.MachineBeingDeleted
	OlderCheckActs             Reason = "OverlappingCheck"
	OtherCheckRemediates       Reason = explain.OtherCheckRemediates
	NotActing                  Reason = explain.NotActing
	ControlPlaneNotInitialized Reason = "ControlPlaneNotInitialized"
	InfrastructureNotReady     Reason = "InfrastructureNotReady"
	ManagerClockWrong          Reason = "ManagerClockWrong"
	ClusterUnreachable         Reason = "WorkloadClusterUnreachable"
	AwaitsClusterAPI           Reason = explain.AwaitsClusterAPI
	NodeNotSeen                Reason = "NodeNotSeen"
	WithinTimeout              Reason = explain.WithinTimeout
	MachineUpdating            Reason = "MachineBeingUpdated"
	NoOwner                    Reason = mendv1.NoOwnerReason
	HostExternal               Reason = "HostExternallyProvisioned"
	HostPaused                 Reason = "HostPaused"
	PowerCycleInProgress       Reason = explain.RemediationUnderWay
	PowerCyclesUnread          Reason = "PowerCyclesUnread"
	RemediationLoop            Reason = "RemediationLoop"
	FailureContradicted        Reason = "FailureContradicted"
	JustSeen                   Reason = "JustSeen"
	OtherCheckUnheard          Reason = "OtherCheckUnheard"
	OtherCheckGoesFirst        Reason = "OtherCheckGoesFirst"
	ClusterNotFound            Reason = mendv1.ClusterNotFoundReason
	InvalidSelector            Reason = mendv1.InvalidSelectorReason
	InvalidLimit               Reason = mendv1.InvalidLimitReason
	TooManyUnhealthy           Reason = clusterv1.MachineHealthCheckTooManyUnhealthyReason
	TooFewUnhealthy            Reason = "TooFewUnhealthy"
	RequestInTheWay            Reason = "RequestInTheWay"
	TemplateRefused            Reason = "TemplateRefused"
	TemplateMissing            Reason = "TemplateMissing"
	RequestsUnread             Reason = "RequestsUnread"
	TemplateUnusable           Reason = "TemplateUnusable"
	NoSpareHost                Reason = "NoSpareHost"
	SpareHostsUnread           Reason = "SpareHostsUnread"
	NotUnhealthy               Reason = "NotUnhealthy"
)

// NotRead is the reason that users see where requests, or power cycles, cannot be read.
const NotRead = explain.NotRead
