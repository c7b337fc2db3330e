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
	record "github.com/kubemend/kubemend/controllers/remediationrecord"
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

// toldOnce are the reasons of events that say the same as steps of a record, with the reasons of these.
var toldOnce = map[string][]string{
	mendv1.EventRemediationStarted: {decidedReason},
	nhcv1.EventRemediationCreated:  {decidedReason},
	mendv1.EventMachineHealthy:     {healed},
	mendv1.EventRemediationEnded:   {healed},
	mendv1.EventCapacityBack:       {healed, replaced},
	mendv1.EventCapacityNotComing:  {gone, givenUp, cancelled},
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

func stepsOf(r *mendv1.RemediationRecord) []mendv1.RecordStep {
	decided := mendv1.RecordStep{Time: metav1.NewMicroTime(r.Spec.Decided.Time), Reason: decidedReason, Message: decidedOf(r)}
	return append([]mendv1.RecordStep{decided}, r.Status.Steps...)
}

// ofRecord are the steps of a record that no event tells more exactly.
func ofRecord(r *mendv1.RemediationRecord, told map[cliv1.Reference][]*event) []cliv1.HistoryEntry {
	target := cliv1.Reference{}
	if ref := cmp.Or(r.Spec.Target.Machine, r.Spec.Target.Node, r.Spec.Target.Host); ref != nil {
		target = recordRef(ref, r)
	}
	entries := make([]cliv1.HistoryEntry, 0, len(r.Status.Steps)+1)
	for _, step := range stepsOf(r) {
		object := target
		if step.Object != nil {
			object = recordRef(step.Object, r)
		}
		more, waits := toldBy[step.Reason]
		exactly := func(e *event) bool {
			return e.near(step.Time.Time) && slices.Contains(more, powercycle.Reason(e.Reason))
		}
		if waits && (more == nil || slices.ContainsFunc(told[object], exactly)) {
			continue
		}
		entries = append(entries, cliv1.HistoryEntry{
			Time: metav1.NewTime(step.Time.UTC()), Type: eventType(step.Reason == givenUp), Reason: step.Reason, Object: object,
			Message: step.Message, Source: cliv1.SourceRecord,
			Record: &cliv1.Reference{Kind: "RemediationRecord", Namespace: r.Namespace, Name: r.Name},
		})
	}
	return entries
}

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

// reportedOn are the objects that have events about what a record tells: none in another namespace, where its writer may not be able to
// write.
func reportedOn(r *mendv1.RemediationRecord) []cliv1.Reference {
	named := make([]*mendv1.RecordRef, 0, 2+len(r.Status.Requests))
	named = append(named, r.Spec.Target.Machine, r.Spec.Target.Node)
	for i := range r.Status.Requests {
		named = append(named, &r.Status.Requests[i])
	}
	objects := make([]cliv1.Reference, 0, len(named))
	for _, ref := range named {
		if ref == nil {
			continue
		}
		if object := recordRef(ref, r); object.Namespace == "" || object.Namespace == r.Namespace {
			objects = append(objects, object)
		}
	}
	return objects
}

// recordTells reports whether a record tells what an event does about one of its objects.
func recordTells(r *mendv1.RemediationRecord, e *event) bool {
	return slices.ContainsFunc(stepsOf(r), func(step mendv1.RecordStep) bool {
		quoted := strings.Count(step.Message, " ") >= 2 && strings.Contains(e.Message, step.Message) // a word or two are in many texts
		same, known := toldOnce[e.Reason]
		if known {
			return e.near(step.Time.Time) && slices.Contains(same, step.Reason)
		}
		return e.near(step.Time.Time) && (quoted || step.Reason == e.Reason)
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
