// Package schemas has tables of requests for objects of kubemend's kinds, with the expected answer of the API server. test/api sends the
// requests, and docs/reference/bad-input.md shows one of the tables.
package schemas

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubemend/kubemend/test/seeds"
)

// Row is a request that creates an object, and the expected answer.
type Row struct {
	// Name starts with the kind and describes the object.
	Name string

	Object *unstructured.Unstructured

	// Strict requests the refusal of unknown fields.
	Strict bool

	// Refused is a part of the error, or "" if the object is accepted.
	Refused string

	// Becomes is the stored spec as JSON (of a template, the embedded spec), Absent if there is none, or "" if the row does not check it.
	Becomes string
}

// Absent is the spec of an object without a spec.
const Absent = "null"

// Check returns what is wrong with an answer, or "" if it is as expected.
func (r Row) Check(stored *unstructured.Unstructured, err error) string {
	switch {
	case r.Refused == "" && err != nil:
		return "is refused: " + err.Error()
	case r.Refused != "" && err == nil:
		return "is accepted, and should be refused: " + r.Refused
	case r.Refused != "" && !strings.Contains(err.Error(), r.Refused):
		return fmt.Sprintf("is refused with\n%v\nand not with\n%s", err, r.Refused)
	case r.Refused == "" && r.Becomes != "" && Spec(stored) != compact(r.Becomes):
		return fmt.Sprintf("has the spec\n%s\nand not\n%s", Spec(stored), compact(r.Becomes))
	}
	return ""
}

// Kind is one version of a kind.
type Kind struct{ APIVersion, Kind string }

func (k Kind) String() string {
	return k.APIVersion[strings.Index(k.APIVersion, "/")+1:] + " " + k.Kind
}

// Template returns the kind of the templates for remediations of kind k.
func (k Kind) Template() Kind { return Kind{k.APIVersion, k.Kind + "Template"} }

// Object returns an object with this spec in JSON, or without a spec. A template embeds the spec.
func (k Kind) Object(name, spec string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(k.APIVersion, k.Kind))
	o.SetName(name)
	if k != NodeHealthCheck {
		o.SetNamespace("default")
	}
	switch {
	case spec == "":
	case strings.HasSuffix(k.Kind, "Template"):
		o.Object["spec"] = map[string]any{"template": map[string]any{"spec": JSON(spec)}}
	default:
		o.Object["spec"] = JSON(spec)
	}
	return o
}

// Spec returns the spec of an object as JSON; of a template, the embedded spec.
func Spec(o *unstructured.Unstructured) string {
	fields := []string{"spec"}
	if strings.HasSuffix(o.GetKind(), "Template") {
		fields = []string{"spec", "template", "spec"}
	}
	spec, found, err := unstructured.NestedMap(o.Object, fields...)
	if err != nil {
		return err.Error()
	}
	if !found {
		return Absent
	}
	return marshal(spec)
}

// JSON parses a JSON object, with integers as int64 like an API server.
func JSON(text string) map[string]any {
	var o map[string]any
	if err := utiljson.Unmarshal([]byte(text), &o); err != nil {
		panic(fmt.Sprintf("%v: %s", err, text)) // a mistake in a table
	}
	return o
}

func compact(text string) string {
	if text == Absent {
		return Absent
	}
	return marshal(JSON(text))
}

func marshal(o map[string]any) string {
	content, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was parsed from JSON
	}
	return string(content)
}

// documented returns the last object of a manifest of the documentation, or nil if the manifest is invalid YAML. In some manifests a
// MachineHealthCheck precedes the object.
func documented(file string) *unstructured.Unstructured {
	objects, err := seeds.Objects(file)
	if err != nil {
		return nil
	}
	return objects[len(objects)-1]
}

// Manifest is an object that an API server refuses without a webhook: a valid object with one wrong field. docs/reference/bad-input.md
// lists all of them.
type Manifest struct {
	Kind, Field string
	Value       any // nil: the field is missing
	Says        string
}

