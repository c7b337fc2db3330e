package conformance

import (
	"math"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/rig"
)

// atOnce limits how many remediations of a check are under way at the same time.
func atOnce(limit string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Annotations = map[string]string{"kubemend.io/max-in-flight": limit}
	}
}

const (
	amountField = "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo"
	rangeField  = "spec.remediation.triggerIf.unhealthyInRange"
	annotation  = "metadata.annotations[kubemend.io/max-in-flight]"
)

// impossible are limits that make no sense.
var impossible = []struct {
	what       string
	limit      func(*clusterv1.MachineHealthCheck)
	field, why string
}{
	{"a range that ends before it starts", between("[5-3]"), rangeField, "[5-3] is empty"},
	{"a negative number", atMost("-1"), amountField, "must not be negative"},
	{"a negative percentage", atMost("-10%"), amountField, "must not be negative"},
	{"something that is no number", atMost("some"), amountField, `not "some"`},
	{"a negative number at once", atOnce("-1"), annotation, "must not be negative"},
	{"words at once", atOnce("a few"), annotation, `not "a few"`},
}

var _ = Describe("Impossible limits", Ordered, func() {
	var m *rig.Kubemend
	BeforeAll(func(ctx SpecContext) { m = ownManager(ctx, "w14") })

	It("W14: an invalid limit allows no remediation, and the status stays valid", func(ctx SpecContext) {
		environments := make([]*environment, len(impossible))
		for i, tc := range impossible {
			environments[i] = newEnvironment(ctx, seenBy("w14"))
			environments[i].workers(ctx, "good", "bad")
			environments[i].fallsSilent(ctx, "bad")
			environments[i].check(ctx, "check", tc.limit)
		}
		for i, tc := range impossible {
			s := environments[i]
			Eventually(s.allowed(ctx, "check")).Should(Equal("False/InvalidLimit"), tc.what)
			Expect(s.message(ctx, "check", "RemediationAllowed")()).To(And(ContainSubstring(tc.field), ContainSubstring(tc.why)), tc.what)
			Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 1, 0}), tc.what)
			Eventually(s.health(ctx, "bad")).Should(Equal(silent), "%s: the verdict is reported all the same", tc.what)
			Eventually(s.health(ctx, "good")).Should(Equal(well), tc.what)
			Expect(s.owner(ctx, "bad")()).To(Equal(nothing), tc.what)
			Eventually(s.events(ctx, "check", "RemediationRestricted")).Should(Equal(1), tc.what)
		}

		before := environments[0].settles(ctx, m)
		Consistently(reconciles(ctx, m)).Should(Equal(before), "nothing is tried again and again")
		for i, tc := range impossible {
			c := environments[i].getCheck(ctx, "check")
			Expect(c.Status.ObservedGeneration).To(Equal(c.Generation), "%s: it was read, and understood to be wrong", tc.what)
			environments[i].changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) {
				c.Spec.Remediation = clusterv1.MachineHealthCheckRemediation{}
				c.Annotations = nil
			})
		}
		for i, tc := range impossible {
			s := environments[i]
			Eventually(s.owner(ctx, "bad")).Should(Equal(ownerRequested), tc.what)
			Eventually(s.allowed(ctx, "check")).Should(Equal(remediates), tc.what)
			Eventually(s.events(ctx, "check", "RemediationAllowed")).Should(Equal(1), tc.what)
			Expect(s.events(ctx, "check", "RemediationRestricted")()).To(Equal(1), tc.what)
		}
	})

	DescribeTable("W14: a limit above any cluster size allows every remediation, and the status stays valid",
		func(ctx SpecContext, limit func(*clusterv1.MachineHealthCheck), remaining int) {
			s := newEnvironment(ctx, seenBy("w14"))
			s.workers(ctx, "good", "bad")
			s.fallsSilent(ctx, "bad")
			s.check(ctx, "check", limit)

			Eventually(s.owner(ctx, "bad")).Should(Equal(ownerRequested))
			Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 1, int32(remaining)}))
			Expect(s.allowed(ctx, "check")()).To(Equal(remediates))
		},
		Entry("in a range", between("[0-99999999999]"), math.MaxInt32-1),
		Entry("in a range, beyond what any integer holds", between("[0-99999999999999999999999]"), math.MaxInt32-1),
		Entry("as a percentage", atMost("150%"), 2),
		Entry("as a number", atMost("2147483647"), math.MaxInt32-1),
	)
})

