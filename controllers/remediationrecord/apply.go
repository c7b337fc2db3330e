package remediationrecord

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
)

// apply writes what differs, in one write, unless the record has changed meanwhile: another writer may say that the remediation is about to
// begin. Words alone, such as the pods that block a drain, are written once a minute at most.
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
		if after.Status.Begun != nil && len(repeats.SubjectsOf(after)) > 0 { // what it is about may fail again
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

// onlyWords reports whether nothing but messages of conditions differ.
func onlyWords(before, after *mendv1.RemediationRecord) bool {
	same := after.Status.DeepCopy()
	for i := range same.Conditions {
		if cond := meta.FindStatusCondition(before.Status.Conditions, same.Conditions[i].Type); cond != nil {
			same.Conditions[i].Message = cond.Message
		}
	}
	return equality.Semantic.DeepEqual(*same, before.Status)
}

// statusOf is the status of the record by plan.
func statusOf(o *observed, plan Plan) mendv1.RemediationRecordStatus {
	status := *plan.Status.DeepCopy()
	for i := range status.Steps {
		if step := &status.Steps[i]; step.Message == "" {
			step.Message = o.text(step.Reason, ptr.Deref(step.Object, mendv1.RecordRef{}))
		}
	}
	for _, c := range conditionsOf(o, plan) {
		c.LastTransitionTime = metav1.NewTime(o.facts.Now.Truncate(time.Second))
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

// text is a step, or what is waited for, as a sentence.
func (o *observed) text(reason string, object mendv1.RecordRef) string {
	if o.story != nil && reason == o.story.Reason {
		return o.story.Message
	}
	target := TargetOf(o.record)
	return stepText(reason, target.Kind+" "+target.Name, object)
}

// conditionsOf are the conditions that a plan sets. Those that it does not know anything of stay as they are.
func conditionsOf(o *observed, plan Plan) []metav1.Condition {
	status, conds := &plan.Status, begunOf(o, plan)
	back := metav1.Condition{Type: mendv1.RecordCapacityBack, Status: metav1.ConditionFalse}
	switch {
	case !status.Ended.IsZero():
		back.Reason, back.Message = string(status.Outcome), o.text(string(status.Outcome), mendv1.RecordRef{})
		end := metav1.Condition{Type: mendv1.RecordEnded, Status: metav1.ConditionTrue, Reason: back.Reason, Message: back.Message}
		if !status.CapacityBack.IsZero() {
			back.Status = metav1.ConditionTrue
		}
		return append(conds, back, end)
	case plan.Waiting == "":
		return conds
	}
	back.Reason, back.Message = plan.Waiting, o.text(plan.Waiting, plan.Object)
	stored := meta.FindStatusCondition(o.record.Status.Conditions, back.Type)
	unread := plan.Object == (mendv1.RecordRef{}) && (o.story == nil || o.story.Reason != plan.Waiting)
	if unread && stored != nil && stored.Reason == back.Reason {
		back.Message = stored.Message // what could not be read now is no news
	}
	return append(conds, back)
}

// begunOf says whether the remediation was begun; nothing before that is known.
func begunOf(o *observed, plan Plan) []metav1.Condition {
	cond := metav1.Condition{Type: mendv1.RecordBegun, Status: metav1.ConditionTrue}
	step := first(&plan.Status, OwnerRequested, RequestCreated)
	switch {
	case !plan.Status.Begun.IsZero() && step != nil:
		cond.Reason = step.Reason
	case !plan.Status.Begun.IsZero():
		return nil
	case o.facts.Target.Known && !o.facts.Target.Exists:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionUnknown, TargetGone, o.text(TargetGone, mendv1.RecordRef{})
	case !plan.Status.Ended.IsZero():
		cond.Status, cond.Reason = metav1.ConditionFalse, NotBegun
	default:
		return nil
	}
	return []metav1.Condition{cond}
}
