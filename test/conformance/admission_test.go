package conformance

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// What each rule says about a remediation, and about a template.
var (
	tooShort  = [2]string{"min duration is 100 seconds", "min duration is 100 seconds"}
	notReboot = [2]string{"is only supported remediation strategy", "only supported remediation strategy is reboot"}
	noRetry   = [2]string{"is minimum retrylimit", "minimum retry limit is 1"}
)

func both(message string) [2]string { return [2]string{message, message} }

// notDuration is what a rule says that cannot read a duration.
const notDuration = "type conversion error from 'string' to 'google.protobuf.Duration'"

// taken is a spec that is accepted, and what becomes of it; turnedDown is one that is not, and why.
type (
	taken      struct{ why, spec, becomes string }
	turnedDown struct {
		why, spec string
		with      [2]string
	}
)

var takenNow = []taken{
	{"no spec", ``, ``},
	{"an empty spec", `{}`, `{}`},
	{"a strategy that is null", `{"strategy":null}`, `{}`},
	{"a type alone", `{"strategy":{"type":"Reboot"}}`, complete},
	{"the least of everything", `{"strategy":{"retryLimit":1,"timeoutSeconds":100,"type":"Reboot"}}`, ``},
	{"more than that", `{"strategy":{"retryLimit":7,"timeoutSeconds":1800,"type":"Reboot"}}`, ``},
	{
		"a field of the old version, which is dropped",
		`{"strategy":{"type":"Reboot","timeout":"300s"}}`, complete,
	},
}

var refusedNow = []turnedDown{
	{"an empty strategy", `{"strategy":{}}`, notReboot},
	{"another type", `{"strategy":{"type":"Pray"}}`, both(`Unsupported value: "Pray": supported values: "Reboot"`)},
	{"an empty type", `{"strategy":{"type":""}}`, both(`Unsupported value: "": supported values: "Reboot"`)},
	{"no retry", `{"strategy":{"type":"Reboot","retryLimit":0}}`, noRetry},
	{"a negative number of retries", `{"strategy":{"type":"Reboot","retryLimit":-1}}`, noRetry},
	{"more retries than a number of 32 bits", `{"strategy":{"type":"Reboot","retryLimit":5000000000}}`, both("must be of type integer with format int32")},
	{"a timeout that is too short", `{"strategy":{"type":"Reboot","timeoutSeconds":99}}`, tooShort},
	{"a negative timeout", `{"strategy":{"type":"Reboot","timeoutSeconds":-600}}`, tooShort},
	{"a timeout of zero", `{"strategy":{"type":"Reboot","timeoutSeconds":0}}`, both("should be greater than or equal to 100")},
}

// What was taken in v1beta1 comes back as v1beta2 has it.
var takenOnce = []taken{
	{"no spec", ``, `{}`},
	{"an empty spec", `{}`, `{}`},
	{"a strategy that is null", `{"strategy":null}`, `{}`},
	{"no timeout", `{"strategy":{"retryLimit":1,"type":"Reboot"}}`, completeOnce},
	{"the least of everything", `{"strategy":{"retryLimit":1,"timeout":"1m40s","type":"Reboot"}}`, ``},
	{"a timeout in seconds", `{"strategy":{"retryLimit":3,"timeout":"100s","type":"Reboot"}}`, `{"strategy":{"retryLimit":3,"timeout":"1m40s","type":"Reboot"}}`},
	{"a timeout with a fraction", `{"strategy":{"retryLimit":1,"timeout":"100.9s","type":"Reboot"}}`, `{"strategy":{"retryLimit":1,"timeout":"1m40s","type":"Reboot"}}`},
	{"a timeout of zero, which is none", `{"strategy":{"retryLimit":1,"timeout":"0s","type":"Reboot"}}`, completeOnce},
	{"a timeout of less than a second, which is none", `{"strategy":{"retryLimit":1,"timeout":"999ms","type":"Reboot"}}`, completeOnce},
	{"more retries than a number of 32 bits", `{"strategy":{"retryLimit":5000000000,"type":"Reboot"}}`, `{"strategy":{"retryLimit":2147483647,"timeout":"10m0s","type":"Reboot"}}`},
	{"a field of the new version, which is dropped", `{"strategy":{"type":"Reboot","retryLimit":1,"timeoutSeconds":300}}`, completeOnce},
}

