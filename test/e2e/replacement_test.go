package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// onlyPaused are the managed fields of a client that wrote this condition, and nothing else.
const onlyPaused = `{"f:status": {"f:conditions": {"k:{\"type\":\"Paused\"}": {
	"f:type": {}, "f:status": {}, "f:reason": {}, "f:message": {}, "f:lastTransitionTime": {}, "f:observedGeneration": {}}}}}`

var _ = Describe("A worker whose kubelet falls silent", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("is replaced by its MachineSet, while Cluster API's own controller skips the check", func(ctx SpecContext) {
		check := applyTemplate(ctx, map[string]string{"NODE_UNHEALTHY_TIMEOUT": together.String()})
		before := identities(ctx)
		lost := fixture.WorkerNames(ctx)[0]
		owner := metav1.GetControllerOf(fixture.Machine(ctx, lost)).Name
		resume := pauseTheOwner(ctx)

		silence(lost)

		Eventually(func() cliv1.State { return targetOf(explained(ctx, "machine/"+lost)).State }).Should(Equal(cliv1.StatePending))
		Expect(explained(ctx, "machine/"+lost).Next.Text).To(HaveSuffix("kubemend asks its owner, MachineSet " + owner + ", to remediate it"))
		Eventually(message(ctx, "machine/"+lost)).Should(HavePrefix("UNHEALTHY, REMEDIATION BLOCKED: MachineSet " + owner))
		resume(ctx)
		replaced(ctx, before, lost)
		fixture.AllWell(ctx)
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Eventually(reasons(ctx, check, lost)).Should(ContainElement(mendv1.EventMachineMarkedUnhealthy))
		Eventually(reasons(ctx, check, check.Name)).Should(ContainElement(mendv1.EventRemediationStarted))
		Eventually(func() string { return writers(named(ctx, check.Name))["capi-core"] }).Should(MatchJSON(onlyPaused))
		Eventually(message(ctx, "machine/"+lost)).Should(HavePrefix("REPLACED: "), "its record outlives it")
	}, SpecTimeout(specPatience))
})

var _ = Describe("For an unclaimed check", func() {
	It("claim makes kubemend act, and release returns it to Cluster API", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		check := checked(ctx, "unclaimed")
		mode := func() cliv1.Mode { return explained(ctx, "mhc/"+check.Name).Checks[0].Mode }
		core := func() bool { return conditions.IsFalse(named(ctx, check.Name), clusterv1.PausedCondition) }
		Eventually(core).Should(BeTrue())
		Eventually(mode).Should(Equal(cliv1.ModeObserving))
		Expect(conditions.Has(named(ctx, check.Name), mendv1.TargetsExclusive)).
			To(BeFalse(), "kubemend says nothing on what it only observes")

		claimed := mend(ctx, "claim", "mhc/"+check.Name, "--yes")
		Expect(claimed.code).To(Equal(done), claimed.complaint)
		Eventually(func() bool { return conditions.Has(named(ctx, check.Name), mendv1.TargetsExclusive) }).Should(BeTrue())
		Expect(mode()).To(Equal(cliv1.ModeActing))
		Eventually(core).Should(BeFalse(), "Cluster API core says that it skips the check")

		released := mend(ctx, "release", "mhc/"+check.Name, "--yes")
		Expect(released.code).To(Equal(done), released.complaint)
		Eventually(core).Should(BeTrue())
		Eventually(mode).Should(Equal(cliv1.ModeObserving))
	}, SpecTimeout(specPatience))
})
