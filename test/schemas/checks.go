package schemas

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/seeds"
)

// NodeHealthCheck is the kind of checks of nodes.
var NodeHealthCheck = Kind{nhcv1.GroupVersion.String(), "NodeHealthCheck"}

// Parts of NodeHealthCheck specs.
const (
	oneTemplate  = `"remediationTemplate":{"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"a"}`
	bothDefaults = `"unhealthyConditions":[{"duration":"300s","status":"False","type":"Ready"},
		{"duration":"300s","status":"Unknown","type":"Ready"}]`
)

func specWith(fields ...string) string { return "{" + strings.Join(fields, ",") + "}" }

func templateWith(fields string) string { return `"remediationTemplate":{` + fields + `}` }

func condition(status, duration string) string {
	return fmt.Sprintf(`"unhealthyConditions":[{"type":"Ready","status":%q,"duration":%q}]`, status, duration)
}

func steps(each ...string) string {
	return `"escalatingRemediations":[` + strings.Join(each, ",") + `]`
}

func step(kind string, order int, timeout string) string {
	return fmt.Sprintf(`{"remediationTemplate":{"apiVersion":"test.io/v1","kind":%q,"namespace":"default","name":"a"},
		"order":%d,"timeout":%q}`, kind, order, timeout)
}

func stepWith(template string, order int) string {
	return fmt.Sprintf(`{"remediationTemplate":{%s},"order":%d,"timeout":"60s"}`, template, order)
}

func differentSteps(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = step(fmt.Sprintf("Reboot%dTemplate", i), i, "1m")
	}
	return all
}

// sameSteps returns the highest allowed number of steps, all with the same template.
func sameSteps(kind string) []string {
	all := make([]string, 20)
	for i := range all {
		all[i] = step(kind, i, "1m")
	}
	return all
}

// NodeHealthChecks are requests that create checks while no webhook runs.
func NodeHealthChecks() []Row {
	var rows []Row
	for _, row := range slices.Concat(acceptedChecks, acceptedSteps) {
		rows = append(rows, Row{Name: "NodeHealthCheck: " + row.name, Object: NodeHealthCheck.Object("a", row.spec), Strict: true})
	}
	for _, row := range slices.Concat(refusedChecks, refusedSteps) {
		rows = append(rows,
			Row{Name: "NodeHealthCheck: seed 2.4: " + row.name, Object: NodeHealthCheck.Object("a", row.spec), Refused: row.with})
	}
	return append(rows, Row{
		Name:    "NodeHealthCheck: C01, C03, seed 0.14: default conditions, and a template that does not exist",
		Object:  NodeHealthCheck.Object("defaults", specWith(oneTemplate)),
		Becomes: specWith(oneTemplate, bothDefaults),
	})
}

// DocumentedChecks are requests with the documentation's manifests, and with a corrected copy of a wrong one.
func DocumentedChecks() []Row {
	const provider = `"remediationTemplate":{"apiVersion":"medik8s.io/v1alpha1","kind":"ProviderXRemediationTemplate",
		"name":"group-x","namespace":"default"}`
	becomes := map[string]string{
		"000/nodehealthcheck.yaml": specWith(bothDefaults, provider),
		"001/nodehealthcheck.yaml": specWith(bothDefaults, `"minHealthy":"51%","pauseRequests":["<pause-test-cluster>"]`,
			`"selector":{"matchExpressions":[{"key":"node-role.kubernetes.io/worker","operator":"Exists"}]}`,
			templateWith(`"apiVersion":"poison-pill.medik8s.io/v1alpha1","kind":"PoisonPillRemediationTemplate",`+
				`"name":"group-x","namespace":"openshift-operators"`)),
	}
	var rows []Row
	for _, m := range seeds.All {
		if o := documented(m.File); o != nil && o.GetKind() == NodeHealthCheck.Kind {
			rows = append(rows,
				Row{Name: "NodeHealthCheck: seed " + m.File, Strict: true, Object: o, Refused: m.Refused, Becomes: becomes[m.File]})
		}
	}
	quoted := documented("000/nodehealthcheck-with-options.yaml")
	conditions := []any{map[string]any{"type": "Ready", "status": "False", "duration": "300s"}}
	if err := unstructured.SetNestedSlice(quoted.Object, conditions, "spec", "unhealthyConditions"); err != nil {
		panic(err) // a mistake in the manifest
	}
	return append(rows, Row{
		Name: "NodeHealthCheck: seed 000 with all options, and its status in quotation marks", Strict: true, Object: quoted,
		Becomes: specWith(condition("False", "300s"), `"maxUnhealthy":"49%"`, provider,
			`"selector":{"matchLabels":{"kubernetes.io/os":"linux"},
				"matchExpressions":[{"key":"another-node-label-key","operator":"In","values":["another-node-label-value"]}]}`),
	})
}

