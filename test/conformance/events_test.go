package conformance

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// sentEvents returns the events of an environment, unsorted, as "Object Reason"; but for those that say what capacity waits for, which depend on for how long.
func (s *environment) sentEvents(ctx context.Context) func() []string {
	return func() []string {
		var all []string
		for _, e := range s.allEvents(ctx) {
			if !strings.HasPrefix(e.Reason, "Capacity") {
				all = append(all, e.Regarding.Name+" "+e.Reason)
			}
		}
		return all
	}
}

func (s *environment) allEvents(ctx context.Context) []eventsv1.Event {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(here.List(ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
	return list.Items
}

// note is the text of the only event of a reason on an object.
func (s *environment) note(ctx context.Context, object, reason string) func() string {
	return func() string {
		var texts []string
		for _, e := range s.allEvents(ctx) {
			if e.Regarding.Name == object && e.Reason == reason {
				texts = append(texts, e.Type+": "+e.Note)
			}
		}
		return strings.Join(texts, "\n")
	}
}

var _ = Describe("Events and metrics", func() {
	It("W17: one event per change, recovery included, and none without a change", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b", "c")
		s.check(ctx, "check", by("reboot"), atMost("1"))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{3, 3, 1}))
		Expect(s.sentEvents(ctx)()).To(BeEmpty(), "a healthy check causes no event")
		in := s.cluster.Namespace + "/"

		s.fallsSilent(ctx, "a")
		Eventually(s.sentEvents(ctx)).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted"))
		Eventually(s.note(ctx, "a", "MachineMarkedUnhealthy")).Should(Equal("Normal: Machine " + in + "a has been marked as unhealthy by " + in + "check: " +
			"Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
		Eventually(s.note(ctx, "check", "RemediationStarted")).Should(Equal("Normal: Requested a Metal3Remediation for a"))

		s.fallsSilent(ctx, "b")
		Eventually(s.sentEvents(ctx)).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted",
			"b MachineMarkedUnhealthy", "check RemediationRestricted"))
		Eventually(s.note(ctx, "check", "RemediationRestricted")).Should(Equal("Warning: " + s.message(ctx, "check", "RemediationAllowed")()))

		s.comesBack(ctx, "a")
		Eventually(s.sentEvents(ctx)).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted",
			"b MachineMarkedUnhealthy", "check RemediationRestricted",
			"a MachineHealthy", "check RemediationEnded", "check RemediationAllowed", "check RemediationStarted"))
		Eventually(s.note(ctx, "a", "MachineHealthy")).Should(Equal("Normal: Machine " + in + "a has been marked as healthy again by " + in + "check"))
		Eventually(s.note(ctx, "check", "RemediationEnded")).Should(Equal("Normal: Healthy again: a"))

		Eventually(s.message(ctx, "check", mendv1.CapacityBack)).Should(Equal("The capacity of Machine b is not back: Metal3Remediation b has not ended"))
		// Whether capacity is back is said when a record is closed, and the check says it then too.
		before := still(s.versions(ctx), 3*settled)
		for _, value := range []string{"1", "2", "3"} { // reconciles in which nothing changes
			s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = map[string]string{"irrelevant": value} })
			before["MachineHealthCheck/check"] = s.getCheck(ctx, "check").ResourceVersion
			Consistently(s.versions(ctx)).Should(Equal(before))
		}
	})

	It("W17: one event on the check per remediation, and one on each machine", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b", "c")
		s.fallsSilent(ctx, "a", "b", "c")
		s.check(ctx, "check", lenient)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{3, 0, 0}))
		s.changeCheck(ctx, "check", strict)

		Eventually(s.sentEvents(ctx)).Should(ConsistOf("a MachineMarkedUnhealthy", "b MachineMarkedUnhealthy", "c MachineMarkedUnhealthy",
			"check RemediationStarted", "check RemediationStarted", "check RemediationStarted"))
		for _, e := range s.allEvents(ctx) {
			Expect(e.Regarding.UID).NotTo(BeEmpty())
			Expect(e.Regarding.APIVersion).To(Equal("cluster.x-k8s.io/v1beta2"))
			if e.Regarding.Kind == "Machine" {
				Expect(e.Related.Name).To(Equal("check"))
			} else {
				Expect(e.Note).To(Equal("Asked the owner to remediate " + e.Related.Name))
			}
		}
	})

	It("W17: one warning when a short-circuit first blocks a remediation, and no other", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b")
		s.check(ctx, "check", atMost("0"))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 2, 0}))

		s.nodeReports(ctx, "a", corev1.NodeReady, corev1.ConditionFalse, 0)
		Eventually(s.allowed(ctx, "check")).Should(Equal(restricted))
		Expect(s.sentEvents(ctx)()).To(BeEmpty(), "a is only pending")
		s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds = ptr.To[int32](1)
		})

		Eventually(s.sentEvents(ctx)).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationRestricted"))
		s.fallsSilent(ctx, "b")
		Eventually(s.sentEvents(ctx)).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationRestricted", "b MachineMarkedUnhealthy"))
		Consistently(s.events(ctx, "check", "RemediationRestricted")).Should(Equal(1))
	})

	It("W17: a second failure of a machine is reported with its own cause", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")
		s.fallsSilent(ctx, "a")
		Eventually(s.events(ctx, "a", "MachineMarkedUnhealthy")).Should(Equal(1))
		s.comesBack(ctx, "a")
		Eventually(s.events(ctx, "a", "MachineHealthy")).Should(Equal(1))

		s.losesNode(ctx, "a")

		Eventually(s.events(ctx, "a", "MachineMarkedUnhealthy")).Should(Equal(2))
		Eventually(s.note(ctx, "a", "MachineMarkedUnhealthy")).Should(ContainSubstring("Node " + s.node("a") + " has been deleted"))
	})

	It("W17: metrics count remediations started and finished, by kind", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "recovers", "is-replaced", "is-skipped")
		s.worker(ctx, "owned", func(m *clusterv1.Machine) { m.Labels["pool"] = "owned" })
		s.check(ctx, "check", by("reboot"))
		s.check(ctx, "owned", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "owned" })
		began := func(check, kind string) func() float64 {
			return number(ctx, manager, "kubemend_remediations_started_total", s.labels(check, `kind="`+kind+`"`)...)
		}
		ended := func(check, kind, result string) func() float64 {
			return number(ctx, manager, "kubemend_remediations_finished_total", s.labels(check, `kind="`+kind+`"`, `result="`+result+`"`)...)
		}
		inFlight := number(ctx, manager, "kubemend_remediations_in_flight", s.labels("check")...)
		Eventually(s.health(ctx, "owned")).Should(Equal(well))

		s.fallsSilent(ctx, "recovers", "is-replaced", "is-skipped", "owned")
		Eventually(began("check", "Metal3Remediation")).Should(BeEquivalentTo(3))
		Eventually(began("owned", "Owner")).Should(BeEquivalentTo(1))
		Eventually(inFlight).Should(BeEquivalentTo(3))

		s.comesBack(ctx, "recovers", "owned")
		Eventually(ended("check", "Metal3Remediation", "recovered")).Should(BeEquivalentTo(1))
		Eventually(ended("owned", "Owner", "recovered")).Should(BeEquivalentTo(1))
		Expect(here.Delete(ctx, s.get(ctx, "is-replaced"))).To(Succeed())
		Eventually(ended("check", "Metal3Remediation", "replaced")).Should(BeEquivalentTo(1))
		s.change(ctx, "is-skipped", annotated(clusterv1.MachineSkipRemediationAnnotation, ""))
		Eventually(ended("check", "Metal3Remediation", "cancelled")).Should(BeEquivalentTo(1))
		Eventually(inFlight).Should(BeZero())
		Expect(began("check", "Metal3Remediation")()).To(BeEquivalentTo(3))
		Expect(began("owned", "Owner")()).To(BeEquivalentTo(1))
	})

	It("metrics show what kubemend waits for", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "good", "bad", "pending")
		s.machine(ctx, "starting")
		s.fallsSilent(ctx, "bad")
		s.nodeReports(ctx, "pending", "Ready", "False", 0)
		s.check(ctx, "check", atMost("2"))
		state := func(name string) func() float64 {
			return number(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check", `state="`+name+`"`)...)
		}

		for _, name := range []string{"healthy", "unhealthy", "pending", "starting"} {
			Eventually(state(name)).Should(BeEquivalentTo(1), name)
		}
		Expect(state("deleting")()).To(BeZero())
		Eventually(number(ctx, manager, "kubemend_machinehealthcheck_short_circuited", s.labels("check")...)).Should(BeEquivalentTo(1))
		s.comesBack(ctx, "bad")
		Eventually(number(ctx, manager, "kubemend_machinehealthcheck_short_circuited", s.labels("check")...)).Should(BeZero())
	})
})
