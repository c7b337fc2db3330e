package nodehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// statusAfter is what the check says after a reconcile. It is made anew from what was observed and done: from the requests, not from what it
// said before. Only moments that nothing else remembers are taken over.
func statusAfter(w *observed, p *nodes.Plan, outcomes []outcome) *nhcv1.NodeHealthCheck {
	next := w.check.DeepCopy()
	st := &next.Status
	st.ObservedNodes, st.HealthyNodes, st.InFlightRemediations = ptr.To(p.Population.Total()), ptr.To(p.Population.Healthy), nil
	done := make(map[int]*outcome, len(outcomes))
	for k := range outcomes {
		done[outcomes[k].i] = &outcomes[k]
	}
	st.UnhealthyNodes = nil
	remediating := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.made != nil })
	for i := range w.facts.Nodes {
		o := done[i]
		if o == nil {
			o = &outcome{Decision: &p.Decisions[i], i: i, n: &w.facts.Nodes[i], is: &w.objects[i]}
		}
		remediating = remediating || o.remediated()
		if entry := entryOf(w, o); entry != nil {
			st.UnhealthyNodes = append(st.UnhealthyNodes, *entry)
		}
	}
	st.UnhealthyNodes = bounded(st.UnhealthyNodes)
	st.Conditions = explain.NodeConditions(&w.facts, p)
	n := -1
	if remediating { // there are requests; what the status only remembers are none
		n = len(st.UnhealthyNodes)
	}
	st.Phase, st.Reason = explain.NodePhase(st.Conditions, w.check.Spec.PauseRequests, n)
	return next
}

// mostListed is how many nodes a status lists. One that does not fit into the API server's store could never be written again.
const mostListed = 1000

// bounded leaves out what is too much: first nodes that nothing is done about, then others. Their requests speak for themselves.
func bounded(list []nhcv1.UnhealthyNode) []nhcv1.UnhealthyNode {
	if len(list) <= mostListed {
		return list
	}
	room := mostListed
	for i := range list {
		if len(list[i].Remediations) > 0 {
			room--
		}
	}
	list = slices.DeleteFunc(list, func(n nhcv1.UnhealthyNode) bool {
		if len(n.Remediations) > 0 {
			return false
		}
		room--
		return room < 0
	})
	return list[:min(len(list), mostListed)]
}

// entryOf is what the status says of a node; nil if it says nothing.
func entryOf(w *observed, o *outcome) *nhcv1.UnhealthyNode {
	entry := &nhcv1.UnhealthyNode{Name: o.n.Name, Remediations: remediationsOf(w, o)}
	newlyPending := o.Verdict.State == health.Pending && (o.is.listed == nil || o.is.listed.ConditionsHealthyTimestamp != nil)
	switch {
	case len(entry.Remediations) > 0, o.Missing:
	case o.healthyOrGone(), o.Left, newlyPending, !o.n.Selected:
		return nil
	}
	entry.ConditionsHealthyTimestamp = o.healthySince(w) // also of one that is gone: what comes back under its name begins at the first step, too
	if o.Delayed || o.AwaitsRepeat(&w.facts, o.n, o.ended) {
		entry.HealthyDelayed = ptr.To(true)
	}
	return entry
}

func (o *outcome) healthyOrGone() bool { return !o.n.Exists || o.Verdict.State == health.Healthy }

// remediated reports whether there are requests for the node.
func (o *outcome) remediated() bool { return len(o.n.Requests)+len(o.n.Unseen) > 0 }

// healthySince is since when the node is healthy, or gone, as the status remembers it; nil if it is neither. A node that is unhealthy again keeps it as
// long as nothing was begun about it, while requests of the last time are there.
func (o *outcome) healthySince(w *observed) *metav1.Time {
	over := slices.IndexFunc(o.Requests, func(r nodes.RequestState) bool { return r.Over })
	if !o.healthyOrGone() && (over < 0 || !o.first() || len(o.Adopt) > 0) {
		return nil
	}
	switch {
	case o.Missing:
		return ptr.To(metav1.NewTime(o.MissedSince.Truncate(time.Second)))
	case o.is.listed != nil && o.is.listed.ConditionsHealthyTimestamp != nil:
		return o.is.listed.ConditionsHealthyTimestamp
	case !o.healthyOrGone():
		return o.is.requests[over].obj.GetDeletionTimestamp()
	}
	return ptr.To(metav1.NewTime(w.facts.Now.Truncate(time.Second)))
}

