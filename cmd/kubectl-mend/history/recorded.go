package history

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/document"
	"github.com/kubemend/kubemend/controllers/decide/record"
)

// decidedReason is the reason of what was decided, which is no step of a record.
const decidedReason = "RemediationDecided"

// The reasons of the last steps of records, which are their outcomes.
const (
	healed    = string(mendv1.RecordHealed)
	replaced  = string(mendv1.RecordReplaced)
	gone      = string(mendv1.RecordGone)
	givenUp   = string(mendv1.RecordGivenUp)
	cancelled = string(mendv1.RecordCancelled)
)

var outcomes = []string{healed, replaced, gone, givenUp, cancelled}

// begins are the reasons of events that a remediation was decided, as its record says too.
var begins = []string{mendv1.EventRemediationStarted, nhcv1.EventRemediationCreated}

// ends are the reasons of events that tell how a remediation has ended, with the outcomes that say the same.
var ends = map[string][]string{
	mendv1.EventMachineHealthy:    {healed},
	mendv1.EventRemediationEnded:  {healed},
	mendv1.EventCapacityBack:      {healed, replaced},
	mendv1.EventCapacityNotComing: {gone, givenUp, cancelled},
}

// toldBy are the events about a request that tell more exactly what a step of its record does: the record says what the request waits for
// from then on.
var toldBy = map[string][]powercycle.Reason{
	record.RemediatorActs:              {powercycle.PowerOffRequestedReason, powercycle.RebootRequestedReason},
	string(powercycle.PoweringOff):     {powercycle.PowerOffRequestedReason},
	string(powercycle.MovingWorkload):  {powercycle.FencedReason, powercycle.PoweredOffReason},
	string(powercycle.PoweringOn):      {powercycle.PowerOnRequestedReason},
	string(powercycle.Rebooting):       {powercycle.RebootRequestedReason},
	string(powercycle.Booting):         {powercycle.PoweredOnReason, powercycle.PoweredOnAgainReason},
	string(powercycle.RequestingOwner): {powercycle.OwnerRequestedReason},
	record.RemediationInProgress:       nil,
}

// ofRecord are what was decided, and the steps that no event tells more exactly.
func ofRecord(r *mendv1.RemediationRecord, told map[cliv1.Reference][]*event) []cliv1.HistoryEntry {
	target := cliv1.Reference{}
	if ref := cmp.Or(r.Spec.Target.Machine, r.Spec.Target.Node, r.Spec.Target.Host); ref != nil {
		target = recordRef(ref, r)
	}
	entries := make([]cliv1.HistoryEntry, 0, len(r.Status.Steps)+1)
	add := func(at metav1.Time, reason, message string, object cliv1.Reference) {
		entries = append(entries, cliv1.HistoryEntry{
			Time: document.Time(at.Time), Type: document.EventType(reason == givenUp), Reason: reason, Object: object,
			Message: message, Source: cliv1.SourceRecord, Record: &cliv1.Reference{Kind: "RemediationRecord", Namespace: r.Namespace, Name: r.Name},
		})
	}
	add(r.Spec.Decided, decidedReason, decidedOf(r), target)
	for i := range r.Status.Steps {
		step, object := &r.Status.Steps[i], target
		if step.Object != nil {
			object = recordRef(step.Object, r)
		}
		more, waits := toldBy[step.Reason]
		exactly := func(e *event) bool {
			then := near(e.Time.Time, step.Time.Time) || near(latest(&e.HistoryEntry), step.Time.Time)
			return then && slices.Contains(more, powercycle.Reason(e.Reason))
		}
		if !waits || more != nil && !slices.ContainsFunc(told[object], exactly) {
			add(step.Time, step.Reason, step.Message, object)
		}
	}
	return entries
}

// decidedOf is that a remediation was decided, and for what.
func decidedOf(r *mendv1.RemediationRecord) string {
	s, by := "remediation decided", r.Spec.Requester
	switch {
	case by.User != "":
		s += ", requested by " + by.User
	case by.Check != nil:
		s += " for " + by.Check.Kind + " " + by.Check.Name
	}
	if r.Spec.Cause != "" {
		s += ": " + r.Spec.Cause
	}
	return s
}

// reportedOn are the objects that have events about what a record tells: none in another namespace, where its writer may not be able to write.
func reportedOn(r *mendv1.RemediationRecord) []cliv1.Reference {
	objects := make([]cliv1.Reference, 0, 2+len(r.Status.Requests))
	add := func(ref *mendv1.RecordRef) {
		if ref == nil {
			return
		}
		if object := recordRef(ref, r); object.Namespace == "" || object.Namespace == r.Namespace {
			objects = append(objects, object)
		}
	}
	add(r.Spec.Target.Machine)
	add(r.Spec.Target.Node)
	for i := range r.Status.Requests {
		add(&r.Status.Requests[i])
	}
	return objects
}

// recordTells reports whether a record tells what an event does about one of its objects.
func recordTells(r *mendv1.RemediationRecord, e *event) bool {
	at, last := e.Time.Time, latest(&e.HistoryEntry)
	if slices.Contains(begins, e.Reason) {
		return near(at, r.Spec.Decided.Time)
	}
	return slices.ContainsFunc(r.Status.Steps, func(step mendv1.RecordStep) bool {
		quoted := strings.Count(step.Message, " ") >= 2 && strings.Contains(e.Message, step.Message) // a word or two are in many texts
		switch {
		case e.Reason == mendv1.EventCapacityAwaited: // what is waited for is told again, such as by another manager
			return quoted && !step.Time.After(at)
		case !near(at, step.Time.Time) && !near(last, step.Time.Time):
			return false
		case ends[e.Reason] != nil:
			return slices.Contains(ends[e.Reason], step.Reason)
		}
		return quoted || step.Reason == e.Reason
	})
}

// recordRef is what a record names. The kinds of Cluster API that a record waits for have no namespace in it: they are in its own.
func recordRef(ref *mendv1.RecordRef, r *mendv1.RemediationRecord) cliv1.Reference {
	switch ref.Kind {
	case nodeKind, nodeCheckKind, "VolumeAttachment": // kinds without namespaces
		return cliv1.Reference{Kind: ref.Kind, Name: ref.Name}
	}
	return cliv1.Reference{Kind: ref.Kind, Namespace: cmp.Or(ref.Namespace, r.Namespace), Name: ref.Name}
}
