package conformance

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
)

// stepOf is one step, with the template that these fields name.
func stepOf(template string, order int) string {
	return fmt.Sprintf(`{"remediationTemplate":{%s},"order":%d,"timeout":"60s"}`, template, order)
}

var takenSteps = []TableEntry{
	Entry("a step of a minute", specWith(ladder(rung("RebootTemplate", 1, "1m")))),
	Entry("a step as long as a lease can be", specWith(ladder(rung("RebootTemplate", 1, "596523h")))),
	Entry("a step of hours, minutes and parts of seconds", specWith(ladder(rung("RebootTemplate", 1, "1h30m0.5s")))),
	Entry("a step of units in no order", specWith(ladder(rung("RebootTemplate", 1, "30s5m")))),
	Entry("a step of milliseconds", specWith(ladder(rung("RebootTemplate", 1, "600000ms")))),
	Entry("a step of microseconds", specWith(ladder(rung("RebootTemplate", 1, "60000000µs")))),
	Entry("a step of nanoseconds", specWith(ladder(rung("RebootTemplate", 1, "60000000000ns")))),
	Entry("steps with templates of one name and of different kinds", specWith(ladder(rung("RebootTemplate", 1, "60s"), rung("FenceTemplate", 2, "60s")))),
	Entry("steps with templates of one name and of different groups", specWith(ladder(
		rung("RebootTemplate", 1, "60s"), stepOf(`"apiVersion":"other.io/v1","kind":"RebootTemplate","namespace":"default","name":"a"`, 2)))),
	Entry("steps with templates of one kind in different namespaces", specWith(ladder(
		rung("RebootTemplate", 1, "60s"), stepOf(`"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"other","name":"a"`, 2)))),
	Entry("steps with templates of one kind and of different names", specWith(ladder(
		rung("RebootTemplate", 1, "60s"), stepOf(`"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"b"`, 2)))),
}

var refusedSteps = []TableEntry{
	Entry("a timeout without a unit, with nothing but what it should be", specWith(ladder(rung("RebootTemplate", 1, "60"))), noTimeout("60")),
	Entry("a timeout of words", specWith(ladder(rung("RebootTemplate", 1, "five minutes"))), noTimeout("five minutes")),
	Entry("a timeout of days", specWith(ladder(rung("RebootTemplate", 1, "2d"))), noTimeout("2d")),
	Entry("an empty timeout", specWith(ladder(rung("RebootTemplate", 1, ""))), noTimeout("")),
	Entry("a negative timeout", specWith(ladder(rung("RebootTemplate", 1, "-5m"))), noTimeout("-5m")),
	Entry("a timeout for which there is no lease", specWith(ladder(rung("RebootTemplate", 1, "596523h1s"))), noTimeout("596523h1s")),
	Entry("a timeout that no client could read", specWith(ladder(rung("RebootTemplate", 1, "9999999h"))), noTimeout("9999999h")),
	Entry("a timeout that is too long only as a sum", specWith(ladder(rung("RebootTemplate", 1, "999999h999999h99999h"))), noTimeout("999999h999999h99999h")),
	Entry("a timeout of more characters than any needs", specWith(ladder(rung("RebootTemplate", 1, "100000h59m59.999999999s"))),
		"spec.escalatingRemediations[0].timeout: Too long: may not be more than 20 bytes"),
	Entry("one template in two steps",
		specWith(ladder(rung("RebootTemplate", 1, "60s"), rung("FenceTemplate", 2, "60s"), rung("RebootTemplate", 3, "5m"))),
		"spec.escalatingRemediations: Invalid value: EscalatingRemediation RemediationTemplate must be unique: "+
			"found RebootTemplate default/a in more than one step"),
	Entry("one template without a namespace in two steps", specWith(ladder(
		stepOf(`"apiVersion":"test.io/v1","kind":"RebootTemplate","name":"a"`, 1), stepOf(`"apiVersion":"test.io/v1","kind":"RebootTemplate","name":"a"`, 2))),
		"EscalatingRemediation RemediationTemplate must be unique: found RebootTemplate /a in more than one step"),
	Entry("one template in all of the steps that there may be", specWith(ladder(all20("RebootTemplate")...)),
		"found RebootTemplate default/a in more than one step"),
}

// noTimeout is the one and only error about a timeout that is none.
func noTimeout(text string) string {
	return fmt.Sprintf(`"a" is invalid: spec.escalatingRemediations[0].timeout: Invalid value: %q: `+
		"timeout must be a duration such as 5m, of at least 1m and at most 596523h", text)
}

// all20 are as many steps as there may be, with one template.
func all20(kind string) []string {
	steps := make([]string, 20)
	for i := range steps {
		steps[i] = rung(kind, i, "1m")
	}
	return steps
}
