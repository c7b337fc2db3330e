package machines

import (
	"testing"
	"time"

	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// sentEvents returns the events of an environment, unsorted, as "Object Reason"; but for those that say what capacity waits for, which
// depend on for how long.
func (s *environment) sentEvents() func() []string {
	return func() []string {
		var all []string
		for _, e := range s.allEvents() {
			if !strings.HasPrefix(e.Reason, "Capacity") {
				all = append(all, e.Regarding.Name+" "+e.Reason)
			}
		}
		return all
	}
}

// note is the text of the only event of a reason on an object.
func (s *environment) note(object, reason string) func() string {
	return func() string {
		var texts []string
		for _, e := range s.allEvents() {
			if e.Regarding.Name == object && e.Reason == reason {
				texts = append(texts, e.Type+": "+e.Note)
			}
		}
		return strings.Join(texts, "\n")
	}
}

func TestW17EventsAndMetricsOneEventPerChangeRecoveryIncludedAndNoneWithoutAChange(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.workers("a", "b", "c")
		s.check("check", by("reboot"), atMost("1"))
		s.Eventually(s.counts("check")).Should(Equal([]int32{3, 3, 1}))
		s.Expect(s.sentEvents()()).To(BeEmpty(), "a healthy check causes no event")
		in := s.cluster.Namespace + "/"

		s.fallsSilent("a")
		s.Eventually(s.sentEvents()).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted"))
		s.Eventually(s.note("a", "MachineMarkedUnhealthy")).Should(Equal("Normal: Machine " + in + "a has been marked as unhealthy by " + in + "check: " +
			"Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
		s.Eventually(s.note("check", "RemediationStarted")).Should(Equal("Normal: Requested a Metal3Remediation for a"))

		s.nodeReports("b", corev1.NodeReady, corev1.ConditionUnknown, 0)
		s.Eventually(s.sentEvents()).Should(ContainElement("check RemediationRestricted"))
		s.Eventually(s.note("check", "RemediationRestricted")).Should(Equal("Warning: " + s.message("check", "RemediationAllowed")()))
		time.Sleep(patience)
		s.Eventually(s.sentEvents()).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted",
			"b MachineMarkedUnhealthy", "check RemediationRestricted"))

		s.Eventually(s.number("kubemend_machinehealthcheck_short_circuited", s.labels("check")...)).Should(BeEquivalentTo(1))

		s.comesBack("a")
		s.Eventually(s.sentEvents()).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted",
			"b MachineMarkedUnhealthy", "check RemediationRestricted",
			"a MachineHealthy", "check RemediationEnded", "check RemediationAllowed", "check RemediationStarted"))
		s.Eventually(s.note("a", "MachineHealthy")).Should(Equal("Normal: Machine " + in + "a has been marked as healthy again by " + in + "check"))
		s.Eventually(s.note("check", "RemediationEnded")).Should(Equal("Normal: Healthy again: a"))

		s.Eventually(s.message("check", mendv1.CapacityBack)).
			Should(Equal("The capacity of Machine b is not back: Metal3Remediation b has not ended"))
		// Whether capacity is back is said when a record is closed, and the check says it then too.
		time.Sleep(10 * time.Second)
		before := s.versions()
		for _, value := range []string{"1", "2", "3"} { // reconciles in which nothing changes
			s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = map[string]string{"irrelevant": value} })
			before["MachineHealthCheck/check"] = s.getCheck("check").ResourceVersion
			s.Consistently(s.versions).WithTimeout(10 * time.Second).Should(Equal(before))
		}
	})
}

func TestW17EventsAndMetricsMetricsCountRemediationsStartedAndFinishedByKind(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.workers("recovers", "is-replaced", "is-skipped")
		s.worker("owned", func(m *clusterv1.Machine) { m.Labels["pool"] = "owned" })
		s.check("check", by("reboot"))
		s.check("owned", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "owned" })
		began := func(check, kind string) func() float64 {
			return s.number("kubemend_remediations_started_total", s.labels(check, `kind="`+kind+`"`)...)
		}
		ended := func(check, kind, result string) func() float64 {
			return s.number("kubemend_remediations_finished_total", s.labels(check, `kind="`+kind+`"`, `result="`+result+`"`)...)
		}
		inFlight := s.number("kubemend_remediations_in_flight", s.labels("check")...)
		s.Eventually(s.health("owned")).Should(Equal(well))

		s.fallsSilent("recovers", "is-replaced", "is-skipped", "owned")
		s.Eventually(began("check", "Metal3Remediation")).Should(BeEquivalentTo(3))
		s.Eventually(began("owned", "Owner")).Should(BeEquivalentTo(1))
		s.Eventually(inFlight).Should(BeEquivalentTo(3))
		s.Expect(s.number("kubemend_machinehealthcheck_targets", s.labels("check", `state="unhealthy"`)...)()).To(BeEquivalentTo(3))

		s.comesBack("recovers", "owned")
		s.Eventually(ended("check", "Metal3Remediation", "recovered")).Should(BeEquivalentTo(1))
		s.Eventually(ended("owned", "Owner", "recovered")).Should(BeEquivalentTo(1))
		s.Expect(s.here.Delete(s.ctx, s.get("is-replaced"))).To(Succeed())
		s.Eventually(ended("check", "Metal3Remediation", "replaced")).Should(BeEquivalentTo(1))
		s.change("is-skipped", annotated(clusterv1.MachineSkipRemediationAnnotation, ""))
		s.Eventually(ended("check", "Metal3Remediation", "cancelled")).Should(BeEquivalentTo(1))
		s.Eventually(inFlight).Should(BeZero())
		s.Expect(began("check", "Metal3Remediation")()).To(BeEquivalentTo(3))
		s.Expect(began("owned", "Owner")()).To(BeEquivalentTo(1))
	})
}
