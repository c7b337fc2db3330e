package remediationrecord

import (
	"unicode/utf8"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// The bounds of the API, in characters, besides those that have names there.
const (
	mostName   = 253
	mostWord   = 64
	mostUID    = 64
	mostGroup  = 317
	mostPlace  = 256
	mostCause  = 333
	mostType   = 316
	mostModel  = 128
	mostStatus = 16
	// mostMessage is how long the message of a condition is. The API server takes longer ones, of which a record would grow.
	mostMessage = 4 * mendv1.MaxRecordText
)

// Bound cuts what is too long or too much in a record, so that the API server takes it: one that it refuses is not written, or never ends. What comes from
// workload clusters, from conditions and annotations of others, and from checks may have any length.
func Bound(record *mendv1.RemediationRecord) {
	boundSpec(&record.Spec)
	boundStatus(&record.Status)
}

func boundSpec(spec *mendv1.RemediationRecordSpec) {
	cut(&spec.Cause, mostCause)
	boundTarget(&spec.Target)
	boundRefs(spec.Requester.Check)
	cut(&spec.Requester.User, mostPlace)
	cut(&spec.Requester.Reason, mendv1.MaxRecordText)
	if spec.Counts != nil {
		cut(&spec.Counts.Limit, mostWord)
	}
	spec.Evidence = spec.Evidence[:min(len(spec.Evidence), mendv1.MaxRecordEvidence)]
	for i := range spec.Evidence {
		cut(&spec.Evidence[i].Type, mostType)
		cut(&spec.Evidence[i].Status, mostStatus)
		cut(&spec.Evidence[i].Message, mendv1.MaxRecordText)
	}
}

func boundTarget(target *mendv1.RecordTarget) {
	cut(&target.ClusterName, mostName)
	cut(&target.ClusterUID, mostUID)
	cut(&target.HostModel, mostModel)
	cut(&target.FailureDomain, mostPlace)
	boundRefs(target.Machine, target.Owner, target.Node, target.Host)
}

func boundStatus(status *mendv1.RemediationRecordStatus) {
	cut(&status.BegunBy, mostName)
	cut(&status.EndedBy, mostName)
	for i := range status.Requests {
		boundRefs(&status.Requests[i])
	}
	if by := status.Replacement; by != nil {
		boundRefs(&by.Machine, by.Node, by.Host)
	}
	if over := len(status.Steps) - mendv1.MaxRecordSteps; over > 0 { // the first ones and the last one say most
		status.Steps = append(status.Steps[:mendv1.MaxRecordSteps-1:mendv1.MaxRecordSteps-1], status.Steps[len(status.Steps)-1])
	}
	for i := range status.Steps {
		cut(&status.Steps[i].Message, mendv1.MaxRecordText)
		boundRefs(status.Steps[i].Object)
	}
	for i := range status.Conditions {
		cut(&status.Conditions[i].Message, mostMessage)
	}
}

// boundRefs cuts references. A name that was cut finds nothing, and shows that.
func boundRefs(refs ...*mendv1.RecordRef) {
	for _, ref := range refs {
		if ref == nil {
			continue
		}
		cut(&ref.APIVersion, mostGroup)
		cut(&ref.Kind, mostWord-1)
		cut(&ref.Namespace, mostWord-1)
		cut(&ref.Name, mostName)
		cut(&ref.UID, mostUID)
	}
}

// cut shortens a text to a number of characters, and says so.
func cut(text *string, most int) {
	if utf8.RuneCountInString(*text) > most {
		*text = string([]rune(*text)[:most-1]) + "…"
	}
}
