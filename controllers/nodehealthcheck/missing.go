package nodehealthcheck

import (
	"slices"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// A remediator that replaces machines says that it has succeeded when the old one is gone, which is long before there is a new node. Until then the
// node is missing: the limits count it as one that is being remediated, or else each replacement would lower the number of which the next ones may take
// their share. It stays in the status, without requests, so that the next manager knows it as well. What ends that is a node that is made after it had
// gone, one for each that is missing, or its own return, or that it takes too long.

// observeMissing finds out which of the nodes that a remediation took away nothing has replaced yet. What one node has replaced, or what has come back, is
// listed no more; so that no node is taken for the replacement of two, the others are missed since then.
func (w *observed) observeMissing() {
	var taken []*target
	for i := range w.targets {
		if t := &w.targets[i]; t.takenAway(w.now) {
			taken = append(taken, t)
		}
	}
	if len(taken) == 0 {
		return
	}
	slices.SortStableFunc(taken, func(a, b *target) int { return a.goneSince(w.now).Compare(b.goneSince(w.now)) })
	made := w.nodesMade()
	for _, t := range taken {
		since := t.goneSince(w.now)
		i := slices.IndexFunc(made, since.Before)
		switch {
		case i < 0:
			t.missing, t.missedSince = true, latest(since, w.newest())
			w.recheck = health.Earliest(w.recheck, t.missedUntil(w.now))
		default:
			made = made[i+1:]
		}
	}
}

// nodesMade is when the selected nodes were made, the oldest first, but for those that had been away themselves.
func (w *observed) nodesMade() []time.Time {
	var made []time.Time
	for i := range w.targets {
		if t := &w.targets[i]; t.selected && t.node != nil && !t.backAgain() {
			made = append(made, t.node.CreationTimestamp.Time)
		}
	}
	slices.SortFunc(made, time.Time.Compare)
	return made
}

// newest is when the newest of the selected nodes was made.
func (w *observed) newest() time.Time {
	var at time.Time
	for i := range w.targets {
		if t := &w.targets[i]; t.selected && t.node != nil {
			at = latest(at, t.node.CreationTimestamp.Time)
		}
	}
	return at
}

// backAgain reports whether the node of t has come back under its name.
func (t *target) backAgain() bool {
	return t.listed != nil && t.listed.ConditionsHealthyTimestamp != nil && t.node.CreationTimestamp.After(t.listed.ConditionsHealthyTimestamp.Time)
}

// takenAway reports whether t is gone since a short time, and a remediation may be why. A person may delete a node too, about which a remediator has said
// nothing: then its request ends at once.
func (t *target) takenAway(now time.Time) bool {
	switch {
	case t.node != nil || len(t.unseen) > 0 || !now.Before(t.missedUntil(now)):
		return false
	case len(t.requests) > 0:
		return slices.ContainsFunc(t.requests, (*found).mayTakeAway)
	}
	return t.listed != nil && (t.listed.ConditionsHealthyTimestamp != nil || len(t.listed.Remediations) > 0)
}

// mayTakeAway reports whether it is known that somebody is, or was, at work on f, whose node is gone.
func (f *found) mayTakeAway() bool {
	answer, _ := f.condition(nhcv1.SucceededCondition)
	return !f.guessed && (answer == escalation.Yes || f.says(nhcv1.NodeDeletionExpectedCondition) || f.machine || len(f.obj.GetFinalizers()) > 0)
}

// missedUntil is until when the node of t is missed, if nothing replaces it: then it is one that there was, and what is not there any more.
func (t *target) missedUntil(now time.Time) time.Time {
	return t.goneSince(now).Add(controlplane.ReplacementPatience)
}
