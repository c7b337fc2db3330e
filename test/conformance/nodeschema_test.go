package conformance

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// checks are NodeHealthChecks as clients write them.
var checks = provider{nhcv1.GroupVersion.String(), "NodeHealthCheck"}

// Parts of specs of checks.
const (
	oneTemplate  = `"remediationTemplate":{"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"a"}`
	resembling   = `"selector":{"matchExpressions":[{"key":"a","operator":"Resembles","values":["b"]}]}`
	ownTemplate  = `"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"default","name":"a"}`
	bothDefaults = `"unhealthyConditions":[{"duration":"300s","status":"False","type":"Ready"},{"duration":"300s","status":"Unknown","type":"Ready"}]`
)

// ladder is escalatingRemediations of the given steps.
func ladder(steps ...string) string {
	return `"escalatingRemediations":[` + strings.Join(steps, ",") + `]`
}

// rung is one step: a template of that kind.
func rung(kind string, order int, timeout string) string {
	return fmt.Sprintf(`{"remediationTemplate":{"apiVersion":"test.io/v1","kind":%q,"namespace":"default","name":"a"},"order":%d,"timeout":%q}`,
		kind, order, timeout)
}

// rungs are n steps, all of different order and template.
func rungs(n int) []string {
	steps := make([]string, n)
	for i := range steps {
		steps[i] = rung(fmt.Sprintf("Reboot%dTemplate", i), i, "1m")
	}
	return steps
}

func specWith(fields ...string) string { return "{" + strings.Join(fields, ",") + "}" }

// unwell is a check of one condition that lasts for a duration.
func unwell(status, duration string) string {
	return fmt.Sprintf(`"unhealthyConditions":[{"type":"Ready","status":%q,"duration":%q}]`, status, duration)
}

// templateWith is a reference of these fields.
func templateWith(fields string) string { return `"remediationTemplate":{` + fields + `}` }

var takenChecks = []TableEntry{
	Entry("one template and nothing else", specWith(oneTemplate)),
	Entry("C10: a template with all that can be said beside it", specWith(oneTemplate, `"minHealthy":"51%"`, unwell("False", "1h30m"),
		`"stormCooldownDuration":"5m","healthyDelay":"-1s","pauseRequests":["for the test"]`)),
	Entry("C10, seed 0.8: steps instead of one template", specWith(ladder(rung("RebootTemplate", 1, "60s"), rung("ReplaceTemplate", 2, "1h")))),
	Entry("C13, seed 0.11: neither threshold, which medik8s refuses", specWith(oneTemplate)),
	Entry("C14: maxUnhealthy alone", specWith(oneTemplate, `"maxUnhealthy":2`)),
	Entry("C16, seed 0.9, 0.10, 1.8: an empty selector, which medik8s refuses", specWith(oneTemplate, `"selector":{}`)),
	Entry("C05: a percentage", specWith(oneTemplate, `"minHealthy":"30%"`)),
	Entry("C05: a percentage of unhealthy nodes", specWith(oneTemplate, `"maxUnhealthy":"30%"`)),
	Entry("all of the percentages there are", specWith(oneTemplate, `"minHealthy":"100%"`)),
	Entry("no healthy node at all", specWith(oneTemplate, `"minHealthy":0`)),
	Entry("the largest number", specWith(oneTemplate, `"maxUnhealthy":2147483647`)),
	Entry("steps of negative order", specWith(ladder(rung("RebootTemplate", -1, "60s"), rung("ReplaceTemplate", 0, "60s")))),
	Entry("steps out of order", specWith(ladder(rung("RebootTemplate", 7, "60s"), rung("ReplaceTemplate", 3, "60s")))),
	Entry("as many steps as there may be", specWith(ladder(rungs(20)...))),
	Entry("a template beside an empty list of steps", specWith(oneTemplate, ladder())),
	Entry("minHealthy with a template that deletes machines", specWith(`"minHealthy":1`,
		ladder(rung("MachineDeletionRemediationTemplate", 1, "60s")))),
	Entry("no conditions, which are the default then", specWith(oneTemplate)),
	Entry("a condition that no node can have", specWith(oneTemplate, unwell("Perhaps", "0s"))),
	Entry("the longest duration", specWith(oneTemplate, `"healthyDelay":"2562047h"`)),
	Entry("the longest negative one", specWith(oneTemplate, `"healthyDelay":"-2562047h"`)),
}

