package remediationrecord

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/record"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/records"
)

// apply writes what differs, in one write, unless the record has changed meanwhile: another writer may say that the remediation is about to begin. What need
// not be written at once is put off until due.
func (r *Reconciler) apply(ctx context.Context, o *observed, plan record.Plan) (changed bool, due time.Time, err error) {
	if o.facts.Paused {
		return false, time.Time{}, nil
	}
	key, after := client.ObjectKeyFromObject(o.record), o.record.DeepCopy()
	after.Status = statusOf(o, plan)
	records.Bound(after)
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
func (r *Reconciler) writeAt(o *observed, after *mendv1.RemediationRecord, plan record.Plan) time.Time {
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
func statusOf(o *observed, plan record.Plan) mendv1.RemediationRecordStatus {
	s := &plan.State
	is := mendv1.RemediationRecordStatus{
		Attempted: at(s.Attempted), Begun: at(s.Begun), BegunBy: s.BegunBy, CapacityBack: at(s.Back), Ended: at(s.Ended),
		Outcome: mendv1.RecordOutcome(s.Outcome), EndedBy: s.EndedBy, Conditions: o.record.DeepCopy().Status.Conditions,
	}
	for _, ref := range s.Requests {
		is.Requests = append(is.Requests, *ofRef(ref))
	}
	if by := s.Replacement; by.Machine.Name != "" {
		is.Replacement = &mendv1.RecordReplacement{Machine: *ofRef(by.Machine), Node: ofRef(by.Node), Host: ofRef(by.Host), Guessed: by.Guessed}
	}
	for _, step := range s.Steps {
		message := step.Message
		if message == "" {
			message = o.text(step.Reason, step.Object)
		}
		is.Steps = append(is.Steps, mendv1.RecordStep{
			Time: metav1.NewTime(step.Time), Reason: string(step.Reason), Object: ofRef(step.Object), Message: message,
		})
	}
	for _, wait := range s.Waits {
		is.Waits = append(is.Waits, mendv1.RecordWait{Reason: string(wait.Reason), Seconds: wait.Seconds, Since: at(wait.Since)})
	}
	for _, c := range conditionsOf(o, plan) {
		c.LastTransitionTime = metav1.NewTime(o.facts.Now)
		meta.SetStatusCondition(&is.Conditions, c)
	}
	return is
}

// text is a step, or what is waited for, as a sentence.
func (o *observed) text(reason record.Reason, object record.Ref) string {
	if o.story != nil && reason == record.Reason(o.story.Reason) {
		return explain.Capacity(o.story)
	}
	target := records.TargetOf(o.record)
	return stepText(reason, target.Kind+" "+target.Name, object)
}

// conditionsOf are the conditions that a plan sets. Those that it does not know anything of stay as they are.
func conditionsOf(o *observed, plan record.Plan) []metav1.Condition {
	s, all := &plan.State, begunOf(o, plan)
	outcome := record.Reason(s.Outcome)
	end := metav1.Condition{Type: mendv1.RecordEnded, Status: metav1.ConditionTrue, Reason: string(outcome)}
	back := metav1.Condition{Type: mendv1.RecordCapacityBack, Status: metav1.ConditionFalse, Reason: string(outcome)}
	switch {
	case !s.Ended.IsZero():
		end.Message = o.text(outcome, record.Ref{})
		if back.Message = end.Message; !s.Back.IsZero() {
			back.Status = metav1.ConditionTrue
		}
		return append(all, back, end)
	case plan.Waiting == "":
		return all
	}
	back.Reason, back.Message = string(plan.Waiting), o.text(plan.Waiting, plan.Object)
	if was := meta.FindStatusCondition(o.record.Status.Conditions, back.Type); was != nil && was.Reason == back.Reason && o.silent(plan) {
		back.Message = was.Message // what could not be read now is no news
	}
	return append(all, back)
}

// silent reports whether nothing was read of what is waited for.
func (o *observed) silent(plan record.Plan) bool {
	return plan.Object == record.Ref{} && (o.story == nil || string(o.story.Reason) != string(plan.Waiting))
}

// begunOf says whether the remediation was begun; nothing before that is known.
func begunOf(o *observed, plan record.Plan) []metav1.Condition {
	s := &plan.State
	is := metav1.Condition{Type: mendv1.RecordBegun}
	switch {
	case !s.Begun.IsZero():
		is.Status = metav1.ConditionTrue
		for _, step := range s.Steps {
			if step.Reason == record.OwnerRequested || step.Reason == record.RequestCreated {
				is.Reason = string(step.Reason)
				return []metav1.Condition{is}
			}
		}
		return nil
	case o.facts.Target.Known && !o.facts.Target.Exists:
		is.Status, is.Reason, is.Message = metav1.ConditionUnknown, string(record.TargetGone), o.text(record.TargetGone, record.Ref{})
	case !s.Ended.IsZero():
		is.Status, is.Reason = metav1.ConditionFalse, string(record.NotBegun)
	default:
		return nil
	}
	return []metav1.Condition{is}
}

// stateOf is a status as decisions have it.
func stateOf(is *mendv1.RemediationRecordStatus) record.State {
	s := record.State{
		Attempted: moment(is.Attempted), Begun: moment(is.Begun), BegunBy: is.BegunBy, Back: moment(is.CapacityBack), Ended: moment(is.Ended),
		Outcome: record.Outcome(is.Outcome), EndedBy: is.EndedBy,
	}
	for i := range is.Requests {
		s.Requests = append(s.Requests, refOf(&is.Requests[i]))
	}
	if by := is.Replacement; by != nil {
		s.Replacement = record.Replacement{Machine: refOf(&by.Machine), Node: refOf(by.Node), Host: refOf(by.Host), Guessed: by.Guessed}
	}
	for i := range is.Steps {
		step := &is.Steps[i]
		s.Steps = append(s.Steps, record.Step{Time: step.Time.Time, Reason: record.Reason(step.Reason), Object: refOf(step.Object), Message: step.Message})
	}
	for _, wait := range is.Waits {
		s.Waits = append(s.Waits, record.Wait{Reason: record.Reason(wait.Reason), Seconds: wait.Seconds, Since: moment(wait.Since)})
	}
	return s
}

func ofRef(r record.Ref) *mendv1.RecordRef {
	if r.Name == "" {
		return nil
	}
	return &mendv1.RecordRef{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID}
}

func moment(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func at(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t))
}