var refusedOnce = []turnedDown{
	{"an empty strategy", `{"strategy":{}}`, notReboot},
	{"another type", `{"strategy":{"type":"Pray","retryLimit":1}}`, notReboot},
	{"an empty type", `{"strategy":{"type":"","retryLimit":1}}`, notReboot},
	{"no word on retries", `{"strategy":{"type":"Reboot"}}`, noRetry},
	{"no retry", `{"strategy":{"type":"Reboot","retryLimit":0}}`, noRetry},
	{"a negative number of retries", `{"strategy":{"type":"Reboot","retryLimit":-1}}`, noRetry},
	{"a timeout that is too short", `{"strategy":{"type":"Reboot","retryLimit":1,"timeout":"99.9s"}}`, tooShort},
	{"a negative timeout", `{"strategy":{"type":"Reboot","retryLimit":1,"timeout":"-5m"}}`, tooShort},
	{"a timeout without a unit", `{"strategy":{"type":"Reboot","retryLimit":1,"timeout":"300"}}`, both(notDuration)},
	{"a timeout in prose", `{"strategy":{"type":"Reboot","retryLimit":1,"timeout":"five minutes"}}`, both(notDuration)},
	{"a timeout that is a number", `{"strategy":{"type":"Reboot","retryLimit":1,"timeout":300}}`, both(`must be of type string: "integer"`)},
}

// acceptances and refusals have every entry for a remediation and for its template.
func acceptances() (entries []TableEntry) {
	add := func(p provider, rows []taken) {
		for _, row := range rows {
			if row.becomes == "" {
				row.becomes = row.spec
			}
			entries = append(entries,
				Entry(fmt.Sprintf("%s %s: %s", p.apiVersion, p.kind, row.why), manifest(p.remediation), row.spec, row.becomes),
				Entry(fmt.Sprintf("%s %sTemplate: %s", p.apiVersion, p.kind, row.why), manifest(p.madeFrom), row.spec, row.becomes))
		}
	}
	add(metal3Old, takenOnce)
	for _, p := range ofThisTime {
		add(p, takenNow)
	}
	return entries
}

func refusals() (entries []TableEntry) {
	add := func(p provider, rows []turnedDown) {
		for _, row := range rows {
			entries = append(entries,
				Entry(fmt.Sprintf("%s %s: %s", p.apiVersion, p.kind, row.why), manifest(p.remediation), row.spec, row.with[0]),
				Entry(fmt.Sprintf("%s %sTemplate: %s", p.apiVersion, p.kind, row.why), manifest(p.madeFrom), row.spec, row.with[1]))
		}
	}
	add(metal3Old, refusedOnce)
	for _, p := range ofThisTime {
		add(p, refusedNow)
	}
	return entries
}

