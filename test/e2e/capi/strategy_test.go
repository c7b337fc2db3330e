package capi

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/suite"
)

const refused = "False/" + controlplanev1.KubeadmControlPlaneMachineCannotBeRemediatedReason

// What the documentation of Cluster API says of the rules of control planes (seed 004), with what kubemend says meanwhile.
var _ = Describe("A KubeadmControlPlane that was asked to replace a machine", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("replaces no machine if the others could not do without it, and explain says so", func(ctx SpecContext) {
		shared.check(ctx, controlPlane)
		before, all := shared.identities(ctx), shared.names(ctx, controlPlane)
		for _, name := range all[1:] {
			shared.turnAPIServer(ctx, name, corev1.ConditionFalse)
			DeferCleanup(func(ctx SpecContext) { shared.turnAPIServer(ctx, name, corev1.ConditionTrue) })
			shared.seenByOwner(ctx, name, "False/")
		}

		shared.turn(ctx, all[0], corev1.ConditionFalse)

		Eventually(shared.said(ctx, all[0], clusterv1.MachineOwnerRemediatedCondition)).Should(Equal(refused))
		e := shared.explained(ctx, all[0])
		Expect(e.Message).To(HavePrefix("UNHEALTHY, NOT REMEDIATED: CannotBeRemediated "))
		Expect(e.Checks[0].Targets[0].Message).To(ContainSubstring("Kubernetes control plane components or in etcd quorum loss"))
		Expect(shared.identities(ctx)).To(Equal(before))

		By("having the others recover")
		for _, name := range all[1:] {
			shared.turnAPIServer(ctx, name, corev1.ConditionTrue)
			shared.seenByOwner(ctx, name, "True/")
		}
		shared.replaced(ctx, before, all[0])
	}, SpecTimeout(specPatience))
})

// seenByOwner waits until the condition that the owner of a control-plane machine keeps of its API server has this prefix.
func (env *environment) seenByOwner(ctx context.Context, machine, prefix string) {
	GinkgoHelper()
	Eventually(func() string {
		env.nudge(ctx)
		return env.said(ctx, machine, controlplanev1.KubeadmControlPlaneMachineAPIServerPodHealthyCondition)()
	}).WithPolling(2 * time.Second).Should(HavePrefix(prefix))
}

// nudge has the controller of the KubeadmControlPlane reconcile it: it watches neither Pods nor the clock.
func (env *environment) nudge(ctx context.Context) {
	GinkgoHelper()
	suite.Annotate(ctx, here, env.owner(ctx), "test/nudged", new(time.Now().Format(time.RFC3339Nano)))
}

// turnAPIServer has the pod of the API server on a machine report Ready. It is written whole: the simulation cannot read a Pod any more that was patched.
func (env *environment) turnAPIServer(ctx context.Context, machine string, status corev1.ConditionStatus) {
	GinkgoHelper()
	pod := &corev1.Pod{}
	err := env.there.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-" + machine}, pod)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return // with the machine
	}
	Expect(err).NotTo(HaveOccurred())
	ready := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	Expect(ready).NotTo(BeNumerically("<", 0))
	pod.Status.Conditions[ready].Status = status
	Expect(env.there.Update(ctx, pod)).To(Succeed())
}
