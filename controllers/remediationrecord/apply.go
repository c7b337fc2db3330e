package remediationrecord

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// apply writes the new status in one patch if it differs. The patch fails if the record has changed meanwhile, because Records may have
// written that the remediation is about to begin. Messages alone, such as the pods that block a drain, are written once a minute at most.
func (r *Reconciler) apply(ctx context.Context, o *observed, plan Plan) (changed bool, err error) {
	if o.facts.Paused {
		return false, nil
	}
	after := o.record.DeepCopy()
	after.Status = statusOf(o, plan)
	Bound(after)
	if equality.Semantic.DeepEqual(o.record.Status, after.Status) {
		return false, nil
	}
	if onlyWords(o.record, after) && o.now.Before(o.memory.written.Add(time.Minute)) {
		return false, nil
	}
	if ended := after.Status.Ended; ended != nil {
		delete(after.Labels, mendv1.RecordOpenLabel)
		if countsUntil(after).After(o.now) {
			metav1.SetMetaDataLabel(&after.ObjectMeta, mendv1.RecordOpenLabel, "false")
		}
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, mendv1.RecordEndedAnnotation, ended.UTC().Format(time.RFC3339))
	}
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(o.record, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, err
	}
	o.memory.written = o.now
	return true, nil
}

// onlyWords reports whether the records differ in messages of conditions only.
func onlyWords(before, after *mendv1.RemediationRecord) bool {
	same := after.Status.DeepCopy()
	for i := range same.Conditions {
		if cond := meta.FindStatusCondition(before.Status.Conditions, same.Conditions[i].Type); cond != nil {
			same.Conditions[i].Message = cond.Message
		}
	}
	return equality.Semantic.DeepEqual(*same, before.Status)
}

// statusOf returns the status of the plan with its messages and conditions.
func statusOf(o *observed, plan Plan) mendv1.RemediationRecordStatus {
	status := *plan.Status.DeepCopy()
	for i := range status.Steps {
		if step := &status.Steps[i]; step.Message == "" {
			step.Message = o.text(step.Reason, ptr.Deref(step.Object, mendv1.RecordRef{}))
		}
	}
	begun, outcome, none := status.Begun != nil, string(status.Outcome), mendv1.RecordRef{}
	switch step := first(&status, OwnerRequested, RequestCreated); { // otherwise Begun stays as it is
	case begun && step != nil:
		o.set(&status, mendv1.RecordBegun, metav1.ConditionTrue, step.Reason, "")
	case !begun && o.facts.Target.gone():
		o.set(&status, mendv1.RecordBegun, metav1.ConditionUnknown, TargetGone, o.text(TargetGone, none))
	case !begun && outcome != "":
		o.set(&status, mendv1.RecordBegun, metav1.ConditionFalse, NotBegun, "")
	}
	switch {
	case outcome != "":
		back := metav1.ConditionFalse
		if status.CapacityBack != nil {
			back = metav1.ConditionTrue
		}
		o.set(&status, mendv1.RecordCapacityBack, back, outcome, o.text(outcome, none))
		o.set(&status, mendv1.RecordEnded, metav1.ConditionTrue, outcome, o.text(outcome, none))
	case plan.Waiting != "":
		o.set(&status, mendv1.RecordCapacityBack, metav1.ConditionFalse, plan.Waiting, o.waitText(plan))
	}
	return status
}

func (o *observed) set(status *mendv1.RemediationRecordStatus, kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(o.facts.Now.Truncate(time.Second)),
	})
}

func (o *observed) text(reason string, object mendv1.RecordRef) string {
	if o.story != nil && reason == o.story.Reason {
		return o.story.Message
	}
	target := TargetOf(o.record)
	return stepText(reason, target.Kind+" "+target.Name, object)
}

// waitText returns the message for what the record waits for. It keeps the stored message if the object could not be read now.
func (o *observed) waitText(plan Plan) string {
	stored := meta.FindStatusCondition(o.record.Status.Conditions, mendv1.RecordCapacityBack)
	unread := plan.Object == (mendv1.RecordRef{}) && (o.story == nil || o.story.Reason != plan.Waiting)
	if unread && stored != nil && stored.Reason == plan.Waiting {
		return stored.Message
	}
	return o.text(plan.Waiting, plan.Object)
}

func (r *Reconciler) sendEnd(o *observed, status *mendv1.RemediationRecordStatus) {
	text, requester := o.endText(status), requesterOf(o.record)
	byCheck := requester != nil && requester.Kind == machineCheckKind && status.Outcome == mendv1.RecordHealed
	if text == "" || byCheck && o.machine != nil && conditions.IsTrue(o.machine, clusterv1.MachineHealthCheckSucceededCondition) {
		return // the check has sent an event about that, on itself and on the Machine
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
	if requester != nil {
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

// endText returns how the remediation has ended; empty if it had no effect.
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

// requesterOf returns the check that asked for the remediation, or else the first request; nil without one. An object of another namespace
// does not count: a user who may write records in one namespace must not have the manager send events in another.
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

// about returns an object for an event with its current UID, by which kubectl describe finds events. After a move the record's UID is old.
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