// remediationsOf are the requests for a node after o: those that are there, the one that was made, and of those that are gone the ones that
// matter still.
func remediationsOf(w *observed, o *outcome) []nhcv1.Remediation {
	var all []nhcv1.Remediation
	for j := range o.n.Requests {
		if slices.Contains(o.ended, j) && !o.n.Requests[j].Kept {
			continue // nothing keeps it
		}
		all = append(all, remediationOf(w, o, j))
	}
	if o.made != nil {
		all = append(all, nhcv1.Remediation{
			Resource: referenceTo(o.made), Started: o.made.GetCreationTimestamp(), TemplateName: o.made.GetAnnotations()[nhcv1.TemplateNameAnnotation],
		})
	}
	all = append(all, o.is.unseen...)
	for _, j := range o.Remember {
		all = append(all, o.is.gone[j])
	}
	slices.SortStableFunc(all, func(a, b nhcv1.Remediation) int {
		return cmp.Or(a.Started.Compare(b.Started.Time), cmp.Compare(a.Resource.Kind, b.Resource.Kind), cmp.Compare(a.Resource.Name, b.Resource.Name))
	})
	return all
}

func remediationOf(w *observed, o *outcome, j int) nhcv1.Remediation {
	r, state := &o.n.Requests[j], o.Requests[j]
	is := nhcv1.Remediation{
		Resource: referenceTo(o.is.requests[j].obj), Started: o.is.requests[j].obj.GetCreationTimestamp(), TemplateName: r.Template,
	}
	if is.TemplateName == "" && r.Step >= 0 {
		is.TemplateName = w.facts.Templates[r.Step].Name
	}
	if state.Former(r) && (!state.Over || slices.Contains(o.Adopt, j)) {
		is.Started = metav1.NewTime(state.Counted.Truncate(time.Second))
	}
	switch {
	case !r.GivenUp.IsZero():
		is.TimedOut = ptr.To(metav1.NewTime(r.GivenUp))
	case o.gaveUp && slices.Contains(o.GiveUp, j):
		is.TimedOut = ptr.To(metav1.NewTime(w.facts.Now.Truncate(time.Second)))
	}
	return is
}

func referenceTo(obj *unstructured.Unstructured) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
	}
}

// record writes the status if it differs. What others wrote to it since it was read is not overwritten.
func (r *Reconciler) record(ctx context.Context, w *observed, next *nhcv1.NodeHealthCheck) error {
	if equality.Semantic.DeepEqual(w.check.Status, next.Status) {
		return nil
	}
	next.Status.LastUpdateTime = ptr.To(metav1.NewTime(w.facts.Now.Truncate(time.Second)))
	patch := client.MergeFromWithOptions(w.check, client.MergeFromWithOptimisticLock{})
	err := r.Client.Status().Patch(ctx, next.DeepCopy(), patch)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of NodeHealthCheck %s: %w", w.check.Name, err)
	}
	return nil
}

func conditionOf(check *nhcv1.NodeHealthCheck, kind string) *metav1.Condition {
	return meta.FindStatusCondition(check.Status.Conditions, kind)
}

