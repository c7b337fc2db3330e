package remediationrecord

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// sendNews sends events about what the record waits for, and how it has ended: on what asked for the remediation, and on the Machine as
// long as it exists.
func (r *Reconciler) sendNews(ctx context.Context, o *observed, plan Plan) {
	if o.outside { // who has written it may not be who may write where these events are
		return
	}
	var notices []Notice
	r.memoryOf(client.ObjectKeyFromObject(o.record), func(m *memory) {
		if m.reported == nil {
			m.reported = Reported{}
		}
		notices = m.reported.Report(&o.facts, &plan)
	})
	for _, notice := range notices {
		for _, event := range o.eventsOf(notice, &plan.Status) {
			recorder.Send(r.Recorder, event)
			log.FromContext(ctx).Info("Reported an event", "reason", event.Reason, "note", event.Text,
				event.About.GetObjectKind().GroupVersionKind().Kind, klog.KObj(event.About))
		}
	}
}

// reasonOfNews are the reasons of events.
var reasonOfNews = map[News]string{
	Awaited: mendv1.EventCapacityAwaited, Late: mendv1.EventCapacityLate, Back: mendv1.EventCapacityBack,
	NotComing: mendv1.EventCapacityNotComing,
}

// eventsOf are the events by which a notice is reported.
func (o *observed) eventsOf(notice Notice, status *mendv1.RemediationRecordStatus) []recorder.Event {
	event := recorder.Event{Kind: o.kindOf(notice), Reason: reasonOfNews[notice.News], Action: actionOf(notice), Text: o.textOf(notice, status)}
	target := TargetOf(o.record)
	about := o.about(&target)
	var events []recorder.Event
	if by := requesterOf(o.record); by != nil {
		asked := event
		asked.About, asked.Related = o.about(by), about
		if by.Kind == nodeCheckKind {
			asked.About.SetNamespace("")
			asked.Text = nhcv1.EventPrefix + event.Text
		}
		events = append(events, asked)
	}
	if o.machine != nil && o.machine.Namespace == o.record.Namespace {
		event.About = about
		events = append(events, event)
	}
	return events
}

// longestAction is how many bytes the action of an event may have. (Kubernetes, validation of events.k8s.io/v1.)
const longestAction = 128

// actionOf is what is waited for, with its object: events that differ in their text alone are one to client-go, which counts them under the
// text of the first, and that names another object. Of one that is too long the end is kept, in which generated names differ.
func actionOf(notice Notice) string {
	if notice.Object.Name == "" {
		return notice.Reason
	}
	reason, object := notice.Reason+"/", notice.Object.Kind+"/"+notice.Object.Name
	return reason + object[max(0, len(reason)+len(object)-longestAction):]
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

// The kinds of checks. Those of nodes have no namespace.
const (
	nodeCheckKind    = "NodeHealthCheck"
	machineCheckKind = "MachineHealthCheck"
)

// about is an object as an event refers to it. After a move it has another UID than the record knows, by which kubectl describe looks for
// its events.
func (o *observed) about(ref *mendv1.RecordRef) *metav1.PartialObjectMetadata {
	about := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind}}
	about.Namespace, about.Name = ref.Namespace, ref.Name
	switch {
	case o.machine != nil && ref.Kind == "Machine" && ref.Name == o.machine.Name:
		about.UID = o.machine.UID
	case !o.facts.Moved:
		about.UID = types.UID(ref.UID)
	case o.record.Spec.Requester.Check != nil && *ref == *o.record.Spec.Requester.Check:
		about.UID = o.checkUID
	}
	return about
}

// kindOf is that of a warning, if the deadline has passed, if a person has to do something, or if nothing acts any more.
func (o *observed) kindOf(notice Notice) string {
	todo := notice.News == Awaited && o.tells(notice.Reason) && o.story.Todo.Text != ""
	if todo || notice.News == Late || notice.Reason == string(mendv1.RecordGivenUp) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// tells reports whether the story is about what is waited for.
func (o *observed) tells(reason string) bool {
	return o.story != nil && o.story.Reason == reason
}

// textOf is a notice as a sentence: what is waited for, what a person can do, or how the remediation has ended.
func (o *observed) textOf(notice Notice, status *mendv1.RemediationRecordStatus) string {
	target := TargetOf(o.record)
	what, sentence := target.Kind+" "+target.Name, o.text(notice.Reason, notice.Object)
	var todo explain.Step
	var deadline time.Time
	if o.tells(notice.Reason) {
		todo, deadline = o.story.Todo, o.story.Deadline
	}
	if todo.Text != "" {
		todo.Text = ". To do: " + todo.Text
	}
	switch notice.News {
	case Awaited:
		return "The capacity of " + what + " is not back: " + sentence + todo.Text
	case Late:
		const late = "The deadline %s has passed, and the capacity of %s is not back: %s%s"
		return fmt.Sprintf(late, deadline.UTC().Format(time.RFC3339), what, sentence, todo.Text)
	case Back:
		sentence = stepText(notice.Reason, what, notice.Object)
		if by := status.Replacement; by != nil {
			sentence += " (" + by.Machine.Kind + " " + by.Machine.Name + ")"
		}
		due := o.facts.Decided
		if o.record.Spec.Due != nil {
			due = o.record.Spec.Due.Time
		}
		return fmt.Sprintf("The capacity of %s is back after %s: %s", what, ptr.Deref(status.CapacityBack, metav1.Time{}).Sub(due).Round(time.Second), sentence)
	case NotComing:
		return "The capacity of " + what + " does not come back: " + stepText(notice.Reason, what, notice.Object)
	}
	return sentence
}
