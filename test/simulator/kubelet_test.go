package simulator_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

// host is one kubelet, and a view of its node.
type host struct {
	*WithT
	*simulator.Kubelet
	ctx context.Context
	c   client.Client
}

func newHost(t *testing.T, plane *rig.ControlPlane, name string) *host {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	c := clientOf(t, plane)
	h := &host{
		WithT: g, ctx: t.Context(), c: c,
		Kubelet: simulator.NewKubelet(c, simulator.KubeletOptions{Node: name, ProviderID: "metal3://" + name}),
	}
	t.Cleanup(h.Stop)
	h.Start()
	h.Eventually(func(g Gomega) { h.lease(g) }).Should(Succeed()) // it comes after the Node
	return h
}

func (h *host) node(g Gomega) *corev1.Node {
	node := &corev1.Node{}
	g.Expect(h.c.Get(h.ctx, client.ObjectKey{Name: h.Node()}, node)).To(Succeed())
	return node
}

func (h *host) condition(g Gomega, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for _, condition := range h.node(g).Status.Conditions {
		if condition.Type == kind {
			return &condition
		}
	}
	return nil
}

func (h *host) becomes(kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	h.Eventually(func(g Gomega) {
		condition := h.condition(g, kind)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Status).To(Equal(status))
	}).Should(Succeed())
}

func (h *host) lease(g Gomega) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	g.Expect(h.c.Get(h.ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: h.Node()}, lease)).To(Succeed())
	return lease
}

// renews waits until the lease has been renewed a number of times: so long the kubelet has had to do anything else.
func (h *host) renews(times int) {
	last := h.lease(h).Spec.RenewTime.Time
	for range times {
		h.Eventually(func(g Gomega) {
			now := h.lease(g).Spec.RenewTime.Time
			g.Expect(now).To(BeTemporally(">", last))
			last = now
		}).Should(Succeed())
	}
}

func TestAKubeletReportsTheGivenConditions(t *testing.T) {
	t.Parallel()
	h := newHost(t, workload, "told")
	before := h.condition(h, corev1.NodeReady)
	h.Report("KernelDeadlock", corev1.ConditionTrue, "DockerHung")
	h.becomes("KernelDeadlock", corev1.ConditionTrue)
	h.Expect(h.condition(h, "KernelDeadlock").Reason).To(Equal("DockerHung"))
	h.Expect(h.condition(h, corev1.NodeReady).LastTransitionTime).To(Equal(before.LastTransitionTime), "it did not change")

	h.Report(corev1.NodeReady, corev1.ConditionFalse, "ContainerRuntimeDown")
	h.becomes(corev1.NodeReady, corev1.ConditionFalse)
	h.Forget(corev1.NodePIDPressure)
	h.Eventually(func(g Gomega) { g.Expect(h.condition(g, corev1.NodePIDPressure)).To(BeNil()) }).Should(Succeed())

	h.Recover()
	h.becomes(corev1.NodeReady, corev1.ConditionTrue)
	h.becomes(corev1.NodePIDPressure, corev1.ConditionFalse)
	h.Eventually(func(g Gomega) { g.Expect(h.condition(g, "KernelDeadlock")).To(BeNil()) }).Should(Succeed())
}

func TestASlowKubeletIsUnknownUntilItPostsAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, workload, "late")
	h.Slow(time.Hour)
	h.becomes(corev1.NodeReady, corev1.ConditionUnknown)
	h.Expect(h.Running()).To(BeTrue())
	h.Slow(0)
	h.becomes(corev1.NodeReady, corev1.ConditionTrue)
}

func TestANodeThatIsDeletedComesBackWithTheNextBoot(t *testing.T) {
	t.Parallel()
	h := newHost(t, workload, "deleted")
	first := h.node(h)
	h.Expect(first.Spec.ProviderID).To(Equal("metal3://deleted"))
	h.Expect(h.c.Delete(h.ctx, first)).To(Succeed())
	h.renews(3)
	h.Expect(apierrors.IsNotFound(h.c.Get(h.ctx, client.ObjectKey{Name: "deleted"}, first))).To(BeTrue())

	h.Stop()
	h.Expect(h.Running()).To(BeFalse())
	h.Start()
	h.Eventually(func(g Gomega) {
		again := h.node(g)
		g.Expect(again.UID).NotTo(Equal(first.UID))
		g.Expect(again.Status.NodeInfo.BootID).NotTo(Equal(first.Status.NodeInfo.BootID))
	}).Should(Succeed())
}

func TestARetiredKubeletStaysAway(t *testing.T) {
	t.Parallel()
	h := newHost(t, workload, "retired")
	h.Retire()
	renewed := h.lease(h).Spec.RenewTime
	h.Start()
	h.Expect(h.Running()).To(BeFalse())
	newHost(t, workload, "witness").renews(2)
	h.Expect(h.lease(h).Spec.RenewTime).To(Equal(renewed))
}

func TestASteadyNodeIsNotWritten(t *testing.T) {
	t.Parallel()
	h := newHost(t, workload, "steady")
	// kube-controller-manager takes the taint off that every new node has.
	h.Eventually(func(g Gomega) { g.Expect(h.node(g).Spec.Taints).To(BeEmpty()) }).Should(Succeed())
	h.renews(1)
	before := h.node(h)
	h.renews(3)
	h.Expect(h.node(h).ResourceVersion).To(Equal(before.ResourceVersion))
}

func TestANodeOutlivesItsAPIServer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	fragile, err := theRig.Workload(t.Context(), "fragile", rig.WorkloadOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	h := newHost(t, fragile, "survivor")
	g.Expect(fragile.StopAPIServer(t.Context())).To(Succeed())
	g.Expect(h.c.Get(h.ctx, client.ObjectKey{Name: "survivor"}, &corev1.Node{})).NotTo(Succeed())
	g.Expect(fragile.StartAPIServer(t.Context())).To(Succeed())
	h.renews(2)
	h.Stop()
	// Only a kube-controller-manager that has lived through it as well can say this.
	h.becomes(corev1.NodeReady, corev1.ConditionUnknown)
}
