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

// apply writes what differs, in one write, unless the record has changed meanwhile: another writer may say that the remediation is about to begin.
func (r *Reconciler) apply(ctx context.Context, o *observed, plan record.Plan) (changed bool, err error) {
	if o.facts.Paused {
		return false, nil
	}
	key, after := client.ObjectKeyFromObject(o.record), o.record.DeepCopy()
	after.Status = statusOf(o, plan)
	records.Bound(after)
	if equality.Semantic.DeepEqual(o.record.Status, after.Status) || r.onlyWords(o.record, after) && r.quiet(key, o.now) {
		return false, nil
	}
	labelled(o, after)
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(o.record, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, err
	}
	r.wrote(key, o.now)
	return true, nil
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
	return explain.RecordStep(reason, target.Kind+" "+target.Name, object)
}

// conditionsOf are the conditions that a plan sets. Those that it does not know anything of stay as they are.
func conditionsOf(o *observed, plan record.Plan) []metav1.Condition {
	s := &plan.State
	var all []metav1.Condition
	set := func(kind string, status metav1.ConditionStatus, reason record.Reason, message string) {
		all = append(all, metav1.Condition{Type: kind, Status: status, Reason: string(reason), Message: message})
	}
	switch {
	case !s.Begun.IsZero():
		for _, step := range s.Steps {
			if step.Reason == record.OwnerRequested || step.Reason == record.RequestCreated || step.Reason == record.TargetDeleting {
				set(mendv1.RecordBegun, metav1.ConditionTrue, step.Reason, "")
				break
			}
		}
	case o.facts.Target.Known && !o.facts.Target.Exists:
		set(mendv1.RecordBegun, metav1.ConditionUnknown, record.TargetGone, o.text(record.TargetGone, record.Ref{}))
	case !s.Ended.IsZero():
		set(mendv1.RecordBegun, metav1.ConditionFalse, record.NotBegun, "")
	}
	outcome := record.Reason(s.Outcome)
	switch {
	case !s.Back.IsZero():
		set(mendv1.RecordCapacityBack, metav1.ConditionTrue, outcome, o.text(outcome, record.Ref{}))
	case !s.Ended.IsZero():
		set(mendv1.RecordCapacityBack, metav1.ConditionFalse, outcome, o.text(outcome, record.Ref{}))
	case plan.Waiting != "" && plan.Object == record.Ref{} && plan.Waiting != record.Reason(storyReason(o)):
		set(mendv1.RecordCapacityBack, metav1.ConditionFalse, plan.Waiting, kept(o, plan.Waiting, o.text(plan.Waiting, record.Ref{})))
	case plan.Waiting != "":
		set(mendv1.RecordCapacityBack, metav1.ConditionFalse, plan.Waiting, o.text(plan.Waiting, plan.Object))
	}
	if !s.Ended.IsZero() {
		set(mendv1.RecordEnded, metav1.ConditionTrue, outcome, o.text(outcome, record.Ref{}))
	}
	return all
}

func storyReason(o *observed) string {
	if o.story == nil {
		return ""
	}
	return string(o.story.Reason)
}

// kept is what the condition said before of the same reason: what could not be read now is no news.
func kept(o *observed, reason record.Reason, otherwise string) string {
	if c := meta.FindStatusCondition(o.record.Status.Conditions, mendv1.RecordCapacityBack); c != nil && c.Reason == string(reason) {
		return c.Message
	}
	return otherwise
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
