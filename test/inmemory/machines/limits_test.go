package machines

import (
	"testing"

	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// atOnce limits how many remediations of a check are under way at the same time.
func atOnce(limit string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Annotations = map[string]string{"kubemend.io/max-in-flight": limit}
	}
}

// overdue makes machines bad, each a minute longer than the next.
func overdue(s *environment, machines ...string) {
	for _, m := range machines {
		s.nodeReports(m, "Ready", "Unknown", 0)
		time.Sleep(time.Minute)
	}
	time.Sleep(long)
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
