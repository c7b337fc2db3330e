package machines

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// ofDisk makes a check judge by the disk alone.
func ofDisk(c *clusterv1.MachineHealthCheck) {
	c.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](1)},
	}
}

// clonedFrom are the annotations that Cluster API core gives to a request made from a Metal3RemediationTemplate.
func clonedFrom(template string) map[string]string {
	return map[string]string{
		"cluster.x-k8s.io/cloned-from-name":      template,
		"cluster.x-k8s.io/cloned-from-groupkind": "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io",
	}
}

func TestW9OwnershipOfRequestsOfTwoOverlappingChecksTheOlderOneActsBothReportTheOverlapAndNeitherUndoesTheOthersWork(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.workers("a", "b")
		older := s.check("z-older", by("reboot"), func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}
		})
		time.Sleep(time.Second) // the API server counts seconds: made in the same one, checks are ordered by name
		s.check("a-younger", by("reboot"), ofDisk)
		s.Eventually(s.of("z-older", "TargetsExclusive")).Should(Equal("False/Overlap"))
		s.Eventually(s.of("a-younger", "TargetsExclusive")).Should(Equal("False/Overlap"))

		s.fallsSilent("a") // to the younger check this is a healthy machine with a request

		s.isRequested("a")
		uid, version := s.made("a"), s.get("a").ResourceVersion
		s.Consistently(s.uid("a")).Should(Equal(uid))
		s.Expect(s.get("a").ResourceVersion).To(Equal(version), "they would overwrite each other in turn")
		s.Eventually(s.message("z-older", "TargetsExclusive")).Should(Equal(
			"* 2 of 2 targets are selected by MachineHealthCheck a-younger too: this check is older and acts on them"))
		s.Eventually(s.message("a-younger", "TargetsExclusive")).Should(Equal(
			"* 2 of 2 targets are selected by MachineHealthCheck z-older too: that check is older and acts on them"))
		s.Eventually(s.events("z-older", "OverlappingChecks")).Should(BeNumerically(">=", 1))
		s.Eventually(s.events("a-younger", "OverlappingChecks")).Should(BeNumerically(">=", 1))

		s.nodeReports("b", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		s.Eventually(s.counts("a-younger")).Should(Equal([]int32{2, 1, 1}))
		s.Consistently(s.requested()).Should(ConsistOf("a"), "b is the older check's affair too, and well to it")
		s.Expect(s.health("b")()).To(Equal(well))
		s.Expect(s.events("b", "MachineMarkedUnhealthy")()).To(BeZero())

		s.Expect(s.here.Delete(s.ctx, older)).To(Succeed())
		s.Eventually(s.requested()).Should(ConsistOf("b"), "the heir acts")
		s.Eventually(s.of("a-younger", "TargetsExclusive")).Should(Equal("True/Exclusive"))
		s.Eventually(s.health("a")).Should(Equal(well))
	})
}

// asking is an environment with two machines under way.
func asking(s *environment) {
	s.t.Helper()
	s.template("reboot")
	s.workers("a", "b")
	s.check("check", by("reboot"))
	s.fallsSilent("a", "b")
	s.isRequested("a")
	s.isRequested("b")
}

func TestReleasingMachinesLeavesConditionsOfOtherWritersAloneOnAMachineThatNoCheckSelects(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a", everFailed)
		s.worker("b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.check("check", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "b" })
		s.Eventually(s.health("b")).Should(Equal(well))

		s.change("a", annotated("changed", ""))

		s.Consistently(s.health("a")).Should(Equal("False/Test False/Test"))
	})
}

