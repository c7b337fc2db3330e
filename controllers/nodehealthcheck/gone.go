package nodehealthcheck

import (
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// nodeAway is how long a node may be gone while a remediator has its finalizer on a request that it has not answered: it may have deleted the Node,
// to make it again. (Poison Pill and Self Node Remediation before v0.8 do, while the node reboots.)
const nodeAway = 10 * time.Minute

// orphaned: the node is gone, not only out of the selection, so its requests have nothing left to do; but for those that wait (see awaits). The
// lease stays until the last of them is gone, also if Kubernetes deletes it with the node: that may come back under its name.
func (s *step) orphaned(w *observed) {
	kept := false
	for _, f := range s.target.requests {
		if f.leaving() {
			s.lookAgainAt(later(f.obj.GetDeletionTimestamp().Add(remediationrequest.ClingingFor), w.now), "")
			s.stops(f)
		}
		if f.leaving() || f.guessed { // which node is gone is not known
			continue
		}
		if until := w.awaited(s.target, f); w.now.Before(until) {
			s.lookAgainAt(until, nodeStaysAway)
			kept = true
			continue
		}
		s.stops(f)
		s.end = append(s.end, f)
	}
	if kept {
		s.leased(w)
	} else if len(s.target.requests) == 0 {
		s.unleased(w)
	}
}

// stops has the remediator of f told to stop, if it holds on to f: Self Node Remediation lets go of what is about a Node that is gone only then.
func (s *step) stops(f *found) {
	if len(f.obj.GetFinalizers()) > 0 && !f.told && !f.guessed && !f.untellable {
		s.stop = append(s.stop, f)
	}
}

// awaited is until when a request is kept whose node is gone; zero if not at all. Kept are those whose remediator says that the node is meant to go,
// until it has answered; those about a Machine that is still there: whoever remediates it may have taken the node away, to have it come back; and
// for a while those that a remediator has its finalizer on.
func (w *observed) awaited(t *target, f *found) time.Time {
	answer, _ := f.condition(nhcv1.SucceededCondition)
	switch {
	case answer == escalation.Yes || answer == escalation.No:
		return time.Time{}
	case f.says(nhcv1.NodeDeletionExpectedCondition) || f.machine:
		return w.patience(f)
	case len(f.obj.GetFinalizers()) > 0:
		return t.goneSince(w.now).Add(nodeAway)
	}
	return time.Time{}
}

// patience is until when a remediator is waited for that has taken its node away for good: until its time is over. One that has no timeout has as
// long as no request should last.
func (w *observed) patience(f *found) time.Time {
	if f.rung >= 0 && w.remedies[f.rung].timeout > 0 {
		return f.begun.Add(w.remedies[f.rung].timeout)
	}
	return f.started().Add(tooOld)
}

// goneSince is since when the node of t is known to be gone.
func (t *target) goneSince(now time.Time) time.Time {
	if t.listed != nil && t.listed.ConditionsHealthyTimestamp != nil {
		return t.listed.ConditionsHealthyTimestamp.Time
	}
	return now
}
