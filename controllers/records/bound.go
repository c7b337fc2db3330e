package records

import (
	"unicode/utf8"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Bound cuts what is too long or too much in a record, so that the API server takes it. What comes from workload clusters may have any length.
func Bound(record *mendv1.RemediationRecord) {
	spec, status := &record.Spec, &record.Status
	cut(&spec.Cause, 333)
	cut(&spec.Target.HostModel, 128)
	cut(&spec.Target.FailureDomain, 256)
	cut(&spec.BlockedBy, 64)
	cut(&spec.Requester.User, 256)
	cut(&spec.Requester.Reason, mendv1.MaxRecordText)
	spec.Evidence = spec.Evidence[:min(len(spec.Evidence), mendv1.MaxRecordEvidence)]
	for i := range spec.Evidence {
		cut(&spec.Evidence[i].Type, 316)
		cut(&spec.Evidence[i].Status, 16)
		cut(&spec.Evidence[i].Message, mendv1.MaxRecordText)
	}
	if over := len(status.Steps) - mendv1.MaxRecordSteps; over > 0 { // the first ones and the last one say most
		status.Steps = append(status.Steps[:mendv1.MaxRecordSteps-1:mendv1.MaxRecordSteps-1], status.Steps[len(status.Steps)-1])
	}
	for i := range status.Steps {
		cut(&status.Steps[i].Message, mendv1.MaxRecordText)
	}
}

// cut shortens a text to a number of characters, and says so.
func cut(text *string, most int) {
	if utf8.RuneCountInString(*text) > most {
		*text = string([]rune(*text)[:most-1]) + "…"
	}
}