type (
	acceptedCheck struct{ name, spec string }
	refusedCheck  struct{ name, spec, with string }
)

var acceptedChecks = []acceptedCheck{
	{"C13, seed 0.11: one template and nothing else: neither threshold, which medik8s refuses", specWith(oneTemplate)},
	{"C10: a template with all that can be said beside it", specWith(oneTemplate, `"minHealthy":"51%"`, condition("False", "1h30m"),
		`"stormCooldownDuration":"5m","healthyDelay":"-1s","pauseRequests":["for the test"]`)},
	{"C10, seed 0.8: steps instead of one template", specWith(steps(step("RebootTemplate", 1, "60s"), step("ReplaceTemplate", 2, "1h")))},
	{"C14: maxUnhealthy alone", specWith(oneTemplate, `"maxUnhealthy":2`)},
	{"C16, seed 0.9, 0.10, 1.8: an empty selector, which medik8s refuses", specWith(oneTemplate, `"selector":{}`)},
	{"C05: a percentage", specWith(oneTemplate, `"minHealthy":"30%"`)},
	{"C05: a percentage of unhealthy nodes", specWith(oneTemplate, `"maxUnhealthy":"30%"`)},
	{"all of the percentages there are", specWith(oneTemplate, `"minHealthy":"100%"`)},
	{"no healthy node at all", specWith(oneTemplate, `"minHealthy":0`)},
	{"the largest number", specWith(oneTemplate, `"maxUnhealthy":2147483647`)},
	{"steps of negative order", specWith(steps(step("RebootTemplate", -1, "60s"), step("ReplaceTemplate", 0, "60s")))},
	{"steps out of order", specWith(steps(step("RebootTemplate", 7, "60s"), step("ReplaceTemplate", 3, "60s")))},
	{"as many steps as there may be", specWith(steps(differentSteps(20)...))},
	{"a template beside an empty list of steps", specWith(oneTemplate, steps())},
	{"minHealthy with a template that deletes machines", specWith(`"minHealthy":1`,
		steps(step("MachineDeletionRemediationTemplate", 1, "60s")))},
	{"a condition that no node can have", specWith(oneTemplate, condition("Perhaps", "0s"))},
	{"the longest duration", specWith(oneTemplate, `"healthyDelay":"2562047h"`)},
	{"the longest negative one", specWith(oneTemplate, `"healthyDelay":"-2562047h"`)},
}

