package machines

import (
	"testing"

	"math"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

func TestW14ImpossibleLimitsAnInvalidLimitAllowsNoRemediationAndTheStatusStaysValid(t *testing.T) {
	run(t, func(s *environment) {
		environments := make([]*environment, len(impossible))
		for i, tc := range impossible {
			environments[i] = s.newEnvironment()
			environments[i].workers("good", "bad")
			environments[i].fallsSilent("bad")
			environments[i].check("check", tc.limit)
		}
		for i, tc := range impossible {
			s := environments[i]
			s.Eventually(s.allowed("check")).Should(Equal("False/InvalidLimit"), tc.what)
			s.Expect(s.message("check", "RemediationAllowed")()).To(And(ContainSubstring(tc.field), ContainSubstring(tc.why)), tc.what)
			s.Eventually(s.counts("check")).Should(Equal([]int32{2, 1, 0}), tc.what)
			s.Eventually(s.health("bad")).Should(Equal(silent), "%s: the verdict is reported all the same", tc.what)
			s.Eventually(s.health("good")).Should(Equal(well), tc.what)
			s.Expect(s.owner("bad")()).To(Equal(nothing), tc.what)
			s.Eventually(s.events("check", "RemediationRestricted")).Should(Equal(1), tc.what)
		}

		before := environments[0].settles()
		s.Consistently(s.reconciles).Should(Equal(before), "nothing is tried again and again")
		for i, tc := range impossible {
			c := environments[i].getCheck("check")
			s.Expect(c.Status.ObservedGeneration).To(Equal(c.Generation), "%s: it was read, and understood to be wrong", tc.what)
			environments[i].changeCheck("check", func(c *clusterv1.MachineHealthCheck) {
				c.Spec.Remediation = clusterv1.MachineHealthCheckRemediation{}
				c.Annotations = nil
			})
		}
		for i, tc := range impossible {
			s := environments[i]
			s.Eventually(s.owner("bad")).Should(Equal(ownerRequested), tc.what)
			s.Eventually(s.allowed("check")).Should(Equal(remediates), tc.what)
			s.Eventually(s.events("check", "RemediationAllowed")).Should(Equal(1), tc.what)
			s.Expect(s.events("check", "RemediationRestricted")()).To(Equal(1), tc.what)
		}
	})
}

func TestW14ALimitAboveAnyClusterSizeAllowsEveryRemediationAndTheStatusStaysValid(t *testing.T) {
	for _, tc := range []struct {
		what      string
		limit     func(*clusterv1.MachineHealthCheck)
		remaining int32
	}{
		{"in a range", between("[0-99999999999]"), math.MaxInt32 - 1},
		{"in a range, beyond what any integer holds", between("[0-99999999999999999999999]"), math.MaxInt32 - 1},
		{"as a percentage", atMost("150%"), 2},
		{"as a number", atMost("2147483647"), math.MaxInt32 - 1},
	} {
		run(t, func(s *environment) {
			s.workers("good", "bad")
			s.fallsSilent("bad")
			s.check("check", tc.limit)

			s.Eventually(s.owner("bad")).Should(Equal(ownerRequested), tc.what)
			s.Eventually(s.counts("check")).Should(Equal([]int32{2, 1, tc.remaining}), tc.what)
			s.Expect(s.allowed("check")()).To(Equal(remediates), tc.what)
		})
	}
}

// overdue makes machines bad, each a minute longer than the next.
func overdue(s *environment, machines ...string) {
	for i, m := range machines {
		s.nodeReports(m, "Ready", "Unknown", long+time.Duration(len(machines)-i)*time.Minute)
	}
}

func TestW18RemediationsInFlightAreAtMostAsManyAsTheAnnotationSaysMarkedMachinesFirstThenTheLongestOverdueTheNextWhenOneEnds(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.workers("a", "b", "c", "d", "e")
		overdue(s, "c", "b", "e", "d") // c is the longest overdue
		s.change("d", annotated(clusterv1.RemediateMachineAnnotation, ""))
		s.check("check", by("reboot"), atOnce("2"), atMost("0"))
		s.Eventually(s.health("d")).Should(Equal("False/HasRemediateAnnotation False/HasRemediateMachineAnnotation"))
		for _, m := range []string{"b", "c", "e"} {
			s.Eventually(s.health(m)).Should(Equal(silent))
		}
		s.changeCheck("check", atMost("100%"))

		s.Eventually(s.requested()).Should(ConsistOf("d", "c"))
		s.Eventually(s.message("check", "RemediationAllowed")).Should(Equal(
			"2 remediations wait, 2 of at most 2 are in flight (kubemend.io/max-in-flight)"))
		s.Expect(s.allowed("check")()).To(Equal(remediates))
		s.Eventually(s.health("b")).Should(Equal(silent), "what waits is marked")
		s.Expect(s.external("b")()).To(Equal("-"))
		s.Consistently(s.requested()).Should(ConsistOf("d", "c"))

		s.comesBack("c")
		s.Eventually(s.requested()).Should(ConsistOf("d", "b"))
		s.Eventually(s.message("check", "RemediationAllowed")).Should(HavePrefix("1 remediation waits, 2 of at most 2"))

		s.comesBack("b")
		s.Eventually(s.requested()).Should(ConsistOf("d", "e"))
		s.Eventually(s.message("check", "RemediationAllowed")).Should(BeEmpty())
	})
}

