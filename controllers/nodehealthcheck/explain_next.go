package nodehealthcheck

import (
	"context"
	"fmt"
	"slices"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// WithinTimeout is the reason of what holds a node back whose time has not run out.
const WithinTimeout = "WithinTimeout"

// foresee observes as a reconcile does, and once more as it is when the nodes that are not due yet have become unhealthy and nothing else
// has changed: of those alone a reconcile asks whose they are, whether the cluster is upgraded, and whether the control plane can do without them.
func (r *Reconciler) foresee(ctx context.Context, name string, now time.Time) (w, soon *observed, err error) {
	if w, err = r.observe(ctx, name, now, r.memory.copyOf(name)); err != nil || w == nil {
		return nil, nil, err
	}
	ahead := *w
	ahead.targets, ahead.trouble, ahead.first = slices.Clone(w.targets), nil, nil
	suspects := false
	for i := range ahead.targets {
		t := &ahead.targets[i]
		if w.first == &w.targets[i] {
			ahead.first = t
		}
		if t.verdict.State == health.Pending {
			t.verdict.State, suspects = health.Unhealthy, true
		}
	}
	if !suspects || len(w.pending) > 0 {
		return w, &ahead, nil
	}
	r.observeMachines(ctx, &ahead)
	r.observeUpgrade(ctx, &ahead)
	if ahead.first == nil {
		if ahead.first = ahead.nextMember(); ahead.first != nil {
			r.observeOthers(ctx, &ahead)
			ahead.etcd = r.observeEtcd(ctx, &ahead)(ahead.first.name)
		}
	}
	return w, &ahead, nil
}

// nextMember is the node of the control plane that comes due first of those that nothing else will hold up then.
func (w *observed) nextMember() *target {
	var first *target
	for i := range w.targets {
		t := &w.targets[i]
		b, due := beginning{observed: w, t: t}, t.verdict.Recheck
		if !t.startable() || !controlPlane(t.node) || first != nil && !due.Before(first.verdict.Recheck) {
			continue
		}
		if !slices.ContainsFunc(distinct(b.allOf(b.toRemediate())), func(h explain.Blocker) bool { return lasts(h, due) }) {
			first = t
		}
	}
	return first
}

// lasts reports whether h still holds at a moment, as far as time alone decides.
func lasts(h explain.Blocker, at time.Time) bool { return h.Until.IsZero() || h.Until.After(at) }

// notYet is all that keeps a request for t, which is not due yet, from being made: its time, and what would hold it up then, as b foresees it.
func notYet(t *target, b beginning) []explain.Blocker {
	if !t.selected && !t.remediated() {
		return distinct(b.unselected())
	}
	var holds []explain.Blocker
	for _, f := range t.verdict.Findings {
		if f.Due.Equal(t.verdict.Recheck) {
			holds = append(holds, explain.Blocker{Reason: WithinTimeout, Text: fmt.Sprintf("Its timeout of %s has not expired: %s", f.Limit, f.Detail), Until: f.Due})
			break
		}
	}
	if t.remediated() {
		return append(holds, distinct(b.allOf(whatever))...)
	}
	return append(holds, distinct(b.allOf(b.toBegin()))...)
}

// nextOf is the next thing that happens to t, of which is was said, or what a person has to do.
func nextOf(w *observed, t *target, s step, is *explain.Target) explain.Step {
	switch {
	case is.Begins:
		return explain.Step{At: w.now, Text: "kubemend " + is.Would}
	case t.node != nil && !t.selected && !t.remediated():
		return explain.Step{}
	case t.verdict.State == health.Pending:
		return comesDue(t, is)
	case t.verdict.State == health.Unhealthy && len(is.Blockers) > 0:
		return heldUp(s, is)
	case !s.next.At.IsZero():
		return s.next
	case s.delayed:
		return explain.Step{Text: "annotate the node with " + nhcv1.ConfirmedHealthyAnnotation + " to confirm that it is well", Person: true}
	case s.climb.Reason == escalation.NothingFollows:
		return explain.Step{Text: "delete its requests to have the remedy tried again", Person: true}
	case len(s.end) > 0:
		return explain.Step{Text: "kubemend deletes its requests"}
	case t.missing && !t.remediated():
		return explain.Step{At: t.missedSince.Add(controlplane.ReplacementPatience), Text: "it counts no more"}
	case is.InFlight:
		return explain.Step{Text: fmt.Sprintf("%s goes on; it is deleted when the node is well", is.Underway[0])}
	}
	return explain.Step{}
}

// comesDue is what happens when the timeout of t expires.
func comesDue(t *target, is *explain.Target) explain.Step {
	next := explain.Step{At: t.verdict.Recheck, Text: "it counts as unhealthy if nothing changes"}
	if is.InFlight {
		next.Text += ", and its remediation goes on"
		return next
	}
	for _, h := range is.Blockers {
		switch {
		case !lasts(h, next.At):
		case h.Reason == explain.NotSeenByYou:
			next.Text += explain.UntoldThen
			return next
		default:
			next.Text += "; as things stand nothing is done about it then"
			if h.Ends == "" {
				next.Text += ": " + h.Text
			} else {
				next.Text += ", until " + h.Ends
			}
			return next
		}
	}
	next.Text += ", and kubemend " + is.Would
	return next
}

// heldUp is what ends the holds of a node that is unhealthy. Where a person has to do something first, time does nothing.
func heldUp(s step, is *explain.Target) explain.Step {
	var over explain.Step
	for _, h := range is.Blockers {
		if h.Person != "" {
			return explain.Step{Text: h.Person, Person: true}
		}
		over = sooner(over, explain.Step{At: h.Until, Text: h.Ends})
	}
	if first := is.Blockers[0]; over.At.IsZero() {
		return meanwhile(s, first)
	}
	if len(is.Blockers) == 1 {
		over.Text += ", and kubemend " + is.Would
	}
	return over
}

// meanwhile is what happens while h, which time does not end, keeps a node from being remediated.
func meanwhile(s step, h explain.Blocker) explain.Step {
	text := "nothing is done about it: " + h.Text
	if h.Ends != "" {
		text = "nothing is done about it until " + h.Ends
	}
	if s.next.At.IsZero() {
		return explain.Step{Text: text}
	}
	return explain.Step{At: s.next.At, Text: s.next.Text + "; " + text}
}
