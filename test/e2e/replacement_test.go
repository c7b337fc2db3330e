package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// onlyPaused are the managed fields of a client that has written nothing but the condition Paused.
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
