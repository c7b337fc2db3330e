package history

import (
	"cmp"
	"slices"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Reasons of the entries of a record, beside those of its steps.
const (
	decidedReason  = "RemediationDecided"
	observedReason = "RemediationObserved"
	begunReason    = "RemediationBegun"
	backReason     = "CapacityBack"
	endedReason    = "RemediationEnded"
)

// Concerns reports whether a record belongs to the scope. It is cheap: there may be ten thousands.
func (s Scope) Concerns(r *mendv1.RemediationRecord) bool {
	target, replacement := &r.Spec.Target, &mendv1.RecordReplacement{}
	if r.Status.Replacement != nil {
		replacement = r.Status.Replacement
	}
	switch {
	case !s.in(r), r.Status.Ended != nil && r.Status.Ended.Time.Before(s.Since):
		return false
	case s.Machine != "":
		return isNamed(target.Machine, s.Machine) || replacement.Machine.Name == s.Machine
	case s.Host != "":
		return isNamed(target.Host, s.Host) || isNamed(replacement.Host, s.Host)
	case s.Node != "":
		return isNamed(target.Node, s.Node) || isNamed(replacement.Node, s.Node)
	}
	return s.Cluster == "" || target.ClusterName == s.Cluster
}

func isNamed(r *mendv1.RecordRef, name string) bool { return r != nil && r.Name == name }

// span is a time during which an object belonged to a remediation. Before and after it a host has other machines.
type span struct{ from, until time.Time }

// addRecorded adds what a record of the scope is about: its machine and requests for good, its node and host for the time of the remediation.
func (w *within) addRecorded(r *mendv1.RemediationRecord, now time.Time) {
	target := &r.Spec.Target
	if target.Machine != nil {
		w.add(recordRef(target.Machine, r))
	}
	for i := range r.Status.Requests {
		w.add(recordRef(&r.Status.Requests[i], r))
	}
	during := span{r.Spec.Decided.Time, now}
	if since := r.Spec.UnhealthySince; since != nil {
		during.from = since.Time
	}
	if r.Status.Ended != nil {
		during.until = r.Status.Ended.Time
	}
	for _, ref := range []*mendv1.RecordRef{target.Node, target.Host} {
		if ref != nil {
			is := recordRef(ref, r)
			w.spans[is] = append(w.spans[is], during)
		}
	}
}

// covers reports whether an entry is about what a remediation of the scope was about at that time.
func (w *within) covers(e Entry) bool {
	for _, during := range w.spans[e.Object] {
		if !e.At.Before(during.from.Add(-alike)) && !e.At.After(during.until.Add(alike)) {
			return true
		}
	}
	return false
}

// recordRef is what a record names, as this history names it. The kinds of Cluster API that a record waits for have no namespace in it: they are in its own.
func recordRef(ref *mendv1.RecordRef, r *mendv1.RemediationRecord) explain.Ref {
	is := explain.Ref{Kind: ref.Kind, Namespace: cmp.Or(ref.Namespace, r.Namespace), Name: ref.Name}
	switch ref.Kind {
	case nodeKind, nodeCheckKind, "VolumeAttachment": // kinds without namespaces
		is.Namespace = ""
	}
	return is
}

// ofRecord are what was decided, the steps, and what the rest of a record says that no step does.
func ofRecord(r *mendv1.RemediationRecord) []Entry {
	target, status := explain.Ref{}, &r.Status
	if ref := cmp.Or(r.Spec.Target.Machine, r.Spec.Target.Node, r.Spec.Target.Host); ref != nil {
		target = recordRef(ref, r)
	}
	self := explain.Ref{Kind: "RemediationRecord", Namespace: r.Namespace, Name: r.Name}
	all := make([]Entry, 0, len(status.Steps)+4)
	add := func(at time.Time, reason, text string, warning bool) {
		all = append(all, Entry{At: at, Object: target, Reason: reason, Text: text, Source: FromRecord, Warning: warning, Record: self})
	}
	reason, why := decidedOf(r)
	add(r.Spec.Decided.Time, reason, why, false)
	for i := range status.Steps {
		step := &status.Steps[i]
		add(step.Time.Time, step.Reason, step.Message, false)
		if step.Object != nil {
			all[len(all)-1].Object = recordRef(step.Object, r)
		}
	}
	if at := status.Begun; at != nil && !happens(status.Steps, at.Time, begunReason) {
		add(at.Time, begunReason, explain.RecordBegun(status.BegunBy), false)
	}
	if at := status.CapacityBack; at != nil && !happens(status.Steps, at.Time, backReason) {
		replacement, guessed := "", false
		if by := status.Replacement; by != nil {
			replacement, guessed = by.Machine.Name, by.Guessed
		}
		add(at.Time, backReason, explain.RecordCapacityBack(replacement, guessed), false)
	}
	if at := status.Ended; at != nil && !happens(status.Steps, time.Time{}, endedReason, mendv1.RecordEnded, string(status.Outcome)) {
		add(at.Time, endedReason, explain.RecordEnded(string(status.Outcome), status.EndedBy), status.Outcome == mendv1.RecordGivenUp)
	}
	return all
}

// happens reports whether there is a step of one of these reasons, or of that second.
func happens(steps []mendv1.RecordStep, at time.Time, reasons ...string) bool {
	return slices.ContainsFunc(steps, func(s mendv1.RecordStep) bool {
		return slices.Contains(reasons, s.Reason) || s.Time.Sub(at).Abs() < time.Second
	})
}

// decidedOf is the reason and the text of what was decided.
func decidedOf(r *mendv1.RemediationRecord) (reason, text string) {
	var check explain.Ref
	if ref := r.Spec.Requester.Check; ref != nil {
		check = recordRef(ref, r)
		check.Namespace = "" // that of the target, which is beside it
	}
	observed := r.Spec.Mode == mendv1.RecordObserved
	switch {
	case r.Spec.BlockedBy != "":
		return observedReason, "remediation by others; kubemend would not have begun it: " + r.Spec.BlockedBy
	case observed:
		return observedReason, explain.RecordDecided(true, r.Spec.Cause, check, r.Spec.Requester.User)
	}
	return decidedReason, explain.RecordDecided(false, r.Spec.Cause, check, r.Spec.Requester.User)
}