// valid are accepted objects, by kind and version.
var valid = map[string]string{
	"HostRemediation": `{"apiVersion":"kubemend.io/v1alpha1","spec":{"strategy":{"type":"Reboot","retryLimit":1,"timeoutSeconds":300}}}`,
	"HostRemediationTemplate": `{"apiVersion":"kubemend.io/v1alpha1",
		"spec":{"template":{"spec":{"strategy":{"type":"Reboot","retryLimit":1,"timeoutSeconds":300}}}}}`,
	"Metal3Remediation": `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2",
		"spec":{"strategy":{"type":"Reboot","retryLimit":1,"timeoutSeconds":300}}}`,
	"Metal3Remediation v1beta1": `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1",
		"spec":{"strategy":{"type":"Reboot","retryLimit":1,"timeout":"300s"}}}`,
	"Metal3RemediationTemplate": `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2",
		"spec":{"template":{"spec":{"strategy":{"type":"Reboot","retryLimit":1,"timeoutSeconds":300}}}}}`,
	"NodeHealthCheck": `{"apiVersion":"remediation.medik8s.io/v1alpha1","spec":{"selector":{"matchLabels":{"a":"b"}},"minHealthy":"51%",
		"unhealthyConditions":[{"type":"Ready","status":"False","duration":"5m"}],
		"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"ns","name":"reboot"}}}`,
	"RemediationPolicy": `{"apiVersion":"kubemend.io/v1alpha1","spec":{"selector":{"clusters":{"matchLabels":{"tier":"prod"}}},
		"limits":[{"name":"rack","groupBy":[{"key":"HostLabel","label":"rack"}],"maxInFlight":2,"maxUnavailable":"25%","maxPerHour":6,
		"slowStart":"Enabled"}],
		"windows":[{"action":"Deny","schedule":"0 8 * * 1-5","timeZone":"Europe/Berlin","durationSeconds":36000,"scope":"LiveNodes"}],
		"blockWhile":["NodeMaintenance"],"waitForSpare":{},"mode":"Act"}}`,
	"RemediationPolicy without windows": `{"apiVersion":"kubemend.io/v1alpha1","spec":{"selector":{},
		"limits":[{"name":"rack","groupBy":[{"key":"Cluster"}],"maxInFlight":"0%"}]}}`,
	"RemediationOverride": `{"apiVersion":"kubemend.io/v1alpha1","spec":{"targetRef":{"kind":"Cluster","name":"prod"},"action":"Hold",
		"until":"2026-11-28T14:00:00Z","reason":"switch swap"}}`,
	"RemediationOverride that allows": `{"apiVersion":"kubemend.io/v1alpha1","spec":{"targetRef":{"kind":"MachineHealthCheck","name":"a"},
		"action":"Allow","allow":{"maxUnhealthy":"60%","maxInFlight":1},"until":"2026-11-28T14:00:00Z","reason":"power is back"}}`,
	"NodeHealthCheck with steps": `{"apiVersion":"remediation.medik8s.io/v1alpha1","spec":{"selector":{"matchLabels":{"a":"b"}},
		"escalatingRemediations":[{"order":1,"timeout":"5m",
		"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"ns","name":"reboot"}}]}}`,
}

const (
	strategy  = "spec.strategy."
	templated = "spec.template.spec.strategy."
)