// send sends events about what was saved, all of them on the check, and logs one line for each.
func (r *Reconciler) send(ctx context.Context, w *observed, all []recorder.Event) {
	about := &nhcv1.NodeHealthCheck{TypeMeta: metav1.TypeMeta{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck"}}
	about.Name, about.UID, about.ResourceVersion = w.check.Name, w.check.UID, w.check.ResourceVersion
	for _, n := range all {
		text := n.Text
		n.About, n.Text = about, nhcv1.EventPrefix+text
		recorder.Send(r.Recorder, n)
		log.FromContext(ctx).Info("Reported an event", "reason", n.Reason, "note", text)
	}
}

// reports collects the events of a reconcile. What goes on being so is reported when it begins, and then every hour, which is as long as an event is
// kept: was is what was reported of what goes on, is what goes on now.
type reports struct {
	now     time.Time
	events  []recorder.Event
	was, is map[string]reported
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

// reportAgain is after how long what goes on is reported once more.
const reportAgain = time.Hour

func (n *reports) add(about *nodes.Node, e recorder.Event) {
	e.Related = related(about)
	n.events = append(n.events, e)
}

// once reports a text that is about what goes on, known by key, unless that was reported lately.
func (n *reports) once(key, text string, report func()) {
	last := n.was[key]
	if last.again(text, n.now) {
		last = reported{text, n.now}
		report()
	}
	n.is[key] = last
}

func (n *reports) eventOnce(key string, about *nodes.Node, e recorder.Event) {
	n.once(key, e.Text, func() { n.add(about, e) })
}

// unhealthyEvents are the events about nodes that were found to be unhealthy. They are sent when the status was saved, by which it is known
// that they were: a reconcile that saw an old one would send them again.
func unhealthyEvents(w *observed, p *nodes.Plan) []recorder.Event {
	n := &reports{}
	for i := range w.facts.Nodes {
		o := outcome{Decision: &p.Decisions[i], n: &w.facts.Nodes[i], is: &w.objects[i]}
		if o.remediated() && o.first() && len(o.Adopt) == 0 {
			continue // that it was healthy is kept in the status until something begins
		}
		listed := o.is.listed
		unlisted := listed == nil && len(w.check.Status.UnhealthyNodes) < mostListed // of others it is not known whether it was reported
		due := o.Verdict.Due(w.facts.Now)
		if len(due) > 0 && !o.Left && o.n.Selected && (unlisted || listed != nil && listed.ConditionsHealthyTimestamp != nil) {
			n.add(o.n, recorder.Normal(nhcv1.EventDetectedUnhealthy, "Judge",
				"Node matches unhealthy condition. Node %q, condition type %q, condition status %q", o.n.Name, due[0].Signal.Type,
				due[0].Signal.Status))
		}
	}
	return n.events
}

// nodeEvents are the events about what was done about nodes: one for each change.
func (r *Reconciler) nodeEvents(w *observed, p *nodes.Plan, outcomes []outcome) []recorder.Event {
	last := r.memory.of(w.check.Name)
	n := &reports{now: w.facts.Now, was: last.reported, is: map[string]reported{}}
	for i := range w.facts.Nodes {
		about, d := &w.facts.Nodes[i], &p.Decisions[i]
		if d.Left && len(d.Verdict.Due(w.facts.Now)) > 0 {
			n.once(about.Name+"/terminating", "terminating", func() {
				r.Log.WithName("MHCChecker").Info("ignoring unhealthy Node, "+explain.TerminatingText, "NodeName", about.Name)
			})
		}
		if about.ExcludedEmpty && d.Verdict.State == health.Unhealthy {
			n.eventOnce(about.Name+"/label", about, recorder.Warning(nhcv1.EventInvalidNodeLabel, "Grant",
				"Node %s has exclude-from-remediation label "+
					"with empty value, label will be ignored. Set value to 'true' to exclude node from remediation", about.Name))
		}
	}
	for k := range outcomes {
		n.outcome(w, p, &outcomes[k])
	}
	last.reported = n.is
	return n.events
}

func (n *reports) outcome(w *observed, p *nodes.Plan, o *outcome) {
	name := o.n.Name
	if o.gaveUp {
		n.add(o.n, recorder.Warning(nhcv1.EventRemediationTimedOut, "Escalate", "%s.", explain.EscalationText(&w.facts, o.GaveUp)))
	}
	if o.made != nil {
		for _, step := range o.PassedOver {
			n.add(o.n, explain.StepPassedOver(&w.facts, o.n, step))
		}
		n.add(o.n, recorder.Normal(nhcv1.EventRemediationCreated, "Remediate", "Created remediation object for node %s", name))
	}
	for _, j := range o.ended {
		ref := o.n.Requests[j].Ref
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
	if e, is := explain.NodeBlocked(&w.facts, p, name, o.Blocker()); is {
		n.eventOnce(name, o.n, e)
	}
}

// related is the node that an event is about.
func related(n *nodes.Node) client.Object {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name, node.UID = n.Name, types.UID(n.ID)
	return node
}

// checkEvents are the events about the check itself: one for each of its conditions that turned.
func (r *Reconciler) checkEvents(w *observed, p *nodes.Plan, next *nhcv1.NodeHealthCheck) []recorder.Event {
	r.logTurned(w, next)
	all := explain.CheckTurned(&w.facts, p, next.Status.Conditions)
	last, blocker := r.memory.of(w.check.Name), p.Blocker()
	switch {
	case blocker.Reason == "" || p.Population.Waiting == 0:
		last.blocker = reported{}
	case last.blocker.again(string(blocker.Reason), w.facts.Now) && blocker.Reason != nodes.CheckDisabled:
		last.blocker = reported{string(blocker.Reason), w.facts.Now}
		all = append(all, explain.NodesBlocked(&w.facts, p))
	}
	return all
}

// logTurned logs the lines that documents of others quote when a check becomes disabled, or enabled.
func (r *Reconciler) logTurned(w *observed, next *nhcv1.NodeHealthCheck) {
	was, is := conditionOf(w.check, nhcv1.DisabledCondition), conditionOf(next, nhcv1.DisabledCondition)
	if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	quoted := r.Log.WithName("controllers").WithName("NodeHealthCheck").WithValues("NodeHealthCheck", "/"+w.check.Name)
	conflict := was != nil && was.Status == metav1.ConditionTrue && was.Reason == nhcv1.ConflictReason
	switch {
	case is.Status == metav1.ConditionFalse && conflict:
		quoted.Info("re-enabling NHC, no conflicting MHC configured in the cluster")
	case is.Status == metav1.ConditionFalse:
		quoted.Info("enabling NHC, valid config, no conflicting MHC configured in the cluster")
	case is.Reason == nhcv1.ConflictReason:
		quoted.Info("disabling NHC in order to avoid conflict with custom MHCs configured in the cluster")
	}
}
