package remediationrecord

import (
	"cmp"
	"reflect"
	"unicode/utf8"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// bounds are how many characters the fields of a record may have, as the API has it, by their names; those of one type alone by that and
// their names. The API server takes longer messages of conditions, of which a record would grow.
var bounds = map[string]int{
	"APIVersion": 317, "Kind": 63, "Namespace": 63, "Name": 253, "UID": 64,
	"ClusterName": 253, "ClusterUID": 64, "HostModel": 128, "FailureDomain": 256, "User": 256,
	"RecordRequester.Reason": mendv1.MaxRecordText, "Limit": 64,
	"Cause": 333, "RecordEvidence.Type": 316, "RecordEvidence.Status": 16,
	"BegunBy": 253, "EndedBy": 253, "Message": mendv1.MaxRecordText, "Condition.Message": 4 * mendv1.MaxRecordText,
}

// Bound cuts what is too long or too much in a record, so that the API server takes it: one that it refuses is not written, or never ends.
// What comes from workload clusters, from conditions and annotations of others, and from checks may have any length.
func Bound(record *mendv1.RemediationRecord) {
	record.Spec.Evidence = record.Spec.Evidence[:min(len(record.Spec.Evidence), mendv1.MaxRecordEvidence)]
	bound(reflect.ValueOf(&record.Spec).Elem(), 0)
	bound(reflect.ValueOf(&record.Status).Elem(), 0)
}

// bound cuts all texts in value that have a bound; most is that of value itself, if it is a text that has one.
func bound(value reflect.Value, most int) {
	switch value.Kind() {
	case reflect.String:
		if text := value.String(); most > 0 && utf8.RuneCountInString(text) > most {
			value.SetString(string([]rune(text)[:most-1]) + "…") // a name that was cut finds nothing, and shows that
		}
	case reflect.Pointer:
		if !value.IsNil() {
			bound(value.Elem(), most)
		}
	case reflect.Slice:
		for i := range value.Len() {
			bound(value.Index(i), most)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			field := value.Type().Field(i)
			if field.IsExported() {
				bound(value.Field(i), cmp.Or(bounds[value.Type().Name()+"."+field.Name], bounds[field.Name]))
			}
		}
	default:
	}
}
