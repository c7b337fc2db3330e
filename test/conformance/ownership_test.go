package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

var _ = Describe("Ownership of requests", func() {
	It("W9: of two overlapping checks the older one acts, both report the overlap, and neither undoes the other's work", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b")
		older := s.check(ctx, "z-older", by("reboot"), func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}
		})
		// The API server counts seconds. Made in the same one, checks are ordered by name.
		Eventually(func() bool {
			younger := s.check(ctx, "a-younger", by("reboot"), ofDisk)
			if younger.CreationTimestamp.After(older.CreationTimestamp.Time) {
				return true
			}
			Expect(here.Delete(ctx, younger)).To(Succeed())
			return false
		}).Should(BeTrue())
		Eventually(s.of(ctx, "z-older", "TargetsExclusive")).Should(Equal("False/Overlap"))
		Eventually(s.of(ctx, "a-younger", "TargetsExclusive")).Should(Equal("False/Overlap"))

		s.fallsSilent(ctx, "a") // to the younger check this is a healthy machine with a request

		s.isRequested(ctx, "a")
		uid, version := s.made(ctx, "a"), s.get(ctx, "a").ResourceVersion
		Consistently(s.uid(ctx, "a")).Should(Equal(uid))
		Expect(s.get(ctx, "a").ResourceVersion).To(Equal(version), "they would overwrite each other in turn")
		Eventually(s.message(ctx, "z-older", "TargetsExclusive")).Should(Equal(
			"* 2 of 2 targets are selected by MachineHealthCheck a-younger too: this check is older and acts on them"))
		Eventually(s.message(ctx, "a-younger", "TargetsExclusive")).Should(Equal(
			"* 2 of 2 targets are selected by MachineHealthCheck z-older too: that check is older and acts on them"))
		Eventually(s.events(ctx, "z-older", "OverlappingChecks")).Should(BeNumerically(">=", 1))
		Eventually(s.events(ctx, "a-younger", "OverlappingChecks")).Should(BeNumerically(">=", 1))

		s.nodeReports(ctx, "b", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		Eventually(s.counts(ctx, "a-younger")).Should(Equal([]int32{2, 1, 1}))
		Consistently(s.requested(ctx)).Should(ConsistOf("a"), "b is the older check's affair too, and well to it")
		Expect(s.health(ctx, "b")()).To(Equal(well))
		Expect(s.events(ctx, "b", "MachineMarkedUnhealthy")()).To(BeZero())

		Expect(here.Delete(ctx, older)).To(Succeed())
		Eventually(s.requested(ctx)).Should(ConsistOf("b"), "the heir acts")
		Eventually(s.of(ctx, "a-younger", "TargetsExclusive")).Should(Equal("True/Exclusive"))
		Eventually(s.health(ctx, "a")).Should(Equal(well))
	})

	It("W9: a request of another client is left alone and reported", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b")
		foreign := s.byHand(ctx, "a", nil)
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a", "b")

		Eventually(s.external(ctx, "a")).Should(Equal("False/RemediationRequestCreationFailed"))
		Expect(conditions.GetMessage(s.get(ctx, "a"), "ExternallyRemediated")).To(Equal(
			"Metal3Remediation a exists and was not made by this MachineHealthCheck"))
		s.isRequested(ctx, "b")

		s.comesBack(ctx, "a")
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		Expect(s.external(ctx, "a")()).To(Equal("-"))
		Expect(here.Delete(ctx, s.getCheck(ctx, "check"))).To(Succeed())
		Eventually(s.requested(ctx)).Should(ConsistOf("a"))
		now := s.request(ctx, "a")
		Expect(now.GetResourceVersion()).To(Equal(foreign.GetResourceVersion()))
	})

	It("W9: a request that Cluster API made from the same template is adopted", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b")
		before := s.byHand(ctx, "a", clonedFrom("reboot"))
		s.byHand(ctx, "b", clonedFrom("reboot")) // and this machine is healthy
		s.fallsSilent(ctx, "a")
		check := s.check(ctx, "check", by("reboot"))

		Eventually(func() map[string]string { return s.request(ctx, "a").GetLabels() }).Should(
			HaveKeyWithValue("kubemend.io/made-by-uid", string(check.UID)))
		taken := s.request(ctx, "a")
		Expect(taken.GetUID()).To(Equal(before.GetUID()))
		Expect(taken.GetAnnotations()).To(HaveKeyWithValue("kubemend.io/made-by", "check"))
		s.isRequested(ctx, "a")

		s.comesBack(ctx, "a")
		Eventually(s.requested(ctx)).ShouldNot(ContainElement("a"))
		Eventually(s.requested(ctx)).Should(BeEmpty(), "no other client would ever delete the request of the healthy machine")
	})

	It("W9: a check that is recreated under the same name adopts its requests", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.worker(ctx, "a")
		s.fallsSilent(ctx, "a")
		check := s.check(ctx, "check", by("reboot"), pausedAs("test")) // else the request is one of a check that is gone, and ended as that
		request := s.byHand(ctx, "a", clonedFrom("reboot"))
		request.SetAnnotations(map[string]string{"kubemend.io/made-by": "check"})
		request.SetLabels(map[string]string{"kubemend.io/made-by-uid": "of-before"})
		Expect(here.Update(ctx, request)).To(Succeed())
		s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) { delete(c.Annotations, clusterv1.PausedAnnotation) })

		Eventually(func() map[string]string { return s.request(ctx, "a").GetLabels() }).Should(
			HaveKeyWithValue("kubemend.io/made-by-uid", string(check.UID)))
		Expect(s.uid(ctx, "a")()).To(BeEquivalentTo(request.GetUID()))
	})
})

