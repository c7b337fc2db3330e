package remediationrecord

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// apply writes what differs, in one write, unless the record has changed meanwhile: another writer may say that the remediation is about to begin. What need
// not be written at once is put off until due.
func (r *Reconciler) apply(ctx context.Context, o *observed, plan Plan) (changed bool, due time.Time, err error) {
	if o.facts.Paused {
		return false, time.Time{}, nil
	}
	key, after := client.ObjectKeyFromObject(o.record), o.record.DeepCopy()
	after.Status = statusOf(o, plan)
	Bound(after)
	if equality.Semantic.DeepEqual(o.record.Status, after.Status) {
		return false, time.Time{}, nil
	}
	if due := r.writeAt(o, after, plan); o.now.Before(due) {
		return false, due, nil
	}
	labelled(o, after)
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(o.record, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, time.Time{}, err
	}
	r.remembered(key, func(m *memory) { m.written = o.now })
	return true, time.Time{}, nil
}

// writeAt is when a change of a record may be written: at once if it is urgent, together with what follows within a moment if it is not, and words alone still
// later, counted from the last write of this process.
func (r *Reconciler) writeAt(o *observed, after *mendv1.RemediationRecord, plan Plan) time.Time {
	last := r.remembered(client.ObjectKeyFromObject(o.record), nil).written
	switch {
	case r.onlyWords(o.record, after):
		return last.Add(latest)
	case plan.Urgent:
		return time.Time{}
	}
	return last.Add(together)
}

// onlyWords reports whether nothing but messages of conditions differ.
func (r *Reconciler) onlyWords(before, after *mendv1.RemediationRecord) bool {
	was := before.Status.DeepCopy()
	for i := range was.Conditions {
		if c := meta.FindStatusCondition(after.Status.Conditions, was.Conditions[i].Type); c != nil {
			was.Conditions[i].Message = c.Message
		}
	}
	return equality.Semantic.DeepEqual(*was, after.Status)
}

// labelled keeps on the record what is needed once the Machine is gone, and once the record is closed.
func labelled(o *observed, after *mendv1.RemediationRecord) {
	set := func(key, value string) {
		if value == "" {
			return
		}
		if after.Labels == nil {
			after.Labels = map[string]string{}
		}
		after.Labels[key] = format.MustFormatValue(value)
	}
	set(clusterv1.ClusterNameLabel, after.Spec.Target.ClusterName)
	if after.Spec.Target.Host != nil {
		set(mendv1.RecordHostLabel, after.Spec.Target.Host.Name)
	}
	if o.machine != nil {
		set(clusterv1.MachineDeploymentNameLabel, o.machine.Labels[clusterv1.MachineDeploymentNameLabel])
	}
	if after.Status.Ended != nil {
		delete(after.Labels, mendv1.RecordOpenLabel)
		if after.Annotations == nil {
			after.Annotations = map[string]string{}
		}
		after.Annotations[mendv1.RecordEndedAnnotation] = after.Status.Ended.UTC().Format(time.RFC3339)
	}
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
		c.LastTransitionTime = metav1.NewTime(o.facts.Now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

// text is a step, or what is waited for, as a sentence.
func (o *observed) text(reason string, object mendv1.RecordRef) string {
	if o.story != nil && reason == string(o.story.Reason) {
		return explain.Capacity(o.story)
	}
	target := TargetOf(o.record)
	return stepText(reason, target.Kind+" "+target.Name, object)
}

// conditionsOf are the conditions that a plan sets. Those that it does not know anything of stay as they are.
func conditionsOf(o *observed, plan Plan) []metav1.Condition {
	status, all := &plan.Status, begunOf(o, plan)
	outcome := string(status.Outcome)
	end := metav1.Condition{Type: mendv1.RecordEnded, Status: metav1.ConditionTrue, Reason: outcome}
	back := metav1.Condition{Type: mendv1.RecordCapacityBack, Status: metav1.ConditionFalse, Reason: outcome}
	switch {
	case !status.Ended.IsZero():
		end.Message = o.text(outcome, mendv1.RecordRef{})
		if back.Message = end.Message; !status.CapacityBack.IsZero() {
			back.Status = metav1.ConditionTrue
		}
		return append(all, back, end)
	case plan.Waiting == "":
		return all
	}
	back.Reason, back.Message = plan.Waiting, o.text(plan.Waiting, plan.Object)
	if was := meta.FindStatusCondition(o.record.Status.Conditions, back.Type); was != nil && was.Reason == back.Reason && o.silent(plan) {
		back.Message = was.Message // what could not be read now is no news
	}
	return append(all, back)
}

// silent reports whether nothing was read of what is waited for.
func (o *observed) silent(plan Plan) bool {
	return plan.Object == mendv1.RecordRef{} && (o.story == nil || string(o.story.Reason) != plan.Waiting)
}

// begunOf says whether the remediation was begun; nothing before that is known.
func begunOf(o *observed, plan Plan) []metav1.Condition {
	s := &plan.Status
	is := metav1.Condition{Type: mendv1.RecordBegun}
	switch {
	case !s.Begun.IsZero():
		is.Status = metav1.ConditionTrue
		for _, step := range s.Steps {
			if step.Reason == OwnerRequested || step.Reason == RequestCreated {
				is.Reason = step.Reason
				return []metav1.Condition{is}
			}
		}
		return nil
	case o.facts.Target.Known && !o.facts.Target.Exists:
		is.Status, is.Reason, is.Message = metav1.ConditionUnknown, TargetGone, o.text(TargetGone, mendv1.RecordRef{})
	case !s.Ended.IsZero():
		is.Status, is.Reason = metav1.ConditionFalse, NotBegun
	default:
		return nil
	}
	return []metav1.Condition{is}
}
