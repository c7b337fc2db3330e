package nodehealthcheck

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// A node may become bad again while a request of the last time is still there: it was deleted when the node was healthy, or gone, and its remediator
// has not let go of it. It may be at work, or nobody may be. So the new failure begins with that request: it is a step of it, with the time that it
// had left when it was deleted. Until something could be begun for the node, though, nothing is begun with it either.
// (docs/adr/0036-a-new-failure-begins-with-what-is-left-of-the-last.md)

// begunAt is from when on the time of f's step counts, of which was is what the status says.
func (w *observed) begunAt(f *found, was *listed) time.Time {
	switch {
	case f.over:
		return w.now.Add(-max(0, f.obj.GetDeletionTimestamp().Sub(f.started())))
	case was != nil && was.remediation.Started.After(f.started()):
		return was.remediation.Started.Time
	}
	return f.started()
}

// former reports whether f was made before the node was healthy, or gone, the last time.
func (f *found) former() bool { return f.over || f.begun.After(f.started()) }

// begun reports whether something is done about the node of t: there are requests, and not only those of the last time.
func (t *target) begun() bool {
	return len(t.unseen) > 0 || slices.ContainsFunc(t.requests, func(f *found) bool { return !f.over })
}

// adopted: what is left of the last time is what the failure begins with.
func (s *step) adopted() {
	for _, f := range s.target.requests {
		if f.over {
			s.adopt = append(s.adopt, f)
		}
	}
}

// wellSince is since when the node of t is healthy, or gone, as the status remembers it; nil if it is neither. A node that is bad again keeps it as
// long as nothing was begun about it, while requests of the last time are there.
func (t *target) wellSince(w *observed, o *outcome) *metav1.Time {
	i := slices.IndexFunc(t.requests, func(f *found) bool { return f.over })
	if !t.wellOrGone() && (i < 0 || t.begun() || len(o.adopt) > 0) {
		return nil
	}
	switch {
	case t.missing:
		return ptr.To(metav1.NewTime(t.missedSince.Truncate(time.Second)))
	case t.listed != nil && t.listed.ConditionsHealthyTimestamp != nil:
		return t.listed.ConditionsHealthyTimestamp
	case !t.wellOrGone():
		return t.requests[i].obj.GetDeletionTimestamp()
	}
	return ptr.To(metav1.NewTime(w.now.Truncate(time.Second)))
}

// stillDeleted says that a request of the last time is waited for, which is still being deleted. With a ladder its time ends that.
func (t *target) stillDeleted(answer escalation.Step) *skip {
	i := slices.IndexFunc(t.requests, (*found).former)
	if i < 0 || answer.Do != escalation.Wait || answer.Reason != escalation.AwaitingDeletion || t.verdict.State != health.Unhealthy {
		return nil
	}
	obj := t.requests[i].obj
	key := client.ObjectKeyFromObject(obj)
	s := warning("Skipped remediation of node: %s, because %s %s of the last time is still being deleted: its remediator has not let go of it",
		t.name, obj.GetKind(), key)
	if answer.Recheck.IsZero() {
		return s.by("find out why its remediator keeps its finalizers")
	}
	s.Until = answer.Recheck
	return s.until("%s %s is gone, or its time is over", obj.GetKind(), key)
}