// refusedChecks are refused checks that are not in Manifests.
var refusedChecks = []refusedCheck{
	{"C12: both thresholds", specWith(oneTemplate, `"minHealthy":"51%","maxUnhealthy":"49%"`),
		"spec: Invalid value: minHealthy and maxUnhealthy cannot be specified at the same time"},
	{"C11, W34: a negative maxUnhealthy", specWith(oneTemplate, `"maxUnhealthy":-7`),
		"spec.maxUnhealthy: Invalid value: -7: maxUnhealthy must not be negative: -7"},
	{"C04: more than all unhealthy", specWith(oneTemplate, `"maxUnhealthy":"150%"`), "spec.maxUnhealthy: Invalid value"},
	{
		"a number that no client could read", specWith(oneTemplate, `"minHealthy":2147483648`),
		"spec.minHealthy: Invalid value: 2147483648: minHealthy must be at most 2147483647",
	},
	{"C15: maxUnhealthy with a template that deletes machines",
		specWith(`"maxUnhealthy":1`, templateWith(`"apiVersion":"test.io/v1","kind":"MachineDeletionRemediationTemplate","name":"a"`)),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate"},
	{"C15: the same however it is written",
		specWith(`"maxUnhealthy":1`, templateWith(`"apiVersion":"test.io/v1","kind":"machinedeletionREMEDIATIONTemplate","name":"a"`)),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate"},
	{"C15: maxUnhealthy with a step that deletes machines",
		specWith(`"maxUnhealthy":1`, steps(step("RebootTemplate", 1, "60s"), step("MachineDeletionremediationTemplate", 2, "60s"))),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate escalating remediation"},
	{"C17, seed 0.8: no spec", ``, "spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"},
	{"C17: both a template and steps", specWith(oneTemplate, steps(step("RebootTemplate", 1, "60s"))),
		"spec: Invalid value: RemediationTemplate and EscalatingRemediations usage is mutual exclusive"},
	{"C18: two steps of one order",
		specWith(steps(step("RebootTemplate", 3, "60s"), step("FenceTemplate", 5, "60s"), step("ReplaceTemplate", 5, "60s"))),
		"spec.escalatingRemediations: Invalid value: EscalatingRemediation Order must be unique: found duplicate order 5"},
	{"C18: a step of almost a minute", specWith(steps(step("RebootTemplate", 1, "0.99m"))),
		`spec.escalatingRemediations[0].timeout: Invalid value: "0.99m": ` +
			"EscalatingRemediation Timeout must be at least one minute: found timeout 0.99m"},
	{"more steps than there may be", specWith(steps(differentSteps(21)...)),
		"spec.escalatingRemediations: Too many: 21: must have at most 20 items"},
	{"W21: a kind that is not one of templates", specWith(templateWith(`"apiVersion":"test.io/v1","kind":"Reboot","name":"a"`)),
		"spec.remediationTemplate.kind: Invalid value: " +
			"kind of the remediation template must be the kind of the remediation followed by Template: found kind Reboot"},
	{"W21: a kind that is nothing but Template", specWith(steps(step("Template", 1, "60s"))),
		"spec.escalatingRemediations[0].remediationTemplate.kind: Invalid value: " +
			"kind of the remediation template must be the kind of the remediation followed by Template: found kind Template"},
	{"W21: a kind that is shorter than Template", specWith(steps(step("Foo", 1, "60s"))),
		"kind of the remediation template must be the kind of the remediation followed by Template: found kind Foo"},
	{"a step whose template is nothing", specWith(steps(`{"remediationTemplate":{},"order":1,"timeout":"60s"}`)),
		"spec.escalatingRemediations[0].remediationTemplate.name: Invalid value: name of the remediation template must be set"},
	{"a step without a template", specWith(steps(`{"order":1,"timeout":"60s"}`)),
		"spec.escalatingRemediations[0].remediationTemplate: Required value"},
	{"one condition twice", specWith(oneTemplate,
		`"unhealthyConditions":[{"type":"Ready","status":"False","duration":"1s"},{"type":"Ready","status":"False","duration":"2s"}]`),
		"spec.unhealthyConditions[1]: Duplicate value"},
	{"a duration that no client could read", specWith(oneTemplate, condition("False", "9999999h")),
		`spec.unhealthyConditions[0].duration: Invalid value: "string": ` + notDuration +
			" evaluating rule: duration must be at most 2562047h"},
	{"a cooldown that no client could read", specWith(oneTemplate, `"stormCooldownDuration":"9999999h"`),
		notDuration + " evaluating rule: stormCooldownDuration must be at most 2562047h"},
	{"a delay that no client could read", specWith(oneTemplate, `"healthyDelay":"-9999999h"`),
		notDuration + " evaluating rule: healthyDelay must be at most 2562047h"},
	{"a condition of a truth value, as YAML reads False without quotation marks",
		specWith(oneTemplate, `"unhealthyConditions":[{"type":"Ready","status":false,"duration":"300s"}]`),
		`spec.unhealthyConditions[0].status: Invalid value: "boolean": ` +
			`spec.unhealthyConditions[0].status in body must be of type string: "boolean"`},
	{
		"a condition without a status", specWith(oneTemplate, `"unhealthyConditions":[{"type":"Ready","duration":"5m"}]`),
		"spec.unhealthyConditions[0].status: Required value",
	},
	{"a threshold that is a truth value", specWith(oneTemplate, `"minHealthy":true`), "spec.minHealthy"},
	{
		"a selector without a key", specWith(oneTemplate, `"selector":{"matchExpressions":[{"operator":"Exists"}]}`),
		"spec.selector.matchExpressions[0].key: Required value",
	},
	{
		"a selector without an operator", specWith(oneTemplate, `"selector":{"matchExpressions":[{"key":"a"}]}`),
		"spec.selector.matchExpressions[0].operator: Required value",
	},
	{
		"a step with a template of no version", specWith(steps(stepWith(`"kind":"RebootTemplate","name":"a"`, 1))),
		"spec.escalatingRemediations[0].remediationTemplate.apiVersion: Invalid value: apiVersion of the remediation template must be set",
	},
	{
		"a step with a template of no kind", specWith(steps(stepWith(`"apiVersion":"test.io/v1","name":"a"`, 1))),
		"spec.escalatingRemediations[0].remediationTemplate.kind: Invalid value: kind of the remediation template must be set",
	},
}

var acceptedSteps = []acceptedCheck{
	{"a step of a minute", specWith(steps(step("RebootTemplate", 1, "1m")))},
	{"a step as long as a lease can be", specWith(steps(step("RebootTemplate", 1, "596523h")))},
	{"a step of hours, minutes and parts of seconds", specWith(steps(step("RebootTemplate", 1, "1h30m0.5s")))},
	{"a step of units in no order", specWith(steps(step("RebootTemplate", 1, "30s5m")))},
	{"a step of milliseconds", specWith(steps(step("RebootTemplate", 1, "600000ms")))},
	{"a step of microseconds", specWith(steps(step("RebootTemplate", 1, "60000000µs")))},
	{"a step of nanoseconds", specWith(steps(step("RebootTemplate", 1, "60000000000ns")))},
	{"steps with templates of one name and of different kinds",
		specWith(steps(step("RebootTemplate", 1, "60s"), step("FenceTemplate", 2, "60s")))},
	{"steps with templates of one name and of different groups", specWith(steps(
		step("RebootTemplate", 1, "60s"),
		stepWith(`"apiVersion":"other.io/v1","kind":"RebootTemplate","namespace":"default","name":"a"`, 2)))},
	{"steps with templates of one kind in different namespaces", specWith(steps(
		step("RebootTemplate", 1, "60s"),
		stepWith(`"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"other","name":"a"`, 2)))},
	{"steps with templates of one kind and of different names", specWith(steps(
		step("RebootTemplate", 1, "60s"),
		stepWith(`"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"b"`, 2)))},
}

var refusedSteps = []refusedCheck{
	{"a timeout without a unit, with nothing but what it should be", specWith(steps(step("RebootTemplate", 1, "60"))), noTimeout("60")},
	{"a timeout for which there is no lease", specWith(steps(step("RebootTemplate", 1, "596523h1s"))), noTimeout("596523h1s")},
	{"a timeout that no client could read", specWith(steps(step("RebootTemplate", 1, "9999999h"))), noTimeout("9999999h")},
	{"a timeout that is too long only as a sum", specWith(steps(step("RebootTemplate", 1, "999999h999999h99999h"))),
		noTimeout("999999h999999h99999h")},
	{"a timeout of more characters than any needs", specWith(steps(step("RebootTemplate", 1, "100000h59m59.999999999s"))),
		"spec.escalatingRemediations[0].timeout: Too long: may not be more than 20 bytes"},
	{"one template in two steps",
		specWith(steps(step("RebootTemplate", 1, "60s"), step("FenceTemplate", 2, "60s"), step("RebootTemplate", 3, "5m"))),
		"spec.escalatingRemediations: Invalid value: EscalatingRemediation RemediationTemplate must be unique: " +
			"found RebootTemplate default/a in more than one step"},
	{"one template without a namespace in two steps", specWith(steps(
		stepWith(`"apiVersion":"test.io/v1","kind":"RebootTemplate","name":"a"`, 1),
		stepWith(`"apiVersion":"test.io/v1","kind":"RebootTemplate","name":"a"`, 2))),
		"EscalatingRemediation RemediationTemplate must be unique: found RebootTemplate /a in more than one step"},
	{"one template in all of the steps that there may be", specWith(steps(sameSteps("RebootTemplate")...)),
		"found RebootTemplate default/a in more than one step"},
}

// noTimeout returns the error for a timeout that is not a valid duration.
func noTimeout(text string) string {
	return fmt.Sprintf(`"a" is invalid: spec.escalatingRemediations[0].timeout: Invalid value: %q: `+
		"timeout must be a duration such as 5m, of at least 1m and at most 596523h", text)
}
