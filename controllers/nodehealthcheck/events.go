package nodehealthcheck

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// send sends events about what was saved, all of them on the check, and logs one line for each.
func (r *Reconciler) send(ctx context.Context, state *observed, events []recorder.Event) {
	about := &nhcv1.NodeHealthCheck{TypeMeta: metav1.TypeMeta{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck"}}
	about.Name, about.UID, about.ResourceVersion = state.check.Name, state.check.UID, state.check.ResourceVersion
	for _, event := range events {
		text := event.Text
		event.About, event.Text = about, nhcv1.EventPrefix+text
		recorder.Send(r.Recorder, event)
		log.FromContext(ctx).Info("Reported an event", "reason", event.Reason, "note", text)
	}
}

// reports collects the events of a reconcile. What goes on being so is reported when it begins, and then every hour, which is as long as
// an event is kept: before is what was reported of what goes on, ongoing what goes on now.
type reports struct {
	now             time.Time
	events          []recorder.Event
	before, ongoing map[string]reported
}

// reported is what was reported last of something that goes on, and when.
type reported struct {
	text string
	at   time.Time
}

// again reports whether text is to be reported at now.
func (t reported) again(text string, now time.Time) bool {
	return t.text != text || !now.Before(t.at.Add(reportAgain))
}

const reportAgain = time.Hour

func (n *reports) add(about *Node, e recorder.Event) {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name, node.UID = about.Name, types.UID(about.ID())
	e.Related = node
	n.events = append(n.events, e)
}

// once reports a text that is about what goes on, known by key, unless that was reported lately.
func (n *reports) once(key, text string, report func()) {
	last := n.before[key]
	if last.again(text, n.now) {
		last = reported{text, n.now}
		report()
	}
	n.ongoing[key] = last
}

func (n *reports) eventOnce(key string, about *Node, e recorder.Event) {
	n.once(key, e.Text, func() { n.add(about, e) })
}

// unhealthyEvents are the events about nodes that were found to be unhealthy. They are sent when the status was saved, by which it is known
// that they were: a reconcile that saw an old one would send them again.
func unhealthyEvents(state *observed, outcomes []outcome) []recorder.Event {
	n := &reports{}
	for i := range outcomes {
		o := &outcomes[i]
		if o.n.Remediated() && o.first() && len(o.Adopt) == 0 {
			continue // that it was healthy is kept in the status until something begins
		}
		listed := o.n.Listed
		unlisted := listed == nil && len(state.check.Status.UnhealthyNodes) < mostListed // of others it is not known whether it was reported
		due := o.Verdict.Due(state.facts.Now)
		if len(due) > 0 && !o.Left && o.n.Selected && (unlisted || listed != nil && listed.ConditionsHealthyTimestamp != nil) {
			n.add(o.n, recorder.Normal(nhcv1.EventDetectedUnhealthy, "Judge",
				"Node matches unhealthy condition. Node %q, condition type %q, condition status %q", o.n.Name, due[0].Signal.Type,
				due[0].Signal.Status))
		}
	}
	return n.events
}

// nodeEvents are the events about what was done about nodes: one for each change.
func (r *Reconciler) nodeEvents(state *observed, plan *Plan, outcomes []outcome) []recorder.Event {
	last := r.memory.of(state.check.Name)
	n := &reports{now: state.facts.Now, before: last.reported, ongoing: map[string]reported{}}
	for i := range state.facts.Nodes {
		about, d := &state.facts.Nodes[i], &plan.Decisions[i]
		if d.Left && len(d.Verdict.Due(state.facts.Now)) > 0 {
			n.once(about.Name+"/terminating", "terminating", func() {
				r.Log.WithName("MHCChecker").Info("ignoring unhealthy Node, "+TerminatingText, "NodeName", about.Name)
			})
		}
		if _, empty := about.Excluded(); empty && d.Verdict.State == health.Unhealthy {
			n.eventOnce(about.Name+"/label", about, recorder.Warning(nhcv1.EventInvalidNodeLabel, "Grant",
				"Node %s has exclude-from-remediation label "+
					"with empty value, label will be ignored. Set value to 'true' to exclude node from remediation", about.Name))
		}
	}
	for _, i := range plan.Order {
		n.outcome(state, &outcomes[i])
	}
	if blocker := plan.Blocker(); blocker.Reason != "" && blocker.Reason != CheckDisabled && plan.Population.Waiting > 0 {
		n.once("", string(blocker.Reason), func() { n.events = append(n.events, blockedEvent(blocker)) })
	}
	last.reported = n.ongoing
	return n.events
}

func (n *reports) outcome(state *observed, o *outcome) {
	name := o.n.Name
	if o.gaveUp {
		n.eventOnce(name+"/gaveUp", o.n,
			recorder.Warning(nhcv1.EventRemediationTimedOut, "Escalate", "%s.", EscalationText(&state.facts, o.GaveUp)))
	}
	if o.made != nil {
		if o.Answer.Reason == passedOver {
			template := &state.facts.Templates[o.Start-1]
			_, why := template.Unsuitable(o.n)
			n.add(o.n, recorder.Warning(nhcv1.EventRemediationSkipped, "Escalate",
				"Passed over %s for node %s, because %s", template.Place(), name, why))
		}
		n.add(o.n, recorder.Normal(nhcv1.EventRemediationCreated, "Remediate", "Created remediation object for node %s", name))
	}
	for _, j := range o.ended {
		ref := o.n.Requests[j].Ref()
		n.add(o.n, recorder.Normal(nhcv1.EventRemediationRemoved, "Release",
			"Deleted remediation CR of kind %s with name %s", ref.Kind, ref.Name))
	}
	if o.refused != nil {
		n.eventOnce(name+"/refused", o.n, recorder.Warning(nhcv1.EventRequestFailed, "Remediate",
			"No remediation object could be created for node %s: %v", name, o.refused))
	}
	if apierrors.IsForbidden(o.notNotified) { // what else fails may be over in a moment
		n.eventOnce(name+"/notNotified", o.n, recorder.Warning(nhcv1.EventRequestFailed, "Escalate",
			"The next step for node %s does not start, since the remediator before cannot be notified to stop: %v", name, o.notNotified))
	}
	if o.Verdict.State != health.Unhealthy {
		return
	}
	if b := o.Blocker(); b.Cause != "" && !b.Quiet {
		n.eventOnce(name, o.n, recorder.Warning(b.Blocker.Reason, "Grant", "%s", b.Text))
	}
}

// disabledEvents are about the condition Disabled that turned. It logs the lines that documents of others quote then.
func (r *Reconciler) disabledEvents(check, next *nhcv1.NodeHealthCheck) []recorder.Event {
	before, after := conditionOf(check, nhcv1.DisabledCondition), conditionOf(next, nhcv1.DisabledCondition)
	if after == nil || before != nil && before.Status == after.Status && before.Reason == after.Reason {
		return nil
	}
	quoted := r.Log.WithName("controllers").WithName("NodeHealthCheck").WithValues("NodeHealthCheck", "/"+check.Name)
	switch {
	case after.Status == metav1.ConditionFalse:
		if before != nil && before.Status == metav1.ConditionTrue && before.Reason == nhcv1.ConflictReason {
			quoted.Info("re-enabling NHC, no conflicting MHC configured in the cluster")
		} else {
			quoted.Info("enabling NHC, valid config, no conflicting MHC configured in the cluster")
		}
		return []recorder.Event{recorder.Normal(nhcv1.EventEnabled, "Validate", "%s", EnabledMessage)}
	case after.Reason == nhcv1.ConflictReason:
		quoted.Info("disabling NHC in order to avoid conflict with custom MHCs configured in the cluster")
		return []recorder.Event{recorder.Warning(nhcv1.EventDisabled, "Validate", "%s", ConflictMessage)}
	}
	return []recorder.Event{
		recorder.Warning(nhcv1.EventDisabled, "Validate", "Disabling NHC. Reason: %s, Message: %s", after.Reason, after.Message),
	}
}

// ineffectiveEvents are about the condition Effective that turned.
func ineffectiveEvents(check, next *nhcv1.NodeHealthCheck) []recorder.Event {
	before, after := conditionOf(check, mendv1.Effective), conditionOf(next, mendv1.Effective)
	if after == nil || before != nil && before.Message == after.Message {
		return nil
	}
	return []recorder.Event{recorder.Warning(mendv1.EventIneffective, "Validate", "%s", after.Message)}
}

func stormEvents(turn budget.StormTurn) []recorder.Event {
	event, turned := map[budget.StormTurn]recorder.Event{
		budget.StormBegan: recorder.Warning(nhcv1.EventStormStarted, "Grant",
			"Storm recovery mode activated - delaying remediation until threshold is reached"),
		budget.StormCooling: recorder.Warning(nhcv1.EventStormCooldown, "Grant", "Storm recovery mode will exit after cooldown delay"),
		budget.StormEnded:   recorder.Normal(nhcv1.EventStormEnded, "Grant", "Storm recovery mode deactivated - normal remediation resumed"),
	}[turn]
	if !turned {
		return nil
	}
	return []recorder.Event{event}
}

// blockedEvent is about what keeps all nodes from being remediated. What people want is no warning.
func blockedEvent(b Blocker) recorder.Event {
	switch b.Reason {
	case Paused:
		return recorder.Normal(nhcv1.EventRemediationSkipped, "Grant", "%s", b.Text)
	case Upgrading:
		return recorder.Normal(nhcv1.EventRemediationSkipped, "Grant", "%s", PostponedByUpgrade)
	}
	return recorder.Warning(nhcv1.EventRemediationSkipped, "Grant", "%s", b.Text)
}
