package capi

import (
	"context"
	"encoding/json"
	"fmt"
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

	It("is replaced after retryPeriod, not after maxRetry and again after minHealthyPeriod, and explain says not before when", func(ctx SpecContext) {
		shared.check(ctx, controlPlane)
		shared.remediation(ctx, `{"minHealthyPeriodSeconds":1}`) // so that this is no retry, also where another spec has had the machine made
		second := shared.loses(ctx, shared.names(ctx, controlPlane)[0])

		By("having the replacement fail within the retry period")
		begun := shared.madeSince(ctx, second)
		period := time.Since(begun).Truncate(time.Second) + patience + 30*time.Second
		shared.remediation(ctx, fmt.Sprintf(`{"maxRetry":1,"retryPeriodSeconds":%d,"minHealthyPeriodSeconds":3600}`, period/time.Second))
		before := shared.identities(ctx)
		shared.turn(ctx, second, corev1.ConditionFalse)
		Eventually(shared.said(ctx, second, clusterv1.MachineOwnerRemediatedCondition)).Should(Equal(deferred))
		e := shared.explained(ctx, second)
		Expect(e.Message).To(HavePrefix("UNHEALTHY, PUT OFF BY ITS OWNER: RemediationDeferred "))
		Expect(e.Next.NotBefore.Time).To(BeTemporally("==", begun.Add(period)))
		Expect(e.Next.Time).To(BeNil())
		Expect(e.Next.Message).To(ContainSubstring("waits " + period.String() + " between retries"))

		By("waiting for the end of that period: it is replaced for the first time that is a retry")
		Eventually(func() string {
			shared.nudge(ctx)
			return shared.said(ctx, second, clusterv1.MachineOwnerRemediatedCondition)()
		}).WithPolling(time.Second).ShouldNot(Equal(deferred))
		shared.replaced(ctx, before, second)
		third := shared.replacementOf(ctx, second)
		Expect(shared.madeSince(ctx, third)).To(BeTemporally(">=", e.Next.NotBefore.Time))

		By("having that one fail: there was one retry")
		shared.remediation(ctx, `{"maxRetry":1,"retryPeriodSeconds":null,"minHealthyPeriodSeconds":3600}`)
		before = shared.identities(ctx)
		shared.turn(ctx, third, corev1.ConditionFalse)
		Eventually(shared.said(ctx, third, clusterv1.MachineOwnerRemediatedCondition)).Should(Equal(refused))
		e = shared.explained(ctx, third)
		Expect(e.Message).To(HavePrefix("UNHEALTHY, NOT REMEDIATED: CannotBeRemediated "))
		Expect(e.Next.NotBefore.Time).To(BeTemporally("==", shared.madeSince(ctx, third).Add(time.Hour)))
		Expect(e.Next.Manual).To(BeTrue())
		Expect(e.Next.Message).To(ContainSubstring("has used 1 of 1 retries"))
		Expect(shared.identities(ctx)).To(Equal(before))

		By("ending minHealthyPeriod: to replace it is no retry any more")
		shared.remediation(ctx, `{"maxRetry":1,"minHealthyPeriodSeconds":1}`)
		shared.replaced(ctx, before, third)
	}, SpecTimeout(specPatience))
})

// remediation sets spec.remediation of the control plane, and nothing else of it. The topology leaves alone what is not in the class.
func (env *environment) remediation(ctx context.Context, is string) {
	GinkgoHelper()
	Expect(here.Patch(ctx, env.owner(ctx), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"remediation":`+is+`}}`)))).To(Succeed())
}

// loses has a machine of the control plane replaced, and returns the replacement.
func (env *environment) loses(ctx context.Context, lost string) string {
	GinkgoHelper()
	before := env.identities(ctx)
	env.turn(ctx, lost, corev1.ConditionFalse)
	env.replaced(ctx, before, lost)
	return env.replacementOf(ctx, lost)
}

// replacement is what the KubeadmControlPlane has noted on a machine that it made in place of another one.
type replacement struct {
	// Of is the name of the other one, Since when that was deleted.
	Of    string    `json:"machine"`
	Since time.Time `json:"timestamp"`
}

func replacementOn(m *clusterv1.Machine) (is replacement) {
	GinkgoHelper()
	if value, has := m.Annotations[controlplanev1.RemediationForAnnotation]; has {
		Expect(json.Unmarshal([]byte(value), &is)).To(Succeed())
	}
	return is
}

// replacementOf is the machine that was made in place of another one.
func (env *environment) replacementOf(ctx context.Context, machine string) string {
	GinkgoHelper()
	for name, m := range env.machines(ctx) {
		if replacementOn(m).Of == machine {
			return name
		}
	}
	Fail("no machine was made in place of " + machine)
	return ""
}

// madeSince is when the machine was deleted that this one was made in place of.
func (env *environment) madeSince(ctx context.Context, machine string) time.Time {
	GinkgoHelper()
	return replacementOn(env.machines(ctx)[machine]).Since
}
