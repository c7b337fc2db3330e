package capi

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A machine that a KubeadmControlPlane made in place of another one, and that fails as well", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) {
		shared.remediation(ctx, `null`)
		shared.leaveAsFound(ctx)
	})

	It("is replaced after spec.remediation allows it, and explain says not before when", func(ctx SpecContext) {
		shared.check(ctx, controlPlane)
		before, lost := shared.identities(ctx), shared.names(ctx, controlPlane)[0]
		shared.turn(ctx, lost, corev1.ConditionFalse)
		shared.replaced(ctx, before, lost)
		again, since := shared.replacementOf(ctx, lost)
		before = shared.identities(ctx)

		By("having the replacement fail within the retry period")
		shared.remediation(ctx, `{"retryPeriodSeconds":900}`)
		shared.turn(ctx, again, corev1.ConditionFalse)
		Eventually(shared.said(ctx, again, clusterv1.MachineOwnerRemediatedCondition)).Should(
			Equal("False/" + controlplanev1.KubeadmControlPlaneMachineRemediationDeferredReason))
		e := explained(ctx, again)
		Expect(e.Verdict).To(HavePrefix("It is unhealthy, and its owner has put off replacing it: "))
		Expect(e.Next.NotBefore).To(BeTemporally("==", since.Add(15*time.Minute)))
		Expect(e.Next.At).To(BeZero())
		Expect(e.Next.Text).To(ContainSubstring("waits 15m0s between retries"))

		By("allowing no retry at all")
		shared.remediation(ctx, `{"maxRetry":0,"retryPeriodSeconds":null}`)
		Eventually(shared.said(ctx, again, clusterv1.MachineOwnerRemediatedCondition)).Should(Equal(refused))
		e = explained(ctx, again)
		Expect(e.Verdict).To(HavePrefix("It is unhealthy, and has to be remediated by hand: "))
		Expect(e.Next.NotBefore).To(BeTemporally("==", since.Add(time.Hour)))
		Expect(e.Next.Manual).To(BeTrue())
		Expect(e.Next.Text).To(ContainSubstring("has used 0 of 0 retries"))
		Expect(shared.identities(ctx)).To(Equal(before))

		By("allowing retries")
		shared.remediation(ctx, `null`)
		shared.replaced(ctx, before, again)
	}, SpecTimeout(specPatience))
})

// remediation sets spec.remediation of the control plane, and nothing else of it. The topology leaves alone what is not in the class.
func (env *environment) remediation(ctx context.Context, is string) {
	GinkgoHelper()
	Expect(here.Patch(ctx, env.owner(ctx), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"remediation":`+is+`}}`)))).To(Succeed())
}

// replacementOf is the machine that was made in place of another one, and since when that is gone, as the control plane has noted on it.
func (env *environment) replacementOf(ctx context.Context, machine string) (string, time.Time) {
	GinkgoHelper()
	var says struct {
		Machine   string    `json:"machine"`
		Timestamp time.Time `json:"timestamp"`
	}
	for name, m := range env.machines(ctx) {
		if value, has := m.Annotations[controlplanev1.RemediationForAnnotation]; has {
			Expect(json.Unmarshal([]byte(value), &says)).To(Succeed())
			if says.Machine == machine {
				return name, says.Timestamp
			}
		}
	}
	Fail("no machine was made in place of " + machine)
	return "", time.Time{}
}