// Manifests are the refused objects.
var Manifests = []Manifest{
	{"HostRemediation", strategy + "timeoutSeconds", 0, "should be greater than or equal to 100"},
	{"HostRemediation", strategy + "timeoutSeconds", 99, "should be greater than or equal to 100"},
	{"HostRemediation", strategy + "timeoutSeconds", 86401, "should be less than or equal to 86400"},
	{"HostRemediation", strategy + "timeoutSeconds", "5m", "must be of type integer"},
	{"HostRemediation", strategy + "bootTimeoutSeconds", 99, "should be greater than or equal to 100"},
	{"HostRemediation", strategy + "retryLimit", -1, "should be greater than or equal to 0"},
	{"HostRemediation", strategy + "retryLimit", 101, "should be less than or equal to 100"},
	{"HostRemediation", strategy + "retryLimit", "two", "must be of type integer"},
	{"HostRemediation", strategy + "type", "Shutdown", `supported values: "Reboot"`},
	{"HostRemediation", strategy + "type", nil, "is only supported remediation strategy"},
	{"HostRemediation", "spec.strategy", "Reboot", "must be of type object"},
	{"HostRemediationTemplate", templated + "timeoutSeconds", 99, "should be greater than or equal to 100"},
	{"HostRemediationTemplate", templated + "timeoutSeconds", 86401, "should be less than or equal to 86400"},
	{"HostRemediationTemplate", templated + "retryLimit", 101, "should be less than or equal to 100"},
	{"HostRemediationTemplate", templated + "type", "Shutdown", `supported values: "Reboot"`},
	{"HostRemediationTemplate", "spec.template", nil, "Required value"},
	{"Metal3Remediation", strategy + "timeoutSeconds", 99, "should be greater than or equal to 100"},
	{"Metal3Remediation", strategy + "timeoutSeconds", 3000000000, "must be of type integer with format int32"},
	{"Metal3Remediation", strategy + "retryLimit", 0, "should be greater than or equal to 1"},
	{"Metal3Remediation", strategy + "type", "PowerOff", `supported values: "Reboot"`},
	{"Metal3Remediation", strategy + "type", nil, "is only supported remediation strategy"},
	{"Metal3Remediation v1beta1", strategy + "timeout", "300", "type conversion error from 'string' to 'google.protobuf.Duration'"},
	{"Metal3Remediation v1beta1", strategy + "timeout", "five minutes",
		"type conversion error from 'string' to 'google.protobuf.Duration'"},
	{"Metal3Remediation v1beta1", strategy + "timeout", "99s", "min duration is 100 seconds"},
	{"Metal3Remediation v1beta1", strategy + "type", "PowerOff", "is only supported remediation strategy"},
	{"Metal3Remediation v1beta1", strategy + "retryLimit", 0, "is minimum retrylimit"},
	{"Metal3RemediationTemplate", templated + "timeoutSeconds", 99, "should be greater than or equal to 100"},
	{"Metal3RemediationTemplate", templated + "retryLimit", 0, "should be greater than or equal to 1"},
	{"Metal3RemediationTemplate", templated + "type", nil, "only supported remediation strategy is reboot"},
	{"Metal3RemediationTemplate", "spec.template", nil, "Required value"},
	{"NodeHealthCheck", "spec.minHealthy", "150%", "should match"},
	{"NodeHealthCheck", "spec.minHealthy", "some", "should match"},
	{"NodeHealthCheck", "spec.minHealthy", -1, "minHealthy must not be negative: -1"},
	{"NodeHealthCheck", "spec.maxUnhealthy", "40%", "minHealthy and maxUnhealthy cannot be specified at the same time"},
	{"NodeHealthCheck with steps", "spec.maxUnhealthy", "40 %", "should match"},
	{"NodeHealthCheck with steps", "spec.maxUnhealthy", 2147483648, "maxUnhealthy must be at most 2147483647"},
	{"NodeHealthCheck", "spec.unhealthyConditions", []any{}, "unhealthyConditions must not be empty"},
	{"NodeHealthCheck", "spec.unhealthyConditions.0.type", "", "should be at least 1 chars long"},
	{"NodeHealthCheck", "spec.unhealthyConditions.0.status", "", "should be at least 1 chars long"},
	{"NodeHealthCheck", "spec.unhealthyConditions.0.duration", "soon", "should match"},
	{"NodeHealthCheck", "spec.unhealthyConditions.0.duration", "-5m", "should match"},
	{"NodeHealthCheck", "spec.unhealthyConditions.0.duration", nil, "Required value"},
	{"NodeHealthCheck", "spec.remediationTemplate", nil, "Either RemediationTemplate or at least one EscalatingRemediations must be set"},
	{"NodeHealthCheck", "spec.remediationTemplate.kind", "HostRemediation",
		"must be the kind of the remediation followed by Template: found kind HostRemediation"},
	{"NodeHealthCheck", "spec.remediationTemplate.kind", nil, "kind of the remediation template must be set"},
	{"NodeHealthCheck", "spec.remediationTemplate.name", nil, "name of the remediation template must be set"},
	{"NodeHealthCheck", "spec.remediationTemplate.apiVersion", nil, "apiVersion of the remediation template must be set"},
	{"NodeHealthCheck", "spec.healthyDelay", "soon", "should match"},
	{"NodeHealthCheck", "spec.stormCooldownDuration", "-1m", "should match"},
	{"NodeHealthCheck", "spec.pauseRequests", "maintenance", "must be of type array"},
	{"NodeHealthCheck with steps", "spec.escalatingRemediations", []any{},
		"Either RemediationTemplate or at least one EscalatingRemediations must be set"},
	{"NodeHealthCheck with steps", "spec.escalatingRemediations.0.timeout", "30s",
		"EscalatingRemediation Timeout must be at least one minute: found timeout 30s"},
	{"NodeHealthCheck with steps", "spec.escalatingRemediations.0.timeout", "soon", "timeout must be a duration such as 5m"},
	{"NodeHealthCheck with steps", "spec.escalatingRemediations.0.order", nil, "Required value"},
	{"NodeHealthCheck with steps", "spec.escalatingRemediations.0.remediationTemplate.kind", "Template",
		"must be the kind of the remediation followed by Template"},
	{"RemediationPolicy", "spec.selector", nil, "Required value"},
	{"RemediationPolicy", "spec.limits.0.name", "Rack 1", "should match"},
	{"RemediationPolicy", "spec.limits.0.maxInFlight", -1, "must be 0 or more"},
	{"RemediationPolicy", "spec.limits.0.maxInFlight", "101%", "should match"},
	{"RemediationPolicy", "spec.limits.0.maxInFlight", "two", "should match"},
	{"RemediationPolicy", "spec.limits.0.maxUnavailable", "25", "should match"},
	{"RemediationPolicy", "spec.limits.0.maxPerHour", -1, "should be greater than or equal to 0"},
	{"RemediationPolicy", "spec.limits.0.slowStart", "Yes", `supported values: "Enabled", "Disabled"`},
	{"RemediationPolicy without windows", "spec.limits.0.maxInFlight", nil, "needs maxInFlight, maxUnavailable, maxPerHour or slowStart"},
	{"RemediationPolicy without windows", "spec.limits", nil, "set limits, windows, blockWhile, waitForSpare or mode"},
	{"RemediationPolicy", "spec.limits.0.groupBy.0.label", nil, "is for HostLabel and MachineLabel alone"},
	{"RemediationPolicy", "spec.windows.0.durationSeconds", 30, "should be greater than or equal to 60"},
	{"RemediationPolicy", "spec.windows.0.action", "Block", `supported values: "Deny", "Allow"`},
	{"RemediationPolicy", "spec.windows.0.scope", "Dead", `supported values: "All", "LiveNodes"`},
	{"RemediationPolicy", "spec.blockWhile", []any{"Night"}, `supported values: "NodeMaintenance", "NodeShutdown"`},
	{"RemediationPolicy", "spec.mode", "act", `supported values: "Act", "Observe"`},
	{"RemediationPolicy", "spec.selector", map[string]any{},
		"mode Act needs a selector with namespaces, clusters or checks: without one the policy would claim every check"},
	{"RemediationPolicy", "spec.selector.targets", map[string]any{},
		"selector.targets cannot be combined with mode: a check is claimed with all of its machines"},
	{"RemediationPolicy", "spec.waitForSpare.timeoutSeconds", 59, "should be greater than or equal to 60"},
	{"RemediationPolicy", "spec.waitForSpare.timeoutSeconds", 86401, "should be less than or equal to 86400"},
	{"RemediationOverride", "spec.reason", "", "should be at least 1 chars long"},
	{"RemediationOverride", "spec.until", nil, "Required value"},
	{"RemediationOverride", "spec.until", "tomorrow", "must be of type date-time"},
	{"RemediationOverride", "spec.action", "Stop", `supported values: "Hold", "Allow"`},
	{"RemediationOverride", "spec.allow", map[string]any{"maxUnhealthy": "60%", "maxInFlight": "10%"},
		"is required for Allow of a Cluster or a MachineHealthCheck, and forbidden otherwise"},
	{"RemediationOverride", "spec.targetRef.kind", "RemediationPolicy", "Allow supports Cluster, MachineHealthCheck and RemediationPolicy"},
	{"RemediationOverride that allows", "spec.allow.maxInFlight", nil, "Required value"},
	{"RemediationOverride that allows", "spec.allow.maxUnhealthy", "160%", "should match"},
	{"RemediationOverride that allows", "spec.targetRef.kind", "Machine",
		"Allow supports Cluster, MachineHealthCheck and RemediationPolicy"},
}

