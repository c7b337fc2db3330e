package machines

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
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

// twoChecks selects two machines by an older check, to which a node may not be silent, and by a younger one, to which its disk may not be
// full.
func twoChecks(s *environment, edits ...func(*clusterv1.MachineHealthCheck)) {
	s.t.Helper()
	s.template()
	s.workers("a", "b")
	s.check("z-older", edits...)
	time.Sleep(time.Second) // the API server counts seconds: made in the same one, checks are ordered by name
	s.check("a-younger", append([]func(*clusterv1.MachineHealthCheck){ofDisk}, edits...)...)
	s.Eventually(s.health("a")).Should(Equal(well))
}

// steady expects that nothing more is written of a machine, whichever check is reconciled.
func (s *environment) steady(machine string) {
	s.t.Helper()
	time.Sleep(time.Second)
	version := s.get(machine).ResourceVersion
	for _, check := range []string{"z-older", "a-younger"} {
		s.changeCheck(check, func(c *clusterv1.MachineHealthCheck) { c.Labels = map[string]string{"at": time.Now().Format("150405")} })
		time.Sleep(time.Minute)
	}
	s.Expect(s.get(machine).ResourceVersion).To(Equal(version), "the checks write in turn")
}

func TestW9OwnershipOfRequestsOfTwoChecksOfOneMachineEachActsByItsOwnRulesOneAtATime(t *testing.T) {
	run(t, func(s *environment) {
		twoChecks(s, byRequests)
		s.Eventually(s.of("a-younger", "TargetsExclusive")).Should(Equal("True/Exclusive"))
		s.Eventually(s.message("z-older", "TargetsExclusive")).
			Should(HavePrefix("* 2 of 2 targets are selected by MachineHealthCheck a-younger too: each acts"))

		s.fallsSilent("a")
		s.isRequested("a")
		uid := s.made("a")
		s.steady("a")

		s.nodeReports("b", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		s.Eventually(s.requested()).Should(ConsistOf("a", "b"), "the younger check acts")
		s.Eventually(s.health("b")).Should(Equal(silent))
		s.steady("b")

		s.nodeReports("a", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		s.Eventually(s.counts("a-younger")).Should(Equal([]int32{2, 0, 0}))
		s.Eventually(func() string { return conditions.GetMessage(s.get("a"), "HealthCheckSucceeded") }).Should(
			And(ContainSubstring("Condition DiskPressure"), ContainSubstring("Condition Ready")))
		s.Consistently(s.uid("a")).Should(Equal(uid), "one remediation at a time")
		s.steady("a")

		s.comesBack("a")
		s.Eventually(s.uid("a")).ShouldNot(Equal(uid), "the older check ends its own, and the younger one begins")
		s.isRequested("a")
		s.Expect(conditions.GetMessage(s.get("a"), "HealthCheckSucceeded")).NotTo(ContainSubstring("Condition Ready"))

		for _, machine := range []string{"a", "b"} {
			s.nodeReports(machine, corev1.NodeDiskPressure, corev1.ConditionFalse, 0)
			s.Eventually(s.health(machine)).Should(Equal(well))
			s.steady(machine)
		}
		s.Expect(s.requested()()).To(BeEmpty())
	})
}

func TestACheckWhoseRulesAreMetNoMoreWithdrawsWhatItAskedTheOwnerForWhileAnotherOneIsBlocked(t *testing.T) {
	run(t, func(s *environment) {
		twoChecks(s)
		s.changeCheck("a-younger", atMost("0"))
		s.nodeReports("a", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		s.fallsSilent("a")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.steady("a")

		s.comesBack("a")
		s.Eventually(s.owner("a")).Should(Equal("- -"))
		s.Expect(s.health("a")()).To(Equal(silent), "the younger check says so")
		s.steady("a")

		s.changeCheck("a-younger", atMost("100%"))
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.restart()
		s.steady("a")
		s.Expect(s.owner("a")()).To(Equal(ownerRequested), "after a restart too")
	})
}

// asking is an environment with two machines under way.
func asking(s *environment) {
	s.t.Helper()
	s.template()
	s.workers("a", "b")
	s.check("check", byRequests)
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

		s.change("a", annotated("changed"))

		s.Consistently(s.health("a")).Should(Equal("False/Test False/Test"))
	})
}

func TestW16ReleasingMachinesWhatBecameOrphanedWhileNoManagerRanIsReleasedAtTheStart(t *testing.T) {
	run(t, func(s *environment) {
		s.template()
		s.templateOf(another, "replace")
		s.workers("a", "b", "c")
		s.change("b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.change("c", func(m *clusterv1.Machine) { m.Labels["pool"] = "c" })
		of := func(pool string) func(*clusterv1.MachineHealthCheck) {
			return func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = pool }
		}
		s.check("check", byRequests)
		s.check("check-b", byOne(another, "replace"), of("b"))
		s.check("check-c", byRequests, of("c"))
		s.fallsSilent("a", "b", "c")
		s.Eventually(s.requested()).Should(ConsistOf("a", "c"))
		s.Eventually(s.requestedOf(another)).Should(ConsistOf("b"))
		for _, m := range []string{"a", "b", "c"} {
			s.Eventually(s.external(m)).Should(Equal(asked))
		}
		kept := s.uid("c")()

		s.restart(func() {
			s.Expect(s.here.Delete(s.ctx, s.getCheck("check"))).To(Succeed())
			s.Expect(s.here.Delete(s.ctx, s.getCheck("check-b"))).To(Succeed())
			s.Consistently(s.requested()).Should(ConsistOf("a", "c"), "no manager runs that could delete them")
		})

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
			s.Eventually(s.remediation(m)).Should(Equal("-"))
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
		"machines that are skipped or paused": func(s *environment) {
			s.change("a", annotated(clusterv1.MachineSkipRemediationAnnotation))
			s.change("b", annotated(clusterv1.PausedAnnotation))
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
