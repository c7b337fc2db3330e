package remediationrecord

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// sendEnd sends events about how the remediation has ended: on what asked for it, and on the Machine as long as it exists.
func (r *Reconciler) sendEnd(o *observed, status *mendv1.RemediationRecordStatus) {
	text := o.endText(status)
	if text == "" {
		return
	}
	target := TargetOf(o.record)
	event := recorder.Normal(mendv1.EventCapacityBack, string(status.Outcome), "%s", text)
	if status.CapacityBack.IsZero() {
		event.Reason = mendv1.EventCapacityNotComing
	}
	if status.Outcome == mendv1.RecordGivenUp {
		event.Kind = corev1.EventTypeWarning
	}
	about := o.about(&target)
	if requester := requesterOf(o.record); requester != nil {
		asked := event
		asked.About, asked.Related = o.about(requester), about
		if requester.Kind == nodeCheckKind {
			asked.About.SetNamespace("")
			asked.Text = nhcv1.EventPrefix + event.Text
		}
		recorder.Send(r.Recorder, asked)
	}
	if o.machine != nil && o.machine.Namespace == o.record.Namespace {
		event.About = about
		recorder.Send(r.Recorder, event)
	}
}

// endText is how the remediation has ended; empty if it had no effect.
func (o *observed) endText(status *mendv1.RemediationRecordStatus) string {
	target := TargetOf(o.record)
	what := target.Kind + " " + target.Name
	sentence := stepText(string(status.Outcome), what, mendv1.RecordRef{})
	switch status.Outcome {
	case mendv1.RecordHealed, mendv1.RecordReplaced:
		if by := status.Replacement; by != nil {
			sentence += " (" + by.Machine.Kind + " " + by.Machine.Name + ")"
		}
		due := ptr.Deref(o.record.Spec.Due, o.record.Spec.Decided)
		return fmt.Sprintf("The capacity of %s is back after %s: %s", what, status.CapacityBack.Sub(due.Time).Round(time.Second), sentence)
	case mendv1.RecordGone, mendv1.RecordGivenUp:
		return "The capacity of " + what + " does not come back: " + sentence
	case mendv1.RecordCancelled:
	}
	return ""
}

// requesterOf is what asked for the remediation: the check or, without one, the first request; nil if neither is known. What is in another
// namespace than the record is nothing to send events about: a user who may write records in one must not have the manager write into
// another.
func requesterOf(record *mendv1.RemediationRecord) *mendv1.RecordRef {
	by := record.Spec.Requester.Check
	if by == nil && len(record.Status.Requests) > 0 {
		by = &record.Status.Requests[0]
	}
	if by == nil || by.Namespace != record.Namespace && by.Kind != nodeCheckKind {
		return nil
	}
	return by
}

// about is an object as an event refers to it: by the UID that it has now, by which kubectl describe looks for its events. After a move the
// record knows another one.
func (o *observed) about(ref *mendv1.RecordRef) *metav1.PartialObjectMetadata {
	about := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind}}
	about.Namespace, about.Name = ref.Namespace, ref.Name
	about.UID = types.UID(ref.UID)
	switch {
	case o.machine != nil && ref.Kind == machineKind && ref.Name == o.machine.Name:
		about.UID = o.machine.UID
	case o.check != nil && *ref == *o.record.Spec.Requester.Check:
		about.UID = o.check.GetUID()
	}
	return about
}
