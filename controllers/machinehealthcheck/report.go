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

// tell exports metrics, sends the events of saved changes, stores what the next reconcile needs, and returns when that is due.
func (r *Reconciler) tell(ctx context.Context, state *observed, plan *Plan, done applied) ctrl.Result {
	notes := machineNotes(state, done.outcomes) // before after() notes this reconcile in state.before.did
	next := after(state, plan, done)
	if done.status != nil {
		limits, warned := limitNotes(state, plan, done.status)
		notes, next.warned = slices.Concat(notes, limits, turnNotes(state, done.status)), &warned
	}
	r.memory.Store(client.ObjectKeyFromObject(state.Check), next)
	r.wakeOthers(state, plan, &next)
	if !slices.ContainsFunc(plan.Open, func(decision *Decision) bool { return decision.Spare.blocks() }) {
		r.spares.Delete(client.ObjectKeyFromObject(state.Check))
	}
	measure(state, plan, done.outcomes)
	for _, n := range notes {
		recorder.Send(r.Recorder, n)
		log.FromContext(ctx).Info("Reported an event", "reason", n.Reason, "note", n.Text,
			n.About.GetObjectKind().GroupVersionKind().Kind, klog.KObj(n.About))
	}
	return r.next(ctx, state, plan, done, next.failed)
}

// machineNotes returns the events about machines: on each machine one for each change of its conditions, and on the check one for each
// machine whose remediation began or that recovered.
//
// Events on the check name the machine as related. Otherwise client-go would count the event of a second machine as a repetition of the
// first one's, under the name of the first: it compares regarding with its resourceVersion, related, reason and action, but not the text.
// (client-go, tools/events)
func machineNotes(state *observed, outcomes []outcome) []recorder.Event {
	var notes []recorder.Event
	check := state.Check.Namespace + "/" + state.Check.Name
	for _, o := range outcomes {
		machine := machineOf(o.Target.Machine)
		marked := fmt.Sprintf("Machine %s/%s has been marked as ", machine.Namespace, machine.Name)
		add := func(kind, reason, action, text string) {
			note := recorder.Event{About: machine, Related: state.Check, Kind: kind, Reason: reason, Action: action, Text: text}
			notes = append(notes, note)
		}
		addToCheck := func(reason, action, text string) {
			notes = append(notes, recorder.Event{
				About: state.Check, Related: machine, Kind: corev1.EventTypeNormal, Reason: reason, Action: action, Text: text,
			})
		}
		switch {
		case o.newlyUnhealthy(): // the sentence of Cluster API, and the findings
			found := strings.Join(health.Texts(o.Verdict.Due(state.Now)), "; ")
			kind, text := corev1.EventTypeNormal, marked+"unhealthy by "+check+": "+found
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

// machineOf returns a reference to machine with its kind, for events; objects from a cache have no kind.
func machineOf(machine *clusterv1.Machine) *clusterv1.Machine {
	about := &clusterv1.Machine{TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"}}
	about.Name, about.Namespace, about.UID = machine.Name, machine.Namespace, machine.UID
	return about
}

// limitNotes returns the events on the check about its limits. warned is the restriction that the last event reported. After a restart it
// comes from the condition of the check, which may name limits that blocked no machine.
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

// turnNotes returns an event on the check for each other condition that turned.
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

// turned returns the condition of that type in next, and whether its status changed. A check on which kubemend acts always has the
// condition. A condition that is new counts as True before: a new check reports only trouble.
func turned(before, next *clusterv1.MachineHealthCheck, kind string) (*metav1.Condition, bool) {
	cond, status := ConditionOf(next, kind), metav1.ConditionTrue
	if stored := ConditionOf(before, kind); stored != nil && stored.Status != metav1.ConditionUnknown {
		status = stored.Status
	}
	return cond, cond.Status != status && cond.Status != metav1.ConditionUnknown
}

// next returns when to reconcile again: when time alone changes something, or sooner after a failure, with a backoff.
//
// It logs errors and does not return them: the queue would drop the requested time for an error, and one machine that cannot be written
// would hold up the deadlines of all others.
func (r *Reconciler) next(ctx context.Context, state *observed, plan *Plan, done applied, failed int) ctrl.Result {
	at := health.Earliest(health.Earliest(state.recheck, plan.VerdictsUntil), done.statusDue)
	at = health.Earliest(at, plan.Recheck) // for observed checks too: their metrics change
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

// failures returns the errors of a reconcile, and whether it must be repeated because of another writer.
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

// Reason names a rule. A condition or an event about the rule has the same reason.
type Reason string

// The rules; rules.go says when each blocks.
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

// NotRead is the reason that users see if requests or power cycles cannot be read.
const NotRead = explain.NotRead