// Objects returns the refused object and the valid one.
func (m Manifest) Objects() (bad, good *unstructured.Unstructured) {
	good = &unstructured.Unstructured{Object: JSON(valid[m.Kind])}
	good.SetKind(strings.Fields(m.Kind)[0])
	good.SetName("a")
	if good.GetKind() != NodeHealthCheck.Kind {
		good.SetNamespace("default")
	}
	bad = good.DeepCopy()
	change(bad.Object, strings.Split(m.Field, "."), m.Value)
	return bad, good
}

// Refuses reports whether an error has the message of the row, the kind and the name of the field.
func (m Manifest) Refuses(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, m.Says) && strings.Contains(text, strings.Fields(m.Kind)[0]) && names(text, m.Field)
}

// names reports whether text names the field or a field around it. A rule about two fields reports the field around both.
func names(text, field string) bool {
	parts := strings.Split(strings.ReplaceAll(field, ".0", "[0]"), ".")
	for n := len(parts) - 1; n > 0; n-- {
		if strings.Contains(text, " "+strings.Join(parts[:n], ".")+":") {
			return true
		}
	}
	return strings.Contains(text, strings.Join(parts, "."))
}

// change sets a field, or removes it if value is nil.
func change(in any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		if list, is := in.([]any); is && key == "0" {
			in = list[0]
			continue
		}
		in = in.(map[string]any)[key]
	}
	m, last := in.(map[string]any), path[len(path)-1]
	if value == nil {
		delete(m, last)
		return
	}
	if n, is := value.(int); is {
		value = int64(n)
	}
	m[last] = value
}