var refusedChecks = []TableEntry{
	Entry("C12: both thresholds", specWith(oneTemplate, `"minHealthy":"51%","maxUnhealthy":"49%"`),
		"spec: Invalid value: minHealthy and maxUnhealthy cannot be specified at the same time"),
	Entry("C11: a negative minHealthy", specWith(oneTemplate, `"minHealthy":-1`), "spec.minHealthy: Invalid value: -1: minHealthy must not be negative: -1"),
	Entry("C11: a negative maxUnhealthy", specWith(oneTemplate, `"maxUnhealthy":-7`), "spec.maxUnhealthy: Invalid value: -7: maxUnhealthy must not be negative: -7"),
	Entry("C04: more than all healthy", specWith(oneTemplate, `"minHealthy":"150%"`), "spec.minHealthy: Invalid value"),
	Entry("C04: more than all unhealthy", specWith(oneTemplate, `"maxUnhealthy":"150%"`), "spec.maxUnhealthy: Invalid value"),
	Entry("a number that no client could read", specWith(oneTemplate, `"minHealthy":2147483648`), "spec.minHealthy: Invalid value: 2147483648: minHealthy must be at most 2147483647"),
	Entry("another such number", specWith(oneTemplate, `"maxUnhealthy":2147483648`), "spec.maxUnhealthy: Invalid value: 2147483648: maxUnhealthy must be at most 2147483647"),
	Entry("C15: maxUnhealthy with a template that deletes machines",
		specWith(`"maxUnhealthy":1`, templateWith(`"apiVersion":"test.io/v1","kind":"MachineDeletionRemediationTemplate","name":"a"`)),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate"),
	Entry("C15: the same however it is written",
		specWith(`"maxUnhealthy":1`, templateWith(`"apiVersion":"test.io/v1","kind":"machinedeletionREMEDIATIONTemplate","name":"a"`)),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate"),
	Entry("C15: maxUnhealthy with a step that deletes machines",
		specWith(`"maxUnhealthy":1`, ladder(rung("RebootTemplate", 1, "60s"), rung("MachineDeletionremediationTemplate", 2, "60s"))),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate escalating remediation"),
	Entry("C17, seed 0.8: neither a template nor steps", specWith(`"minHealthy":1`),
		"spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"),
	Entry("C17: an empty list of steps", specWith(ladder()),
		"spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"),
	Entry("C17: an empty spec", specWith(), "spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"),
	Entry("C17: no spec", ``, "spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"),
	Entry("C17: both a template and steps", specWith(oneTemplate, ladder(rung("RebootTemplate", 1, "60s"))),
		"spec: Invalid value: RemediationTemplate and EscalatingRemediations usage is mutual exclusive"),
	Entry("C18: two steps of one order",
		specWith(ladder(rung("RebootTemplate", 3, "60s"), rung("FenceTemplate", 5, "60s"), rung("ReplaceTemplate", 5, "60s"))),
		"spec.escalatingRemediations: Invalid value: EscalatingRemediation Order must be unique: found duplicate order 5"),
	Entry("C18: a step of less than a minute", specWith(ladder(rung("RebootTemplate", 1, "60s"), rung("FenceTemplate", 2, "59s"))),
		`spec.escalatingRemediations[1].timeout: Invalid value: "59s": EscalatingRemediation Timeout must be at least one minute: found timeout 59s`),
	Entry("C18: a step of almost a minute", specWith(ladder(rung("RebootTemplate", 1, "0.99m"))),
		`spec.escalatingRemediations[0].timeout: Invalid value: "0.99m": EscalatingRemediation Timeout must be at least one minute: found timeout 0.99m`),
	Entry("more steps than there may be", specWith(ladder(rungs(21)...)), "spec.escalatingRemediations: Too many: 21: must have at most 20 items"),
	Entry("W21: a kind that is not one of templates", specWith(templateWith(`"apiVersion":"test.io/v1","kind":"Reboot","name":"a"`)),
		"spec.remediationTemplate.kind: Invalid value: "+
			"kind of the remediation template must be the kind of the remediation followed by Template: found kind Reboot"),
	Entry("W21: a kind that is nothing but Template", specWith(ladder(rung("Template", 1, "60s"))),
		"spec.escalatingRemediations[0].remediationTemplate.kind: Invalid value: "+
			"kind of the remediation template must be the kind of the remediation followed by Template: found kind Template"),
	Entry("W21: a kind that is shorter than Template", specWith(ladder(rung("Foo", 1, "60s"))),
		"kind of the remediation template must be the kind of the remediation followed by Template: found kind Foo"),
	Entry("a template of no kind", specWith(templateWith(`"apiVersion":"test.io/v1","name":"a"`)),
		"spec.remediationTemplate.kind: Invalid value: kind of the remediation template must be set"),
	Entry("a template of an empty kind", specWith(templateWith(`"apiVersion":"test.io/v1","kind":"","name":"a"`)),
		"spec.remediationTemplate.kind: Invalid value: kind of the remediation template must be set"),
	Entry("a template of no version", specWith(templateWith(`"kind":"RebootTemplate","name":"a"`)),
		"spec.remediationTemplate.apiVersion: Invalid value: apiVersion of the remediation template must be set"),
	Entry("a template without a name", specWith(templateWith(`"apiVersion":"test.io/v1","kind":"RebootTemplate","name":""`)),
		"spec.remediationTemplate.name: Invalid value: name of the remediation template must be set"),
	Entry("a step whose template is nothing", specWith(ladder(`{"remediationTemplate":{},"order":1,"timeout":"60s"}`)),
		"spec.escalatingRemediations[0].remediationTemplate.name: Invalid value: name of the remediation template must be set"),
	Entry("a step without a template", specWith(ladder(`{"order":1,"timeout":"60s"}`)), "spec.escalatingRemediations[0].remediationTemplate: Required value"),
	Entry("a step without an order", specWith(ladder(`{"remediationTemplate":{},"timeout":"60s"}`)), "spec.escalatingRemediations[0].order: Required value"),
	Entry("a step without a timeout", specWith(ladder(`{"remediationTemplate":{},"order":1}`)), "spec.escalatingRemediations[0].timeout: Required value"),
	Entry("W34: no unhealthy condition at all", specWith(oneTemplate, `"unhealthyConditions":[]`),
		"spec.unhealthyConditions: Invalid value: unhealthyConditions must not be empty: no node would ever be unhealthy"),
	Entry("one condition twice", specWith(oneTemplate, `"unhealthyConditions":[{"type":"Ready","status":"False","duration":"1s"},{"type":"Ready","status":"False","duration":"2s"}]`),
		"spec.unhealthyConditions[1]: Duplicate value"),
	Entry("a duration without a unit", specWith(oneTemplate, unwell("False", "300")), "spec.unhealthyConditions[0].duration: Invalid value"),
	Entry("a negative duration", specWith(oneTemplate, unwell("False", "-5m")), "spec.unhealthyConditions[0].duration: Invalid value"),
	Entry("a duration that no client could read", specWith(oneTemplate, unwell("False", "9999999h")),
		`spec.unhealthyConditions[0].duration: Invalid value: "string": `+notDuration+" evaluating rule: duration must be at most 2562047h"),
	Entry("a cooldown that no client could read", specWith(oneTemplate, `"stormCooldownDuration":"9999999h"`),
		notDuration+" evaluating rule: stormCooldownDuration must be at most 2562047h"),
	Entry("a delay that no client could read", specWith(oneTemplate, `"healthyDelay":"-9999999h"`),
		notDuration+" evaluating rule: healthyDelay must be at most 2562047h"),
	Entry("a negative cooldown", specWith(oneTemplate, `"stormCooldownDuration":"-1s"`), "spec.stormCooldownDuration: Invalid value"),
	Entry("a condition of a truth value, as YAML reads False without quotation marks",
		specWith(oneTemplate, `"unhealthyConditions":[{"type":"Ready","status":false,"duration":"300s"}]`),
		`spec.unhealthyConditions[0].status: Invalid value: "boolean": spec.unhealthyConditions[0].status in body must be of type string: "boolean"`),
}
