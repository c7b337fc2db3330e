package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/recorder"
)

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
		unlisted := listed == nil && len(w.check.Status.UnhealthyNodes) < mostListed // of others nobody knows whether it was reported
		due := o.Verdict.Due(w.facts.Now)
		if len(due) > 0 && !o.Left && o.n.Selected && (unlisted || listed != nil && listed.ConditionsHealthyTimestamp != nil) {
			n.add(o.n, explain.NodeUnhealthy(o.n.Name, due[0].Signal))
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
			n.eventOnce(about.Name+"/label", about, explain.EmptyExcludeLabel(about.Name))
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
		n.add(o.n, explain.StepGivenUp(o.Decision))
	}
	if o.made != nil {
		for _, step := range o.PassedOver {
			n.add(o.n, explain.StepPassedOver(&w.facts, o.n, step))
		}
		n.add(o.n, explain.RequestMade(name))
	}
	for _, j := range o.ended {
		n.add(o.n, explain.RequestEnded(o.n.Requests[j].Ref))
	}
	if o.refused != nil {
		n.eventOnce(name+"/refused", o.n, explain.RequestRefused(name, o.refused))
	}
	if apierrors.IsForbidden(o.notNotified) { // what else fails may be over in a moment
		n.eventOnce(name+"/notNotified", o.n, explain.RemediatorNotNotified(name, o.notNotified))
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

// next says when to reconcile again: at the first moment at which time alone changes something, and sooner if something failed. What failed is
// logged here and not returned, so that it delays the deadlines of no other node.
func (r *Reconciler) next(ctx context.Context, w *observed, p *nodes.Plan, done applied) (ctrl.Result, error) {
	errs, retry := append([]error(nil), w.trouble...), apierrors.IsConflict(done.err)
	if done.err != nil && !retry {
		errs = append(errs, done.err)
	}
	at := p.Recheck
	for k := range done.outcomes {
		o := &done.outcomes[k]
		if o.err != nil {
			errs = append(errs, o.err)
		}
		retry, at = retry || o.again, health.Earliest(at, o.retryAt)
	}
	if r.Resync > 0 {
		at = health.Earliest(at, w.facts.Now.Add(r.Resync))
	}
	if tries := r.memory.tries(w.check.Name, len(errs) > 0 || retry); tries > 0 {
		at = health.Earliest(at, w.facts.Now.Add(enqueue.Backoff(tries)))
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, "Reconcile failed, retrying")
	}
	return enqueue.At(at, r.Clock.Now()), nil
}

// slowRead is after how long a kind that cannot be read is an error, and no longer only slow.
const slowRead = 30 * time.Second

// await waits for kinds that were not read yet: their objects would be taken for none. When it takes too long the check says so.
func (r *Reconciler) await(ctx context.Context, w *observed) (ctrl.Result, error) {
	if r.unread(w) > slowRead {
		return r.reportUnread(ctx, w, nil)
	}
	return ctrl.Result{RequeueAfter: enqueue.MergeWindow}, nil
}

// unread notes that kinds could not be read, and returns for how long that is so.
func (r *Reconciler) unread(w *observed) time.Duration {
	is := r.memory.of(w.check.Name)
	if is.unread.IsZero() {
		is.unread = w.facts.Now
	}
	return w.facts.Now.Sub(is.unread)
}

// reportUnread has the check say which kinds could not be read.
func (r *Reconciler) reportUnread(ctx context.Context, w *observed, why error) (ctrl.Result, error) {
	next := w.check.DeepCopy()
	next.Status.Conditions = explain.NodeConditions(&w.facts, &nodes.Plan{})
	return ctrl.Result{}, errors.Join(
		fmt.Errorf("decide about NodeHealthCheck %s: %s", w.check.Name, explain.KindsAwaited(&w.facts)), why, r.record(ctx, w, next))
}