var _ = Describe("Remediations in flight", func() {
	// overdue makes machines bad, each a minute longer than the next.
	overdue := func(ctx SpecContext, s *environment, machines ...string) {
		GinkgoHelper()
		for i, m := range machines {
			s.nodeReports(ctx, m, "Ready", "Unknown", long+time.Duration(len(machines)-i)*time.Minute)
		}
	}

	It("W18: are at most as many as the annotation says: marked machines first, then the longest overdue, the next when one ends", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b", "c", "d", "e")
		overdue(ctx, s, "c", "b", "e", "d") // c is the longest overdue
		s.change(ctx, "d", annotated(clusterv1.RemediateMachineAnnotation, ""))
		s.check(ctx, "check", by("reboot"), atOnce("2"), atMost("0"))
		Eventually(s.health(ctx, "d")).Should(Equal("False/HasRemediateAnnotation False/HasRemediateMachineAnnotation"))
		for _, m := range []string{"b", "c", "e"} {
			Eventually(s.health(ctx, m)).Should(Equal(silent))
		}
		s.changeCheck(ctx, "check", atMost("100%"))

		Eventually(s.requested(ctx)).Should(ConsistOf("d", "c"))
		Eventually(s.message(ctx, "check", "RemediationAllowed")).Should(Equal(
			"2 remediations wait, 2 of at most 2 are in flight (kubemend.io/max-in-flight)"))
		Expect(s.allowed(ctx, "check")()).To(Equal(remediates))
		Eventually(s.health(ctx, "b")).Should(Equal(silent), "what waits is marked")
		Expect(s.external(ctx, "b")()).To(Equal("-"))
		Consistently(s.requested(ctx)).Should(ConsistOf("d", "c"))

		s.comesBack(ctx, "c")
		Eventually(s.requested(ctx)).Should(ConsistOf("d", "b"))
		Eventually(s.message(ctx, "check", "RemediationAllowed")).Should(HavePrefix("1 remediation waits, 2 of at most 2"))

		s.comesBack(ctx, "b")
		Eventually(s.requested(ctx)).Should(ConsistOf("d", "e"))
		Eventually(s.message(ctx, "check", "RemediationAllowed")).Should(BeEmpty())
	})

	It("W18: include what owners were asked for, until the machine is gone", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		for _, name := range []string{"a", "b", "c"} {
			s.worker(ctx, name, ofMachineSet)
		}
		overdue(ctx, s, "b", "a", "c")
		s.check(ctx, "check", atOnce("1"), lenient)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{3, 0, 0}))
		s.changeCheck(ctx, "check", strict)
		Eventually(s.owner(ctx, "b")).Should(Equal(ownerRequested))
		Consistently(s.owner(ctx, "a")).Should(Equal(nothing))

		// The owner begins to replace it, which is not the end.
		s.isDeleted(ctx, "b")
		Eventually(number(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check", `state="deleting"`)...)).Should(BeEquivalentTo(1))
		Consistently(s.owner(ctx, "a")).Should(Equal(nothing))

		s.isGone(ctx, "b")
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Expect(s.owner(ctx, "c")()).To(Equal(nothing))
	})

	It("W18: may be limited to a percentage of the targets, at least one", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		for _, name := range []string{"a", "b", "c", "d"} {
			s.worker(ctx, name, ofMachineSet)
		}
		overdue(ctx, s, "a", "b", "c", "d")
		s.check(ctx, "check", atOnce("10%"), lenient)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{4, 0, 0}))
		s.changeCheck(ctx, "check", strict)
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Consistently(s.owner(ctx, "b")).Should(Equal(nothing))

		s.changeCheck(ctx, "check", atOnce("50%"))
		Eventually(s.owner(ctx, "b")).Should(Equal(ownerRequested))
		Consistently(s.owner(ctx, "c")).Should(Equal(nothing))

		s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		Eventually(s.owner(ctx, "c")).Should(Equal(ownerRequested))
		Eventually(s.owner(ctx, "d")).Should(Equal(ownerRequested))
	})

	It("W18: do not start while the check is short-circuited", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b", "c")
		overdue(ctx, s, "a", "b")
		s.check(ctx, "check", atMost("1"), atOnce("5"), lenient)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{3, 1, 0}))
		s.changeCheck(ctx, "check", strict)

		Eventually(s.health(ctx, "b")).Should(Equal(silent))
		Eventually(s.allowed(ctx, "check")).Should(Equal(restricted))
		Consistently(s.owner(ctx, "a")).Should(Equal(nothing))
	})
})

// ofMachineSet gives a machine an owner that could replace it: a machine without one does not count as in flight.
func ofMachineSet(m *clusterv1.Machine) {
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "workers", UID: "1", Controller: new(true),
	}}
}
