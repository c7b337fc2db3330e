package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
)

const asked = "False/WaitingForRemediation"

// everFailed gives a machine a failed health check of long ago.
func everFailed(m *clusterv1.Machine) {
	m.Status.Conditions = append(m.Status.Conditions,
		condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, long),
		condition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, long))
	v1beta1conditions.MarkFalse(m, clusterv1.MachineHealthCheckSucceededV1Beta1Condition, "Test", clusterv1.ConditionSeverityWarning, "")
}

var _ = Describe("Requests", func() {
	It("have the template's spec and the machine's name, and name their origin", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot", func(embedded map[string]any) {
			meta := embedded["metadata"].(map[string]any)
			meta["finalizers"], meta["resourceVersion"], meta["uid"] = []any{"test.kubemend.io/keep"}, "12", "34"
		})
		machine := s.worker(ctx, "a")
		check := s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a")

		s.isRequested(ctx, "a")
		Expect(s.health(ctx, "a")()).To(Equal(silent))
		Expect(s.owner(ctx, "a")()).To(Equal(nothing))
		s.made(ctx, "a")
		r := s.request(ctx, "a")
		Expect(r.Object["spec"]).To(Equal(map[string]any{"strategy": map[string]any{"type": "Reboot", "retryLimit": int64(1), "timeout": "300s"}}))
		Expect(r.GetLabels()).To(Equal(map[string]string{
			"from": "template", "cluster.x-k8s.io/cluster-name": "c1", "kubemend.io/made-by-uid": string(check.UID),
		}))
		Expect(r.GetAnnotations()).To(Equal(map[string]string{
			"note":                                   "kept",
			"cluster.x-k8s.io/cloned-from-name":      "reboot",
			"cluster.x-k8s.io/cloned-from-groupkind": "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io",
			"kubemend.io/made-by":                    "check",
			"kubemend.io/record":                     s.recorded(ctx)[0].Name,
		}))
		Expect(r.GetOwnerReferences()).To(Equal([]metav1.OwnerReference{{
			APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "a", UID: machine.UID,
		}}))
		Expect(r.GetFinalizers()).To(BeEmpty())
		Expect(r.GetUID()).NotTo(BeEquivalentTo("34"))
	})

	It("need no spec.template in the template", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		bare := metal3.object("Metal3RemediationTemplate", s.cluster.Namespace, "bare")
		Expect(here.Create(ctx, bare)).To(Succeed())
		s.worker(ctx, "a")
		s.check(ctx, "check", by("bare"))
		s.fallsSilent(ctx, "a")

		Eventually(s.requested(ctx)).Should(ConsistOf("a"))
		Expect(s.request(ctx, "a").GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"))
	})

	It("are deleted when the machine is healthy, and are not changed until then", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.template(ctx, "reboot-harder")
		s.worker(ctx, "a")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a")
		s.isRequested(ctx, "a")
		uid := s.made(ctx, "a")

		s.changeCheck(ctx, "check", by("reboot-harder"))
		generation := s.getCheck(ctx, "check").Generation
		Eventually(func() int64 { return s.getCheck(ctx, "check").Status.ObservedGeneration }).Should(Equal(generation))
		Expect(s.uid(ctx, "a")()).To(Equal(uid), "another template of the same kind keeps the old request")

		s.comesBack(ctx, "a")
		Eventually(s.request).WithArguments(ctx, "a").Should(BeNil())
		Eventually(s.health(ctx, "a")).Should(Equal(well))
	})

	It("leave ExternallyRemediated to the provider while they exist", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b", "c")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a", "b")
		s.isRequested(ctx, "a")
		s.isRequested(ctx, "b")

		s.change(ctx, "a", func(m *clusterv1.Machine) {
			conditions.Set(m, condition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionTrue, 0))
		})
		s.change(ctx, "b", func(m *clusterv1.Machine) { conditions.Delete(m, clusterv1.MachineExternallyRemediatedCondition) })
		s.fallsSilent(ctx, "c") // so there is one more reconcile, at least

		s.isRequested(ctx, "c")
		Consistently(s.external(ctx, "a")).Should(Equal("True/Test"))
		Expect(s.external(ctx, "b")()).To(Equal("-"))
	})

	It("W1: an existing request does not end the reconcile for other machines", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b", "c", "d", "e", "f")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a", "b")
		Eventually(s.requested(ctx)).Should(ConsistOf("a", "b"))

		s.fallsSilent(ctx, "c", "d", "e")

		Eventually(s.requested(ctx)).Should(ConsistOf("a", "b", "c", "d", "e"))
		for _, m := range []string{"c", "d", "e"} {
			s.isRequested(ctx, m)
			Expect(s.health(ctx, m)()).To(Equal(silent))
		}
	})

	It("W2: a machine that is being deleted gets no request", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "going", "b")
		s.check(ctx, "check", by("reboot"))
		Eventually(s.health(ctx, "going")).Should(Equal(well))
		s.isDeleted(ctx, "going")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 1, 1}))

		s.losesNode(ctx, "going")
		s.fallsSilent(ctx, "b")

		s.isRequested(ctx, "b")
		Consistently(s.requested(ctx)).Should(ConsistOf("b"))
		Expect(s.external(ctx, "going")()).To(Equal("-"))
		Expect(s.health(ctx, "going")()).To(Equal(well), "it is no news that its node goes")
	})

	It("W3: conditions of a healthy machine without a request are kept up to date", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.worker(ctx, "never-failed")
		s.worker(ctx, "once-failed", everFailed)
		s.check(ctx, "check", by("reboot"))

		Eventually(s.health(ctx, "never-failed")).Should(Equal(well))
		Eventually(s.health(ctx, "once-failed")).Should(Equal(well))
		Expect(s.external(ctx, "once-failed")()).To(Equal("-"))
	})

	It("W4, W5: a missing template is reported on every machine and on the check, as long as it is missing", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b", "good")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a", "b")

		for _, m := range []string{"a", "b"} {
			Eventually(s.external(ctx, m)).Should(Equal("False/RemediationTemplateNotFound"))
			Expect(conditions.GetMessage(s.get(ctx, m), "ExternallyRemediated")).To(Equal(
				"Error retrieving remediation template Metal3RemediationTemplate " + s.cluster.Namespace + "/reboot"))
			Expect(s.health(ctx, m)()).To(Equal(silent))
		}
		Eventually(s.health(ctx, "good")).Should(Equal(well))
		Eventually(s.both(ctx, "check", "ExternalRemediationTemplateAvailable")).Should(Equal("- False/ExternalRemediationTemplateNotFound"))
		Expect(s.both(ctx, "check", "RemediationTemplateAvailable")()).To(Equal("False/RemediationTemplateNotFound -"))
		Expect(s.message(ctx, "check", "RemediationTemplateAvailable")()).To(ContainSubstring("Metal3RemediationTemplate " + s.cluster.Namespace + "/reboot"))

		s.template(ctx, "reboot")

		Eventually(s.requested(ctx)).Should(ConsistOf("a", "b"))
		s.isRequested(ctx, "a")
		s.isRequested(ctx, "b")
		Eventually(s.both(ctx, "check", "ExternalRemediationTemplateAvailable")).Should(Equal(nothing))
		Expect(s.both(ctx, "check", "RemediationTemplateAvailable")()).To(Equal("True/TemplateFound -"))
		Expect(here.Delete(ctx, metal3.object("Metal3RemediationTemplate", s.cluster.Namespace, "reboot"))).To(Succeed())
		Eventually(s.both(ctx, "check", "RemediationTemplateAvailable")).Should(Equal("False/RemediationTemplateNotFound -"))
		Expect(s.external(ctx, "a")()).To(Equal(asked), "what has started needs its template no more")
		Expect(s.requested(ctx)()).To(ConsistOf("a", "b"))
	})

	It("W4, W5: a request that cannot be made is reported with its cause, until it can be made", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot", func(embedded map[string]any) {
			embedded["metadata"] = map[string]any{"labels": map[string]any{"bad": "no value has spaces"}}
		})
		s.workers(ctx, "a", "b")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a")

		Eventually(s.external(ctx, "a")).Should(Equal("False/RemediationRequestCreationFailed"))
		Expect(s.health(ctx, "a")()).To(Equal(silent))
		Expect(conditions.GetMessage(s.get(ctx, "a"), "ExternallyRemediated")).To(ContainSubstring("no value has spaces"))
		Eventually(s.health(ctx, "b")).Should(Equal(well))
		Eventually(s.both(ctx, "check", "ExternalRemediationRequestAvailable")).Should(Equal("- False/ExternalRemediationRequestCreationFailed"))
		Eventually(s.events(ctx, "a", "RemediationFailed")).Should(Equal(1))

		s.template(ctx, "reboot")

		s.isRequested(ctx, "a")
		Eventually(s.both(ctx, "check", "ExternalRemediationRequestAvailable")).Should(Equal(nothing))
		Expect(s.events(ctx, "a", "RemediationFailed")()).To(Equal(1), "however often it was tried")
	})

	It("W5: ExternallyRemediated is removed when the machine recovers", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b")
		s.check(ctx, "check", by("missing"))
		s.fallsSilent(ctx, "a")
		Eventually(s.external(ctx, "a")).Should(Equal("False/RemediationTemplateNotFound"))

		s.comesBack(ctx, "a")

		Eventually(s.health(ctx, "a")).Should(Equal(well))
		Expect(s.external(ctx, "a")()).To(Equal("-"))
	})

	It("W8: the next request is made as soon as a terminating one is gone", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.worker(ctx, "a")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a")
		s.isRequested(ctx, "a")
		uid := s.made(ctx, "a")
		s.keep(ctx, "a", "test.kubemend.io/keep")

		Expect(here.Delete(ctx, s.request(ctx, "a"))).To(Succeed())
		Consistently(s.uid(ctx, "a")).Should(Equal(uid))
		Expect(s.external(ctx, "a")()).To(Equal(asked), "it was not tried")

		s.keep(ctx, "a")
		Eventually(s.uid(ctx, "a")).WithTimeout(quick).Should(And(Not(BeEmpty()), Not(Equal(uid))))
	})

	It("W8: a healthy machine's terminating request is not deleted again, nor is a later one", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.worker(ctx, "a")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a")
		s.isRequested(ctx, "a")
		s.keep(ctx, "a", "test.kubemend.io/keep")

		s.comesBack(ctx, "a")
		Eventually(func() *metav1.Time { return s.request(ctx, "a").GetDeletionTimestamp() }).ShouldNot(BeNil())
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		s.fallsSilent(ctx, "a")
		Eventually(s.health(ctx, "a")).Should(Equal(silent))
		old := s.request(ctx, "a")
		Expect(old.GetDeletionTimestamp()).NotTo(BeNil(), "the machine is bad again, and the old request still ends")

		s.keep(ctx, "a")
		Eventually(s.uid(ctx, "a")).WithTimeout(quick).Should(And(Not(BeEmpty()), Not(BeEquivalentTo(old.GetUID()))))
	})
})