var _ = Describe("Releasing machines", func() {
	// asking is an environment with two machines under way.
	asking := func(ctx SpecContext, edits ...func(*clusterv1.Cluster)) *environment {
		s := newEnvironment(ctx, edits...)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a", "b")
		s.isRequested(ctx, "a")
		s.isRequested(ctx, "b")
		return s
	}

	It("W16: deleting a check deletes its requests and removes its conditions, without a finalizer", func(ctx SpecContext) {
		s := asking(ctx)
		check := s.getCheck(ctx, "check")
		Expect(check.Finalizers).To(BeEmpty())

		Expect(here.Delete(ctx, check)).To(Succeed())

		Eventually(s.requested(ctx)).Should(BeEmpty())
		for _, m := range []string{"a", "b"} {
			Eventually(s.health(ctx, m)).Should(Equal(nothing))
			Expect(s.external(ctx, m)()).To(Equal("-"))
		}
		Eventually(exported(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check")...)).Should(BeZero())
	})

	It("W16: deleting a check removes an owner remediation request that the owner has not acted on, and no other", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.worker(ctx, "at-work", ownerSaid(metav1.ConditionFalse, metav1.ConditionFalse))
		check := s.check(ctx, "check")
		s.fallsSilent(ctx, "a", "at-work")
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Eventually(s.health(ctx, "at-work")).Should(Equal(silent))

		Expect(here.Delete(ctx, check)).To(Succeed())

		Eventually(s.health(ctx, "a")).Should(Equal(nothing))
		Expect(s.owner(ctx, "a")()).To(Equal(nothing))
		Eventually(s.health(ctx, "at-work")).Should(Equal(nothing))
		Expect(s.owner(ctx, "at-work")()).To(Equal("False/Test False/Test"))
	})

	It("W16: a template of another kind deletes the requests of the former kind", func(ctx SpecContext) {
		another.install(ctx)
		s := asking(ctx)
		s.templateOf(ctx, another, "replace")

		s.changeCheck(ctx, "check", byOne(another, "replace"))

		Eventually(s.requested(ctx)).Should(BeEmpty())
		Eventually(s.requestedOf(ctx, another)).Should(ConsistOf("a", "b"))
		Eventually(s.external(ctx, "a")).Should(Equal(asked))
	})

	It("W16: a check that loses its template deletes its requests and requests owner remediation", func(ctx SpecContext) {
		s := asking(ctx)

		s.changeCheck(ctx, "check", byOwner)

		Eventually(s.requested(ctx)).Should(BeEmpty())
		for _, m := range []string{"a", "b"} {
			Eventually(s.owner(ctx, m)).Should(Equal(ownerRequested))
			Eventually(s.external(ctx, m)).Should(Equal("-"))
		}
		Eventually(s.of(ctx, "check", "RemediationTemplateAvailable")).Should(Equal("-"))
	})

	It("W16: a machine that no check selects any longer is released", func(ctx SpecContext) {
		s := asking(ctx)

		s.change(ctx, "a", func(m *clusterv1.Machine) { m.Labels["pool"] = "elsewhere" })

		Eventually(s.requested(ctx)).Should(ConsistOf("b"))
		Eventually(s.health(ctx, "a")).Should(Equal(nothing))
		Expect(s.external(ctx, "a")()).To(Equal("-"))
		Expect(s.external(ctx, "b")()).To(Equal(asked))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{1, 0, 0}))
	})

	It("W16: a changed selector releases the machines that it leaves out", func(ctx SpecContext) {
		s := asking(ctx)
		s.worker(ctx, "c", func(m *clusterv1.Machine) { m.Labels["pool"] = "elsewhere" })

		s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "elsewhere" })

		Eventually(s.requested(ctx)).Should(BeEmpty())
		Eventually(s.health(ctx, "a")).Should(Equal(nothing))
		Eventually(s.health(ctx, "c")).Should(Equal(well))
	})

	It("W16: skipping or pausing a machine deletes its request and removes its conditions", func(ctx SpecContext) {
		s := asking(ctx)

		s.change(ctx, "a", annotated(clusterv1.MachineSkipRemediationAnnotation, ""))
		s.change(ctx, "b", annotated(clusterv1.PausedAnnotation, ""))

		Eventually(s.requested(ctx)).Should(BeEmpty())
		for _, m := range []string{"a", "b"} {
			Eventually(s.health(ctx, m)).Should(Equal(nothing))
			Expect(s.external(ctx, m)()).To(Equal("-"))
		}
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{0, 0, 0}))
	})

	It("waits while the Cluster is paused", func(ctx SpecContext) {
		s := asking(ctx)
		s.pause(ctx, true)
		Eventually(s.of(ctx, "check", "Paused")).Should(Equal("True/Paused"))

		Expect(here.Delete(ctx, s.getCheck(ctx, "check"))).To(Succeed())
		Consistently(s.requested(ctx)).Should(ConsistOf("a", "b"))
		Expect(s.health(ctx, "a")()).To(Equal(silent))

		s.pause(ctx, false)
		Eventually(s.requested(ctx)).Should(BeEmpty())
		Eventually(s.health(ctx, "a")).Should(Equal(nothing))
	})

	It("leaves conditions of other writers alone on a machine that no check selects", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a", everFailed)
		s.worker(ctx, "b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.check(ctx, "check", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "b" })
		Eventually(s.health(ctx, "b")).Should(Equal(well))

		s.change(ctx, "a", annotated("changed", ""))

		Consistently(s.health(ctx, "a")).Should(Equal("False/Test False/Test"))
	})

	It("W16: what became orphaned while no manager ran is released at the start", func(ctx SpecContext) {
		m := ownManager(ctx, "w16")
		s := newEnvironment(ctx, seenBy("w16"))
		another.install(ctx)
		s.template(ctx, "reboot")
		s.templateOf(ctx, another, "replace")
		s.workers(ctx, "a", "b", "c")
		s.change(ctx, "b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.change(ctx, "c", func(m *clusterv1.Machine) { m.Labels["pool"] = "c" })
		of := func(pool string) func(*clusterv1.MachineHealthCheck) {
			return func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = pool }
		}
		s.check(ctx, "check", by("reboot"))
		s.check(ctx, "check-b", byOne(another, "replace"), of("b"))
		s.check(ctx, "check-c", by("reboot"), of("c"))
		s.fallsSilent(ctx, "a", "b", "c")
		Eventually(s.requested(ctx)).Should(ConsistOf("a", "c"))
		Eventually(s.requestedOf(ctx, another)).Should(ConsistOf("b"))
		for _, m := range []string{"a", "b", "c"} {
			Eventually(s.external(ctx, m)).Should(Equal(asked))
		}
		kept := s.uid(ctx, "c")()

		m.Kill()
		Expect(here.Delete(ctx, s.getCheck(ctx, "check"))).To(Succeed())
		Expect(here.Delete(ctx, s.getCheck(ctx, "check-b"))).To(Succeed())
		Consistently(s.requested(ctx)).Should(ConsistOf("a", "c"), "no manager runs that could delete them")
		ownManager(ctx, "w16")

		Eventually(s.requested(ctx)).Should(ConsistOf("c"))
		Eventually(s.requestedOf(ctx, another)).Should(BeEmpty())
		Eventually(s.health(ctx, "a")).Should(Equal(nothing))
		Eventually(s.health(ctx, "b")).Should(Equal(nothing))
		Expect(s.external(ctx, "b")()).To(Equal("-"))
		Expect(s.uid(ctx, "c")()).To(Equal(kept))
	})
})