func TestW18RemediationsInFlightIncludeWhatOwnersWereAskedForUntilTheMachineIsGone(t *testing.T) {
	run(t, func(s *environment) {
		for _, name := range []string{"a", "b", "c"} {
			s.worker(name, ofMachineSet)
		}
		overdue(s, "b", "a", "c")
		s.check("check", atOnce("1"), lenient)
		s.Eventually(s.counts("check")).Should(Equal([]int32{3, 0, 0}))
		s.changeCheck("check", strict)
		s.Eventually(s.owner("b")).Should(Equal(ownerRequested))
		s.Consistently(s.owner("a")).Should(Equal(nothing))

		// The owner begins to replace it, which is not the end.
		s.isDeleted("b")
		s.Eventually(s.number("kubemend_machinehealthcheck_targets", s.labels("check", `state="deleting"`)...)).Should(BeEquivalentTo(1))
		s.Consistently(s.owner("a")).Should(Equal(nothing))

		s.isGone("b")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Expect(s.owner("c")()).To(Equal(nothing))
	})
}

func TestW18RemediationsInFlightMayBeLimitedToAPercentageOfTheTargetsAtLeastOne(t *testing.T) {
	run(t, func(s *environment) {
		for _, name := range []string{"a", "b", "c", "d"} {
			s.worker(name, ofMachineSet)
		}
		overdue(s, "a", "b", "c", "d")
		s.check("check", atOnce("10%"), lenient)
		s.Eventually(s.counts("check")).Should(Equal([]int32{4, 0, 0}))
		s.changeCheck("check", strict)
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Consistently(s.owner("b")).Should(Equal(nothing))

		s.changeCheck("check", atOnce("50%"))
		s.Eventually(s.owner("b")).Should(Equal(ownerRequested))
		s.Consistently(s.owner("c")).Should(Equal(nothing))

		s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		s.Eventually(s.owner("c")).Should(Equal(ownerRequested))
		s.Eventually(s.owner("d")).Should(Equal(ownerRequested))
	})
}

func TestW18RemediationsInFlightDoNotStartWhileTheCheckIsShortCircuited(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c")
		overdue(s, "a", "b")
		s.check("check", atMost("1"), atOnce("5"), lenient)
		s.Eventually(s.counts("check")).Should(Equal([]int32{3, 1, 0}))
		s.changeCheck("check", strict)

		s.Eventually(s.health("b")).Should(Equal(silent))
		s.Eventually(s.allowed("check")).Should(Equal(restricted))
		s.Consistently(s.owner("a")).Should(Equal(nothing))
	})
}

// ofMachineSet gives a machine an owner that could replace it: a machine without one does not count as in flight.
func ofMachineSet(m *clusterv1.Machine) {
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "workers", UID: "1", Controller: new(true),
	}}
}
