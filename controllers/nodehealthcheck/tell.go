package nodehealthcheck

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// send sends events about what was saved, all of them on the check, and logs one line for each.
func (r *Reconciler) send(ctx context.Context, w *observed, notes []recorder.Event) {
	about := &nhcv1.NodeHealthCheck{TypeMeta: metav1.TypeMeta{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck"}}
	about.Name, about.UID, about.ResourceVersion = w.check.Name, w.check.UID, w.check.ResourceVersion
	for _, n := range notes {
		text := n.Text
		n.About, n.Text = about, nhcv1.EventPrefix+text
		recorder.Send(r.Recorder, n)
		log.FromContext(ctx).Info("Reported an event", "reason", n.Reason, "note", text)
	}
}

// telling collects the events of a reconcile. What goes on being so is told when it begins, and then every hour, which is as long as an event is
// kept: told is what was told of what is held up, and holds what is held up now.
type telling struct {
	now         time.Time
	notes       []recorder.Event
	told, holds map[string]told
}

// told is what was told last of something that goes on, and when.
type told struct {
	text string
	at   time.Time
}

// again reports whether text is to be told at now.
func (t told) again(text string, now time.Time) bool {
	return t.text != text || !now.Before(t.at.Add(tellAgain))
}

// tellAgain is after how long what goes on is told once more.
const tellAgain = time.Hour

func (n *telling) add(t *target, kind, reason, action, text string) {
	n.notes = append(n.notes, recorder.Event{Related: related(t), Kind: kind, Reason: reason, Action: action, Text: text})
}

// once tells a text that is about what goes on, known by key, unless that was told lately.
func (n *telling) once(key, text string, say func()) {
	is := n.told[key]
	if is.again(text, n.now) {
		is = told{text, n.now}
		say()
	}
	n.holds[key] = is
}

// detectedNotes are the events about nodes that were found to be unhealthy. They are told when the status was saved, by which it is known
// that they were: a reconcile that saw an old one would tell them again.
func detectedNotes(w *observed, outcomes []outcome) []recorder.Event {
	n, adopted := &telling{}, map[*target]bool{}
	for i := range outcomes {
		adopted[outcomes[i].target] = len(outcomes[i].adopt) > 0
	}
	for i := range w.targets {
		t := &w.targets[i]
		if t.remediated() && !t.begun() && !adopted[t] {
			continue // that it was well is kept in the status until something begins
		}
		unlisted := t.listed == nil && len(w.check.Status.UnhealthyNodes) < mostListed // of others nobody knows whether it was told
		if c := matched(w, t); c != nil && t.selected && (unlisted || t.listed != nil && t.listed.ConditionsHealthyTimestamp != nil) {
			n.add(t, corev1.EventTypeNormal, nhcv1.EventDetectedUnhealthy, "Judge", fmt.Sprintf(
				"Node matches unhealthy condition. Node %q, condition type %q, condition status %q", t.name, c.Type, c.Status))
		}
	}
	return n.notes
}

// nodeNotes are the events about what was done about nodes: one for each change.
func (r *Reconciler) nodeNotes(w *observed, outcomes []outcome) []recorder.Event {
	last := r.memory.of(w.check.Name)
	n := &telling{now: w.now, told: last.told, holds: map[string]told{}}
	for i := range w.targets {
		t := &w.targets[i]
		if t.terminating && len(t.verdict.Due(w.now)) > 0 {
			n.once(t.name+"/terminating", "terminating", func() {
				r.Log.WithName("MHCChecker").Info("ignoring unhealthy Node, "+terminatingText, "NodeName", t.name)
			})
		}
		if text := invalidLabel(t); text != "" && t.verdict.State == health.Unhealthy {
			n.once(t.name+"/label", text, func() { n.add(t, corev1.EventTypeWarning, nhcv1.EventInvalidNodeLabel, "Grant", text) })
		}
	}
	for i := range outcomes {
		n.outcome(&outcomes[i])
	}
	last.told = n.holds
	return n.notes
}

func (n *telling) outcome(o *outcome) {
	t := o.target
	if o.gaveUp {
		n.add(t, corev1.EventTypeWarning, nhcv1.EventRemediationTimedOut, "Escalate", o.why)
	}
	for _, text := range o.passed {
		if o.made != nil {
			n.add(t, corev1.EventTypeWarning, nhcv1.EventRemediationSkipped, "Escalate", text)
		}
	}
	if o.made != nil {
		n.add(t, corev1.EventTypeNormal, nhcv1.EventRemediationCreated, "Remediate", "Created remediation object for node "+t.name)
	}
	for _, f := range o.ended {
		n.add(t, corev1.EventTypeNormal, nhcv1.EventRemediationRemoved, "Release",
			fmt.Sprintf("Deleted remediation CR of kind %s with name %s", f.obj.GetKind(), f.obj.GetName()))
	}
	if o.refused != nil {
		text := fmt.Sprintf("No remediation object could be created for node %s: %v", t.name, o.refused)
		n.once(t.name+"/refused", text, func() { n.add(t, corev1.EventTypeWarning, nhcv1.EventRequestFailed, "Remediate", text) })
	}
	if apierrors.IsForbidden(o.untold) { // what else fails may be over in a moment
		text := fmt.Sprintf("The next remedy for node %s is not asked for, since the one before cannot be told to stop: %v", t.name, o.untold)
		n.once(t.name+"/untold", text, func() { n.add(t, corev1.EventTypeWarning, nhcv1.EventRequestFailed, "Escalate", text) })
	}
	if s := o.skipped; s != nil && !s.quiet {
		n.once(t.name, s.Text, func() { n.add(t, s.kind, s.Reason, "Grant", s.Text) })
	}
}

// related is the node that an event is about.
func related(t *target) client.Object {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name = t.name
	if t.node != nil {
		node.UID = t.node.UID
	}
	return node
}

// matched is what t says of itself that meets the first of the check's conditions; nil if it is not unhealthy.
func matched(w *observed, t *target) *health.Signal {
	due := t.verdict.Due(w.now)
	if len(due) == 0 || t.terminating {
		return nil
	}
	return &due[0].Signal
}

// turnNotes are the events about the check itself: one for each of its conditions that turned.
func (r *Reconciler) turnNotes(w *observed, s plan, next *nhcv1.NodeHealthCheck) []recorder.Event {
	var notes []recorder.Event
	add := func(kind, reason, action, text string) {
		notes = append(notes, recorder.Event{Kind: kind, Reason: reason, Action: action, Text: text})
	}
	was, is := conditionOf(w.check, nhcv1.DisabledCondition), conditionOf(next, nhcv1.DisabledCondition)
	conflict := was != nil && was.Status == metav1.ConditionTrue && was.Reason == nhcv1.ConflictReason
	switch {
	case is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason:
	case is.Status == metav1.ConditionFalse:
		add(corev1.EventTypeNormal, nhcv1.EventEnabled, "Validate", enabledMessage)
		if conflict {
			r.quoted(w.check.Name).Info("re-enabling NHC, no conflicting MHC configured in the cluster")
		} else {
			r.quoted(w.check.Name).Info("enabling NHC, valid config, no conflicting MHC configured in the cluster")
		}
	case is.Reason == nhcv1.ConflictReason:
		add(corev1.EventTypeWarning, nhcv1.EventDisabled, "Validate", conflictMessage)
		r.quoted(w.check.Name).Info("disabling NHC in order to avoid conflict with custom MHCs configured in the cluster")
	default:
		add(corev1.EventTypeWarning, nhcv1.EventDisabled, "Validate", fmt.Sprintf("Disabling NHC. Reason: %s, Message: %s", is.Reason, is.Message))
	}
	switch s.storm.Turn {
	case budget.StormBegan:
		add(corev1.EventTypeWarning, nhcv1.EventStormStarted, "Grant", "Storm recovery mode activated - delaying remediation until threshold is reached")
	case budget.StormCooling:
		add(corev1.EventTypeWarning, nhcv1.EventStormCooldown, "Grant", "Storm recovery mode will exit after cooldown delay")
	case budget.StormEnded:
		add(corev1.EventTypeNormal, nhcv1.EventStormEnded, "Grant", "Storm recovery mode deactivated - normal remediation resumed")
	}
	if n := r.holdNote(w, s); n != nil {
		notes = append(notes, *n)
	}
	return notes
}

// terminatingText is why nothing is done about a node that somebody else is ending. (medik8s.)
const terminatingText = "it is terminating and will be handled by MHC"

// quoted is the logger under which the lines about a check are known that documents of others quote.
func (r *Reconciler) quoted(check string) logr.Logger {
	return r.Log.WithName("controllers").WithName("NodeHealthCheck").WithValues("NodeHealthCheck", "/"+check)
}

// holdNote is the event about what keeps all nodes from being remediated, when it begins to keep one from it and every hour.
func (r *Reconciler) holdNote(w *observed, s plan) *recorder.Event {
	last, hold := r.memory.of(w.check.Name), s.hold()
	if hold.Reason == "" || s.population.Waiting == 0 {
		last.hold = told{}
		return nil
	}
	if !last.hold.again(hold.Reason, w.now) || hold.Reason == nhcv1.DisabledReason {
		return nil
	}
	last.hold = told{hold.Reason, w.now}
	n := &recorder.Event{Kind: corev1.EventTypeWarning, Reason: nhcv1.EventRemediationSkipped, Action: "Grant", Text: hold.Text}
	switch hold.Reason {
	case nhcv1.PausedReason:
		n.Kind = corev1.EventTypeNormal
	case nhcv1.UpgradeReason:
		n.Kind, n.Text = corev1.EventTypeNormal, postponedByUpgrade
	}
	return n
}

func conditionOf(check *nhcv1.NodeHealthCheck, kind string) *metav1.Condition {
	return meta.FindStatusCondition(check.Status.Conditions, kind)
}
