package schemas

import (
	"github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	"github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// The kinds of remediations in every version. Each kind has a template kind.
var (
	Metal3V1Beta1 = Kind{v1beta1.GroupVersion.String(), "Metal3Remediation"}
	Metal3V1Beta2 = Kind{v1beta2.GroupVersion.String(), "Metal3Remediation"}
	Host          = Kind{mendv1.GroupVersion.String(), "HostRemediation"}

	// Current are the kinds with the fields of v1beta2.
	Current = []Kind{Metal3V1Beta2, Host}
)

// Specs with all defaults, in the current versions and in v1beta1.
const (
	Complete        = `{"strategy":{"retryLimit":1,"timeoutSeconds":600,"type":"Reboot"}}`
	CompleteV1Beta1 = `{"strategy":{"retryLimit":1,"timeout":"10m0s","type":"Reboot"}}`
)

// notDuration is the error of a CEL rule that cannot parse a duration.
const notDuration = "type conversion error from 'string' to 'google.protobuf.Duration'"

// The message of each rule for a remediation and for a template.
var (
	tooShort  = [2]string{"min duration is 100 seconds", "min duration is 100 seconds"}
	notReboot = [2]string{"is only supported remediation strategy", "only supported remediation strategy is reboot"}
	noRetry   = [2]string{"is minimum retrylimit", "minimum retry limit is 1"}
)

// accepted is a spec and its stored form, or "" if it does not change. refused is a spec and the errors.
type (
	accepted struct{ name, spec, becomes string }
	refused  struct {
		name, spec string
		with       [2]string
	}
)

var acceptedNow = []accepted{
	{"no spec", ``, Absent},
	{"an empty spec", `{}`, ``},
	{"a strategy that is null", `{"strategy":null}`, `{}`},
	{"a type alone", `{"strategy":{"type":"Reboot"}}`, Complete},
	{"the minimum of every number", `{"strategy":{"retryLimit":1,"timeoutSeconds":100,"type":"Reboot"}}`, ``},
	{"more than the minimum", `{"strategy":{"retryLimit":7,"timeoutSeconds":1800,"type":"Reboot"}}`, ``},
	{"a field of v1beta1, which is dropped", `{"strategy":{"type":"Reboot","timeout":"300s"}}`, Complete},
}

// acceptedOfHosts are accepted HostRemediations that a Metal3Remediation of v1beta2 refuses. H-11: a HostRemediation may have no retry.
var acceptedOfHosts = []accepted{
	{"no retry", `{"strategy":{"retryLimit":0,"timeoutSeconds":600,"type":"Reboot"}}`, ``},
	{"the maximum of every number", `{"strategy":{"retryLimit":100,"timeoutSeconds":86400,"type":"Reboot"}}`, ``},
}

// These are stored in v1beta2 and read back in v1beta1.
var acceptedV1Beta1 = []accepted{
	{"no spec", ``, `{}`},
	{"an empty spec", `{}`, ``},
	{"a strategy that is null", `{"strategy":null}`, `{}`},
	{"no timeout", `{"strategy":{"retryLimit":1,"type":"Reboot"}}`, CompleteV1Beta1},
	{"the minimum of every number", `{"strategy":{"retryLimit":1,"timeout":"1m40s","type":"Reboot"}}`, ``},
	{"a timeout of zero, which is none", `{"strategy":{"retryLimit":1,"timeout":"0s","type":"Reboot"}}`, CompleteV1Beta1},
	{"a field of v1beta2, which is dropped", `{"strategy":{"type":"Reboot","retryLimit":1,"timeoutSeconds":300}}`, CompleteV1Beta1},
}

var refusedV1Beta1 = []refused{
	{"an empty strategy", `{"strategy":{}}`, notReboot},
	{"no retry limit", `{"strategy":{"type":"Reboot"}}`, noRetry},
	{"a timeout that is too short", `{"strategy":{"type":"Reboot","retryLimit":1,"timeout":"99.9s"}}`, tooShort},
	{"a timeout that is a number", `{"strategy":{"type":"Reboot","retryLimit":1,"timeout":300}}`,
		[2]string{`must be of type string: "integer"`, `must be of type string: "integer"`}},
}

// Remediations are requests that create remediations and templates while only the conversion webhook runs. Manifests has what the current
// versions refuse.
func Remediations() []Row {
	rows := rowsOf(Metal3V1Beta1, acceptedV1Beta1, refusedV1Beta1)
	for _, k := range Current {
		rows = append(rows, rowsOf(k, acceptedNow, nil)...)
	}
	rows = append(rows, rowsOf(Host, acceptedOfHosts, nil)...)
	for _, k := range append([]Kind{Metal3V1Beta1}, Current...) {
		rows = append(rows, emptyTemplates(k)...)
	}
	return append(rows, Row{
		Name: "v1beta2 Metal3RemediationTemplate: an unknown field, if asked to be strict", Strict: true,
		Object:  Metal3V1Beta2.Template().Object("a", `{"strategy":{"type":"Reboot","timeout":"300s"}}`),
		Refused: `unknown field "spec.template.spec.strategy.timeout"`,
	})
}

// rowsOf returns the rows for a remediation kind and for its template.
func rowsOf(k Kind, good []accepted, bad []refused) []Row {
	rows := make([]Row, 0, 2*(len(good)+len(bad)))
	for i, kind := range []Kind{k, k.Template()} {
		for _, row := range good {
			if row.becomes == "" {
				row.becomes = row.spec
			}
			rows = append(rows, Row{Name: kind.String() + ": " + row.name, Object: kind.Object("a", row.spec), Becomes: row.becomes})
		}
		for _, row := range bad {
			rows = append(rows, Row{Name: kind.String() + ": " + row.name, Object: kind.Object("a", row.spec), Refused: row.with[i]})
		}
	}
	return rows
}

func emptyTemplates(k Kind) []Row {
	withoutTemplate, withoutSpec := k.Template().Object("a", ""), k.Template().Object("a", "")
	withoutTemplate.Object["spec"] = map[string]any{}
	withoutSpec.Object["spec"] = map[string]any{"template": map[string]any{}}
	return []Row{
		{Name: k.Template().String() + ": a spec without a template", Object: withoutTemplate, Refused: "spec.template: Required value"},
		{Name: k.Template().String() + ": a template without a spec", Object: withoutSpec, Refused: "spec.template.spec: Required value"},
	}
}

// CompletedTemplates are requests while the defaulting webhook for templates runs.
func CompletedTemplates() []Row {
	rows := make([]Row, 0, 15)
	for _, row := range []struct {
		kind                Kind
		name, spec, becomes string
	}{
		{Metal3V1Beta2, "empty values", `{"strategy":{"type":"","retryLimit":0,"timeoutSeconds":0}}`, Complete},
		{Metal3V1Beta1, "empty values", `{"strategy":{"type":"","retryLimit":0,"timeout":"0s"}}`, CompleteV1Beta1},
		{Metal3V1Beta2, "less than no retry", `{"strategy":{"type":"","retryLimit":-3,"timeoutSeconds":0}}`, Complete},
		{Host, "empty values", `{"strategy":{"type":"","timeoutSeconds":0}}`, Complete},
		{Host, "H-11: no retry, which stays,", `{"strategy":{"retryLimit":0}}`,
			`{"strategy":{"retryLimit":0,"timeoutSeconds":600,"type":"Reboot"}}`},
		{Metal3V1Beta2, "an empty strategy", `{"strategy":{}}`, Complete},
		{Metal3V1Beta1, "an empty strategy", `{"strategy":{}}`, CompleteV1Beta1},
		{Host, "an empty strategy", `{"strategy":{}}`, Complete},
		{Metal3V1Beta2, "W30: an empty spec", `{}`, `{}`},
		{Metal3V1Beta1, "W30: an empty spec", `{}`, `{}`},
		{Host, "W30: an empty spec", `{}`, `{}`},
	} {
		k := row.kind.Template()
		rows = append(rows,
			Row{Name: k.String() + ": " + row.name + " is completed", Object: k.Object("a", row.spec), Becomes: row.becomes})
	}
	for _, row := range []struct {
		kind             Kind
		name, spec, with string
	}{
		{Metal3V1Beta2.Template(), "a short timeout", `{"strategy":{"timeoutSeconds":99}}`, tooShort[1]},
		{Metal3V1Beta1.Template(), "a short timeout", `{"strategy":{"timeout":"99s"}}`, tooShort[1]},
		{Host.Template(), "a short timeout", `{"strategy":{"timeoutSeconds":99}}`, tooShort[1]},
		{Metal3V1Beta1.Template(), "another type", `{"strategy":{"type":"Pray"}}`, notReboot[1]},
		{Metal3V1Beta2.Template(), "another type", `{"strategy":{"type":"Pray"}}`, `Unsupported value: "Pray"`},
		{Metal3V1Beta1, "no retry limit, as a remediation is not completed", `{"strategy":{"type":"Reboot"}}`, noRetry[0]},
	} {
		rows = append(rows, Row{Name: row.kind.String() + ": " + row.name + " is still refused", Object: row.kind.Object("a", row.spec),
			Refused: row.with})
	}
	return rows
}

// DocumentedTemplates are requests with the templates of CAPM3's documentation.
func DocumentedTemplates() []Row {
	return []Row{{
		Name:   "v1beta1 Metal3RemediationTemplate: that of CAPM3's documentation for workers",
		Strict: true, Object: documented("003/workers.yaml"),
		Becomes: `{"strategy":{"retryLimit":2,"timeout":"5m0s","type":"Reboot"}}`,
	}, {
		Name:   "v1beta1 Metal3RemediationTemplate: that of CAPM3's documentation for control planes",
		Strict: true, Object: documented("003/control-plane.yaml"),
		Becomes: `{"strategy":{"retryLimit":1,"timeout":"5m0s","type":"Reboot"}}`,
	}}
}

// Conversion is a spec in v1beta1, its conversion to v1beta2, and the result of converting that back.
type Conversion struct{ Name, Old, New, Back string }

// Conversions are for remediations and templates. The tests of api/infrastructure/v1beta1 cover all values.
var Conversions = []Conversion{
	{
		"C9: with a timeout", `{"strategy":{"type":"Reboot","retryLimit":2,"timeout":"300s"}}`,
		`{"strategy":{"retryLimit":2,"timeoutSeconds":300,"type":"Reboot"}}`,
		`{"strategy":{"retryLimit":2,"timeout":"5m0s","type":"Reboot"}}`,
	},
	{"C9: with nothing in the spec", `{}`, `{}`, `{}`},
}