var _ = Describe("Kinds of remediation", Ordered, ContinueOnFailure, func() {
	var kinds *catalog

	BeforeAll(func(ctx SpecContext) { kinds = newCatalog(ctx) })

	Context("by their schemas alone", func() {
		DescribeTable("accept", func(ctx SpecContext, object manifest, spec, becomes string) {
			o := object("a", spec)
			Expect(kinds.Create(ctx, o, client.DryRunAll)).To(Succeed())
			Expect(specOf(o)).To(Equal(becomes))
		}, acceptances())

		DescribeTable("refuse", func(ctx SpecContext, object manifest, spec, with string) {
			Expect(kinds.Create(ctx, object("a", spec), client.DryRunAll)).To(MatchError(ContainSubstring(with)))
		}, refusals())

		It("refuse an empty template and an empty spec of one", func(ctx SpecContext) {
			for _, p := range append([]provider{metal3Old}, ofThisTime...) {
				o := p.madeFrom("a", "")
				o.Object["spec"] = map[string]any{}
				Expect(kinds.Create(ctx, o, client.DryRunAll)).To(MatchError(ContainSubstring("spec.template: Required value")))
				o.Object["spec"] = map[string]any{"template": map[string]any{}}
				Expect(kinds.Create(ctx, o, client.DryRunAll)).To(MatchError(ContainSubstring("spec.template.spec: Required value")))
			}
		})

		It("name the field that is wrong", func(ctx SpecContext) {
			for _, p := range ofThisTime {
				Expect(kinds.Create(ctx, p.remediation("a", `{"strategy":{"type":"Reboot","timeoutSeconds":99}}`), client.DryRunAll)).
					To(MatchError(ContainSubstring(`spec.strategy.timeoutSeconds: Invalid value: min duration is 100 seconds`)))
				Expect(kinds.Create(ctx, p.madeFrom("a", `{"strategy":{"type":"Reboot","retryLimit":0}}`), client.DryRunAll)).
					To(MatchError(ContainSubstring(`spec.template.spec.strategy.retryLimit: Invalid value: minimum retry limit is 1`)))
			}
			Expect(kinds.Create(ctx, metal3Old.remediation("a", `{"strategy":{"type":"Pray","retryLimit":1}}`), client.DryRunAll)).
				To(MatchError(ContainSubstring(`spec.strategy.type: Invalid value: is only supported remediation strategy`)))
		})

		It("tell of fields that they do not have, if asked to", func(ctx SpecContext) {
			o := metal3New.madeFrom("a", `{"strategy":{"type":"Reboot","timeout":"300s"}}`)
			Expect(kinds.Create(ctx, o, client.DryRunAll, client.FieldValidation("Strict"))).
				To(MatchError(ContainSubstring(`unknown field "spec.template.spec.strategy.timeout"`)))
		})

		It("refuse a change as they refuse a new object", func(ctx SpecContext) {
			for _, p := range ofThisTime {
				o := p.remediation("changes", `{"strategy":{"type":"Reboot"}}`)
				Expect(kinds.Create(ctx, o)).To(Succeed())
				before := o.DeepCopy()
				Expect(unstructured.SetNestedField(o.Object, int64(5), "spec", "strategy", "timeoutSeconds")).To(Succeed())
				Expect(kinds.Patch(ctx, o, client.MergeFrom(before))).To(MatchError(ContainSubstring("min duration is 100 seconds")))
			}
		})
	})

	Context("with the webhook that completes templates", func() {
		BeforeAll(func(ctx SpecContext) { kinds.complete(ctx) })

		DescribeTable("take the templates of the documentation of CAPM3 as they are",
			func(ctx SpecContext, file, becomes string) {
				o := testdata(file)
				kinds.namespace(ctx, o.GetNamespace())
				Expect(kinds.Create(ctx, o, client.FieldValidation("Strict"))).To(Succeed())
				Expect(specOf(kinds.as(ctx, metal3New, o))).To(Equal(becomes))
			},
			Entry("for workers", "seed-003-workers.yaml", `{"strategy":{"retryLimit":2,"timeoutSeconds":300,"type":"Reboot"}}`),
			Entry("for control planes", "seed-003-control-plane.yaml", `{"strategy":{"retryLimit":1,"timeoutSeconds":300,"type":"Reboot"}}`),
		)

		DescribeTable("C9: are converted from v1beta1 and back", func(ctx SpecContext, old, now, back string) {
			for _, o := range []*unstructured.Unstructured{metal3Old.remediation("", old), metal3Old.madeFrom("", old)} {
				o.SetGenerateName("converted-")
				Expect(kinds.Create(ctx, o)).To(Succeed())
				Expect(specOf(kinds.as(ctx, metal3New, o))).To(Equal(now))
				Expect(specOf(kinds.as(ctx, metal3Old, o))).To(Equal(back))
			}
		},
			Entry("with a timeout", `{"strategy":{"type":"Reboot","retryLimit":2,"timeout":"300s"}}`,
				`{"strategy":{"retryLimit":2,"timeoutSeconds":300,"type":"Reboot"}}`, `{"strategy":{"retryLimit":2,"timeout":"5m0s","type":"Reboot"}}`),
			Entry("without one, which is the default", `{"strategy":{"type":"Reboot","retryLimit":2}}`,
				`{"strategy":{"retryLimit":2,"timeoutSeconds":600,"type":"Reboot"}}`, `{"strategy":{"retryLimit":2,"timeout":"10m0s","type":"Reboot"}}`),
			Entry("with a fraction of a second", `{"strategy":{"type":"Reboot","retryLimit":1,"timeout":"100.9s"}}`,
				`{"strategy":{"retryLimit":1,"timeoutSeconds":100,"type":"Reboot"}}`, `{"strategy":{"retryLimit":1,"timeout":"1m40s","type":"Reboot"}}`),
			Entry("with more retries than a number of 32 bits", `{"strategy":{"type":"Reboot","retryLimit":5000000000,"timeout":"300s"}}`,
				`{"strategy":{"retryLimit":2147483647,"timeoutSeconds":300,"type":"Reboot"}}`, `{"strategy":{"retryLimit":2147483647,"timeout":"5m0s","type":"Reboot"}}`),
			Entry("with nothing in the spec", `{}`, `{}`, `{}`),
		)

		DescribeTable("complete a template that gives empty values", func(ctx SpecContext, p provider, spec, becomes string) {
			o := p.madeFrom("a", spec)
			Expect(kinds.Create(ctx, o, client.DryRunAll)).To(Succeed())
			Expect(specOf(o)).To(Equal(becomes))
		},
			Entry("in v1beta2", metal3New, `{"strategy":{"type":"","retryLimit":0,"timeoutSeconds":0}}`, complete),
			Entry("in v1beta1", metal3Old, `{"strategy":{"type":"","retryLimit":0,"timeout":"0s"}}`, completeOnce),
			Entry("of ours", hostsOwn, `{"strategy":{"type":"","retryLimit":-3,"timeoutSeconds":0}}`, complete),
			Entry("in v1beta2, with an empty strategy", metal3New, `{"strategy":{}}`, complete),
			Entry("in v1beta1, with an empty strategy", metal3Old, `{"strategy":{}}`, completeOnce),
			Entry("of ours, with an empty strategy", hostsOwn, `{"strategy":{}}`, complete),
			Entry("W30: in v1beta2, with an empty spec", metal3New, `{}`, `{}`),
			Entry("W30: in v1beta1, with an empty spec", metal3Old, `{}`, `{}`),
			Entry("W30: of ours, with an empty spec", hostsOwn, `{}`, `{}`),
		)

		DescribeTable("still refuse what is wrong in a template", func(ctx SpecContext, p provider, spec, with string) {
			Expect(kinds.Create(ctx, p.madeFrom("a", spec), client.DryRunAll)).To(MatchError(ContainSubstring(with)))
		},
			Entry("a short timeout, in v1beta2", metal3New, `{"strategy":{"timeoutSeconds":99}}`, tooShort[1]),
			Entry("a short timeout, in v1beta1", metal3Old, `{"strategy":{"timeout":"99s"}}`, tooShort[1]),
			Entry("a short timeout, of ours", hostsOwn, `{"strategy":{"timeoutSeconds":99}}`, tooShort[1]),
			Entry("another type, in v1beta1", metal3Old, `{"strategy":{"type":"Pray"}}`, notReboot[1]),
			Entry("another type, in v1beta2", metal3New, `{"strategy":{"type":"Pray"}}`, `Unsupported value: "Pray"`),
		)

		It("do not complete a remediation: that of v1beta1 without retries is refused", func(ctx SpecContext) {
			o := metal3Old.remediation("a", `{"strategy":{"type":"Reboot"}}`)
			Expect(kinds.Create(ctx, o, client.DryRunAll)).To(MatchError(ContainSubstring(noRetry[0])))
		})

		It("keep the whole status in both versions", func(ctx SpecContext) {
			o := metal3New.remediation("status", `{"strategy":{"type":"Reboot"}}`)
			Expect(kinds.Create(ctx, o)).To(Succeed())
			status := parsed(`{"phase":"Deleting machine","retryCount":2,"lastRemediated":"2026-01-01T12:00:00Z","message":"Handed to its owner",
				"conditions":[{"type":"` + v1beta2.PoweredOffCondition + `","status":"False","reason":"TimedOut","message":"","lastTransitionTime":"2026-01-01T12:00:00Z"}]}`)
			o.Object["status"] = status
			Expect(kinds.Status().Update(ctx, o)).To(Succeed())
			for _, p := range []provider{metal3Old, metal3New} {
				Expect(kinds.as(ctx, p, o).Object["status"]).To(Equal(any(status)), p.apiVersion)
			}
		})
	})
})
