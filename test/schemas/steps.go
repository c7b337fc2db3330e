package schemas

import "fmt"

var acceptedSteps = []acceptedCheck{
	{"a step of a minute", specWith(steps(step("RebootTemplate", 1, "1m")))},
	{"a step as long as a lease can be", specWith(steps(step("RebootTemplate", 1, "596523h")))},
	{"a step of hours, minutes and parts of seconds", specWith(steps(step("RebootTemplate", 1, "1h30m0.5s")))},
	{"a step of units in no order", specWith(steps(step("RebootTemplate", 1, "30s5m")))},
	{"a step of milliseconds", specWith(steps(step("RebootTemplate", 1, "600000ms")))},
	{"a step of microseconds", specWith(steps(step("RebootTemplate", 1, "60000000µs")))},
	{"a step of nanoseconds", specWith(steps(step("RebootTemplate", 1, "60000000000ns")))},
	{"steps with templates of one name and of different kinds", specWith(steps(step("RebootTemplate", 1, "60s"), step("FenceTemplate", 2, "60s")))},
	{"steps with templates of one name and of different groups", specWith(steps(
		step("RebootTemplate", 1, "60s"), stepWith(`"apiVersion":"other.io/v1","kind":"RebootTemplate","namespace":"default","name":"a"`, 2)))},
	{"steps with templates of one kind in different namespaces", specWith(steps(
		step("RebootTemplate", 1, "60s"), stepWith(`"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"other","name":"a"`, 2)))},
	{"steps with templates of one kind and of different names", specWith(steps(
		step("RebootTemplate", 1, "60s"), stepWith(`"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"b"`, 2)))},
}

var refusedSteps = []refusedCheck{
	{"a timeout without a unit, with nothing but what it should be", specWith(steps(step("RebootTemplate", 1, "60"))), noTimeout("60")},
	{"a timeout of words", specWith(steps(step("RebootTemplate", 1, "five minutes"))), noTimeout("five minutes")},
	{"a timeout of days", specWith(steps(step("RebootTemplate", 1, "2d"))), noTimeout("2d")},
	{"an empty timeout", specWith(steps(step("RebootTemplate", 1, ""))), noTimeout("")},
	{"a negative timeout", specWith(steps(step("RebootTemplate", 1, "-5m"))), noTimeout("-5m")},
	{"a timeout for which there is no lease", specWith(steps(step("RebootTemplate", 1, "596523h1s"))), noTimeout("596523h1s")},
	{"a timeout that no client could read", specWith(steps(step("RebootTemplate", 1, "9999999h"))), noTimeout("9999999h")},
	{"a timeout that is too long only as a sum", specWith(steps(step("RebootTemplate", 1, "999999h999999h99999h"))), noTimeout("999999h999999h99999h")},
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

// noTimeout is the only error about a timeout that is not a duration.
func noTimeout(text string) string {
	return fmt.Sprintf(`"a" is invalid: spec.escalatingRemediations[0].timeout: Invalid value: %q: `+
		"timeout must be a duration such as 5m, of at least 1m and at most 596523h", text)
}