func TestW16ReleasingMachinesWhatBecameOrphanedWhileNoManagerRanIsReleasedAtTheStart(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.templateOf(another, "replace")
		s.workers("a", "b", "c")
		s.change("b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.change("c", func(m *clusterv1.Machine) { m.Labels["pool"] = "c" })
		of := func(pool string) func(*clusterv1.MachineHealthCheck) {
			return func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = pool }
		}
		s.check("check", by("reboot"))
		s.check("check-b", byOne(another, "replace"), of("b"))
		s.check("check-c", by("reboot"), of("c"))
		s.fallsSilent("a", "b", "c")
		s.Eventually(s.requested()).Should(ConsistOf("a", "c"))
		s.Eventually(s.requestedOf(another)).Should(ConsistOf("b"))
		for _, m := range []string{"a", "b", "c"} {
			s.Eventually(s.external(m)).Should(Equal(asked))
		}
		kept := s.uid("c")()

		s.programs[0].kill()
		s.Expect(s.here.Delete(s.ctx, s.getCheck("check"))).To(Succeed())
		s.Expect(s.here.Delete(s.ctx, s.getCheck("check-b"))).To(Succeed())
		s.Consistently(s.requested()).Should(ConsistOf("a", "c"), "no manager runs that could delete them")
		s.start(machinehealthcheck.Act)

		s.Eventually(s.requested()).Should(ConsistOf("c"))
		s.Eventually(s.requestedOf(another)).Should(BeEmpty())
		s.Eventually(s.health("a")).Should(Equal(nothing))
		s.Eventually(s.health("b")).Should(Equal(nothing))
		s.Expect(s.external("b")()).To(Equal("-"))
		s.Expect(s.uid("c")()).To(Equal(kept))
	})
}

func TestW16ReleasingMachines(t *testing.T) {
	released := func(s *environment, machines ...string) {
		s.Eventually(s.requested()).ShouldNot(ContainElements(machines))
		for _, m := range machines {
			s.Eventually(s.health(m)).Should(Equal(nothing))
			s.Eventually(s.external(m)).Should(Equal("-"))
		}
	}
	for name, happens := range map[string]func(s *environment){
		"a check that is deleted has no finalizer, and releases all": func(s *environment) {
			check := s.getCheck("check")
			s.Expect(check.Finalizers).To(BeEmpty())
			s.Expect(s.here.Delete(s.ctx, check)).To(Succeed())
			released(s, "a", "b")
			s.Eventually(s.exported("kubemend_machinehealthcheck_targets", s.labels("check")...)).Should(BeZero())
		},
		"a template of another kind ends the requests of the former": func(s *environment) {
			s.templateOf(another, "replace")
			s.changeCheck("check", byOne(another, "replace"))
			s.Eventually(s.requested()).Should(BeEmpty())
			s.Eventually(s.requestedOf(another)).Should(ConsistOf("a", "b"))
			s.Eventually(s.external("a")).Should(Equal(asked))
		},
		"a check that loses its template asks owners": func(s *environment) {
			s.changeCheck("check", byOwner)
			s.Eventually(s.requested()).Should(BeEmpty())
			s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
			s.Eventually(s.external("a")).Should(Equal("-"))
			s.Eventually(s.of("check", "RemediationTemplateAvailable")).Should(Equal("-"))
		},
		"a check that has no requests is deleted": func(s *environment) {
			s.changeCheck("check", byOwner)
			s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
			s.Eventually(s.requested()).Should(BeEmpty())
			time.Sleep(time.Minute)
			s.Expect(s.here.Delete(s.ctx, s.getCheck("check"))).To(Succeed())
			released(s, "a", "b")
			s.Expect(s.owner("a")()).To(Equal("- -"))
		},
		"a machine that no check selects any longer": func(s *environment) {
			s.change("a", func(m *clusterv1.Machine) { m.Labels["pool"] = "elsewhere" })
			released(s, "a")
			s.Expect(s.external("b")()).To(Equal(asked))
			s.Eventually(s.counts("check")).Should(Equal([]int32{1, 0, 0}))
		},
		"a selector that leaves them out": func(s *environment) {
			s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "elsewhere" })
			released(s, "a", "b")
		},
		"machines that are skipped or paused": func(s *environment) {
			s.change("a", annotated(clusterv1.MachineSkipRemediationAnnotation, ""))
			s.change("b", annotated(clusterv1.PausedAnnotation, ""))
			released(s, "a", "b")
			s.Eventually(s.counts("check")).Should(Equal([]int32{0, 0, 0}))
		},
		"nothing while the Cluster is paused": func(s *environment) {
			s.pause(true)
			s.Eventually(s.of("check", "Paused")).Should(Equal("True/Paused"))
			s.Expect(s.here.Delete(s.ctx, s.getCheck("check"))).To(Succeed())
			s.Consistently(s.requested()).Should(ConsistOf("a", "b"))
			s.Expect(s.health("a")()).To(Equal(silent))
			s.pause(false)
			released(s, "a", "b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *environment) {
				asking(s)
				happens(s)
			})
		})
	}
}
