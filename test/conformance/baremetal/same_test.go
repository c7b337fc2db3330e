package baremetal

import (
	"context"
	"net/http"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// holdOff is the annotation by which a remediation keeps its host powered off.
func (m *member) holdOff(ctx context.Context) string {
	GinkgoHelper()
	return infrav1.PowerOffAnnotationPrefix + string(m.remediation(ctx).GetUID())
}

// inVain lets an attempt that has switched its host on run out of time.
func (m *member) inVain(ctx context.Context, attempt int) {
	GinkgoHelper()
	m.comesToAttempt(ctx, "Booting", attempt)
	m.environment.clock.Step(timeout)
}

// ownerRemediationIsRequested checks that no version of CAPM3 will put a machine on the host, and that owner remediation is requested.
func (m *member) ownerRemediationIsRequested(ctx context.Context) {
	GinkgoHelper()
	Expect(m.bmh(ctx).Annotations).To(And(
		HaveKeyWithValue("capm3.metal3.io/unhealthy", "capm3/UnhealthyNode"), HaveKeyWithValue("capi.metal3.io/unhealthy", "capm3/UnhealthyNode")))
	m.ownerIsAsked(ctx)
}

func (m *member) ownerIsAsked(ctx context.Context) {
	GinkgoHelper()
	machine := m.machine(ctx)
	old := v1beta1conditions.Get(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
	Expect(old).NotTo(BeNil())
	Expect([]any{old.Status, old.Severity, old.Reason}).To(Equal([]any{corev1.ConditionFalse, clusterv1.ConditionSeverityWarning, "WaitingForRemediation"}))
	now := conditions.Get(machine, clusterv1.MachineOwnerRemediatedCondition)
	Expect(now).NotTo(BeNil())
	Expect([]any{now.Status, now.Reason}).To(Equal([]any{metav1.ConditionFalse, "WaitingForRemediation"}))
}

var _ = Describe("As with CAPM3, a remediation", func() {
	bothKinds("C1: powers the host off, fences the node, waits until the workload has moved, and powers the host on, in this order", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		pod, volume := m.pod(ctx), m.volume(ctx)
		m.fails(ctx)
		m.remediate(ctx)

		m.comesTo(ctx, "MovingWorkload")
		Eventually(func() string { return m.says(ctx).Message }).Should(ContainSubstring("Pod " + s.namespace + "/w"))
		Expect(m.bmh(ctx).Annotations).To(HaveKeyWithValue(m.holdOff(ctx), `{"mode":"hard","force":false}`))
		Expect(m.bmh(ctx).Spec.Online).To(BeTrue(), "that is its owner's to say")
		Expect(m.theNode(ctx).Spec.Taints).To(ContainElement(And(
			HaveField("Key", "node.kubernetes.io/out-of-service"), HaveField("Value", "nodeshutdown"),
			HaveField("Effect", corev1.TaintEffectNoExecute), HaveField("TimeAdded", BeNil()))))
		Expect(m.says(ctx).Phase).To(Equal(infrav1.RemediationPhase("Running")))

		Expect(here.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(func() string { return m.says(ctx).Message }).Should(ContainSubstring("VolumeAttachment " + m.node()))
		Expect(m.host.Powered()).To(BeFalse())
		Expect(here.Delete(ctx, volume)).To(Succeed())

		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal(cycled(1)))
		Expect(m.traces(ctx)).To(BeEmpty())
		Expect(m.says(ctx).Phase).To(Equal(infrav1.RemediationPhase("Waiting")), "until the check that made it deletes it")
		Expect(m.says(ctx).Retries).To(BeZero())
		s.wentInOrder()
		Expect(history.when(s.namespace, 0, func(o client.Object) bool {
			_, blocked := o.GetAnnotations()[blockMove]
			return blocked
		})).NotTo(BeZero(), "clusterctl must not move it while it keeps its host powered off")
		Expect(here.Delete(ctx, m.remediation(ctx))).To(Succeed())
		Expect(m.gone(ctx)).To(BeTrue())
	})

	bothKinds("C2: deletes the node where the taint is not available, and restores labels and annotations on the new one", func(ctx context.Context, s *environment) {
		s.wanted.fencing = fence.Delete
		s.start()
		m := s.worker(ctx, "w")
		node := m.theNode(ctx)
		before := node.DeepCopy()
		node.Labels["example.org/rack"], node.Annotations["example.org/note"] = "7", "keep"
		Expect(here.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
		m.fails(ctx)
		m.remediate(ctx)

		m.ends(ctx, "Succeeded")
		is := m.theNode(ctx)
		Expect(is.UID).NotTo(Equal(node.UID))
		Expect(is.Labels).To(HaveKeyWithValue("example.org/rack", "7"))
		Expect(is.Annotations).To(HaveKeyWithValue("example.org/note", "keep"))
		Expect(m.power()).To(Equal(cycled(1)))
		Expect(m.traces(ctx)).To(BeEmpty())
		backup := history.when(s.namespace, 0, func(o client.Object) bool {
			_, has := o.GetAnnotations()[infrav1.NodeLabelsBackupAnnotation]
			return has
		})
		Expect(backup).To(And(BeNumerically(">", 0), BeNumerically("<", s.deletionOf(m))), "the backup comes first")
		Expect(history.when(s.namespace, 0, onNode(outOfService))).To(BeZero())
	})

	for name, add := range suite.InOrder(map[string]func(*environment, context.Context, string, ...func(*origin)) *member{
		"C3: of a worker":                (*environment).worker,
		"C4: of a control-plane machine": (*environment).controlPlane,
	}) {
		bothKinds(name+" is made by a MachineHealthCheck when the node falls silent, and deleted when it is back", func(ctx context.Context, s *environment) {
			s.wanted.checks = true
			s.start()
			m := add(s, ctx, "m")
			strategy := infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 300}
			s.create(ctx, s.template(metav1.ObjectMeta{Namespace: s.namespace, Name: "reboot"}, strategy))
			s.create(ctx, builders.MachineHealthCheck(s.cluster, "check", func(c *clusterv1.MachineHealthCheck) {
				c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": m.machine(ctx).Labels["pool"]}}
			}, builders.RemediatedBy(s.GroupVersion().String(), s.Kind.Kind+"Template", "reboot")))

			m.fails(ctx)

			Eventually(m.power).Should(Equal(cycled(1)))
			Eventually(m.ready).WithArguments(ctx).Should(Equal(corev1.ConditionTrue))
			Eventually(m.gone).WithArguments(ctx).Should(BeTrue())
			Expect(m.power()).To(Equal(cycled(1)))
			Expect(m.traces(ctx)).To(BeEmpty())
		})
	}

	oneKind(kinds[0], "C5: retries when the node is not back in time", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.host.Mute(1)
		m.fails(ctx)
		m.remediate(ctx)
		m.inVain(ctx, 1)

		m.ends(ctx, "Succeeded")
		Expect(m.says(ctx).Retries).To(Equal(1))
		Expect(m.power()).To(Equal(cycled(2)))
		Expect(m.traces(ctx)).To(BeEmpty())
		Expect(m.bmh(ctx).Annotations).To(BeEmpty(), "the host is not bad")
	})

	bothKinds("C6, N1: marks the host and requests owner remediation in both conditions when no attempt is left", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.host.Mute(-1)
		m.fails(ctx)
		m.calledUnhealthy(ctx)
		Expect(collections.IsUnhealthyAndOwnerRemediated(m.machine(ctx))).To(BeFalse())
		m.remediate(ctx)
		m.inVain(ctx, 1)
		m.inVain(ctx, 2)

		m.ends(ctx, "OwnerRequested")
		Expect(m.says(ctx).Phase).To(Equal(infrav1.RemediationPhase("Deleting machine")))
		Expect(m.says(ctx).Retries).To(Equal(1))
		m.ownerRemediationIsRequested(ctx)
		Expect(collections.IsUnhealthyAndOwnerRemediated(m.machine(ctx))).To(BeTrue(), "by this Cluster API chooses what it replaces")
		Expect(m.power()).To(Equal(cycled(2)))
		Expect(m.host.Powered()).To(BeTrue())
		Expect(m.traces(ctx)).To(BeEmpty())
		marked := history.when(s.namespace, 0, onHost(func(h *bmov1alpha1.BareMetalHost) bool { return h.Annotations[infrav1.UnhealthyAnnotation] != "" }))
		asked := history.when(s.namespace, 0, func(o client.Object) bool {
			m, is := o.(*clusterv1.Machine)
			return is && conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition)
		})
		Expect(marked).To(And(BeNumerically(">", 0), BeNumerically("<", asked)), "its replacement must not be put on this host")
		Expect(here.Delete(ctx, m.remediation(ctx))).To(Succeed())
		Expect(m.gone(ctx)).To(BeTrue())
	})

	bothKinds("C7: of a host that its owner has powered off fails, and releases it", func(ctx context.Context, s *environment) {
		s.start()
		before, meanwhile := s.worker(ctx, "a"), s.worker(ctx, "b")
		meanwhile.pod(ctx)
		switchOff := func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = false }
		before.changeHost(ctx, switchOff)
		Eventually(before.host.Powered).Should(BeFalse())
		before.fails(ctx)
		before.remediate(ctx)
		meanwhile.fails(ctx)
		meanwhile.remediate(ctx)

		before.ends(ctx, "Failed")
		Expect(before.says(ctx).Phase).To(Equal(infrav1.RemediationPhase("Failed")))
		meanwhile.comesTo(ctx, "MovingWorkload")
		meanwhile.changeHost(ctx, switchOff)
		meanwhile.ends(ctx, "Failed")
		Expect(meanwhile.says(ctx).Phase).To(Equal(infrav1.RemediationPhase("Failed")))
		for _, m := range []*member{before, meanwhile} {
			Expect(m.traces(ctx)).To(BeEmpty())
			Expect(m.power()).To(Equal([]simulator.Power{simulator.Off}))
			m.changeHost(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = true })
			Eventually(m.host.Powered).Should(BeTrue(), "nothing keeps it off")
		}
	})

	bothKinds("C8: that may not read nodes power-cycles the host without fencing, reports that, and can be deleted", func(ctx context.Context, s *environment) {
		s.refuse(func(c faultproxy.Call) int {
			if c.Resource == "nodes" {
				return http.StatusForbidden
			}
			return 0
		})
		s.start()
		m := s.worker(ctx, "w")
		m.fails(ctx)
		m.remediate(ctx)
		m.comesTo(ctx, "MovingWorkload")
		Eventually(func() string { return m.says(ctx).Message }).Should(ContainSubstring("the test lets this fail"))
		s.clock.Step(timeout)

		m.comesTo(ctx, "Booting")
		Expect(m.power()).To(Equal(cycled(1)))
		Eventually(m.reports(ctx, infrav1.WorkloadMovedCondition)).Should(Equal("False/WorkloadStuck"))
		Expect(history.when(s.namespace, 0, onNode(outOfService))).To(BeZero())
		Expect(here.Delete(ctx, m.remediation(ctx))).To(Succeed())
		m.comesTo(ctx, "Ended")
		s.clock.Step(timeout) // what may have been done to a node that cannot be seen is waited for
		Eventually(m.gone).WithArguments(ctx).Should(BeTrue())
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	bothKinds("C11: ends with a host that no other machine uses until a person removes the mark", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.host.Mute(-1)
		m.fails(ctx)
		m.remediate(ctx)
		m.inVain(ctx, 1)
		m.inVain(ctx, 2)
		m.ends(ctx, "OwnerRequested")
		vanishes(ctx, builders.Metal3Machine(m.machine(ctx))) // its owner replaces it
		vanishes(ctx, m.machine(ctx))
		provider, err := simulator.NewInfrastructure(suite.Unhurried(plane.Config()), simulator.InfrastructureOptions{Namespace: s.namespace, Hosts: hosts})
		Expect(err).NotTo(HaveOccurred())
		Expect(provider.Serve(client.ObjectKeyFromObject(s.cluster), plane.Config())).To(Succeed())
		playing, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- provider.Start(playing) }()
		defer func() {
			stop()
			Expect(<-ended).To(Succeed())
		}()

		m.host.Pin(bmov1alpha1.StateAvailable)
		m.changeHost(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef, h.Spec.Image = nil, nil })
		Eventually(func() bmov1alpha1.ProvisioningState { return m.bmh(ctx).Status.Provisioning.State }).Should(Equal(bmov1alpha1.StateAvailable))
		next := builders.ControlPlaneMachine(s.cluster, "next", func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.MachineControlPlaneLabel) })
		s.create(ctx, next)
		between := builders.Metal3Machine(next)
		between.SetOwnerReferences(ownedBy(next))
		s.create(ctx, between)
		Consistently(func() any { return m.bmh(ctx).Spec.ConsumerRef }).Should(BeNil())

		m.changeHost(ctx, func(h *bmov1alpha1.BareMetalHost) {
			delete(h.Annotations, infrav1.UnhealthyAnnotation)
			delete(h.Annotations, infrav1.LegacyUnhealthyAnnotation)
		})
		Eventually(func() any { return m.bmh(ctx).Spec.ConsumerRef }).ShouldNot(BeNil())
	})

	bothKinds("C12: leaves power annotations of other clients on the host", func(ctx context.Context, s *environment) {
		const theirs = "reboot.metal3.io/maintenance"
		s.start()
		m := s.worker(ctx, "w")
		pod := m.pod(ctx)
		m.fails(ctx)
		m.remediate(ctx)
		m.comesTo(ctx, "MovingWorkload")
		m.annotateHost(ctx, theirs, `{"mode":"soft"}`)
		Expect(here.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())

		m.comesTo(ctx, "PoweringOn")
		Eventually(func() map[string]string { return m.bmh(ctx).Annotations }).Should(Equal(map[string]string{theirs: `{"mode":"soft"}`}))
		Consistently(m.host.Powered).Should(BeFalse())
		m.strip(ctx, theirs)
		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal(cycled(1)))
		Expect(m.traces(ctx)).To(BeEmpty())
	})
})

// calledUnhealthy is what a MachineHealthCheck writes on the machine.
func (m *member) calledUnhealthy(ctx context.Context) {
	GinkgoHelper()
	machine := m.machine(ctx)
	before := machine.DeepCopy()
	conditions.Set(machine, metav1.Condition{
		Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "Test", LastTransitionTime: metav1.NewTime(time.Now()),
	})
	Expect(here.Status().Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
}

// deletionOf is the revision at which the node of a machine was deleted.
func (s *environment) deletionOf(m *member) uint64 {
	for _, o := range history.of(s.namespace) {
		if _, is := o.object.(*corev1.Node); is && o.gone && o.object.GetName() == m.node() {
			return o.revision
		}
	}
	return 0
}

// wentInOrder checks what was before what, by the revisions at which the API server took it.
func (s *environment) wentInOrder() {
	GinkgoHelper()
	at := uint64(0)
	for _, next := range []struct {
		what string
		like func(client.Object) bool
	}{
		{"the finalizer", func(o client.Object) bool {
			return len(o.GetFinalizers()) == 1 && o.GetAnnotations()[mendv1.PowerCycleAnnotation] != ""
		}},
		{"the host is asked", onHost(held)},
		{"the host is off", onHost(func(h *bmov1alpha1.BareMetalHost) bool { return !h.Status.PoweredOn })},
		{"the node is fenced", onNode(fenced)},
		{"the host is released", onHost(func(h *bmov1alpha1.BareMetalHost) bool { return !held(h) })},
		{"the host is on", onHost(func(h *bmov1alpha1.BareMetalHost) bool { return h.Status.PoweredOn })},
		{"the node is free", onNode(func(n *corev1.Node) bool { return !outOfService(n) })},
		{"the finalizer goes", func(o client.Object) bool {
			return o.GetAnnotations()[mendv1.PowerCycleAnnotation] != "" && len(o.GetFinalizers()) == 0
		}},
	} {
		since := at
		Eventually(func() uint64 {
			at = history.when(s.namespace, since, next.like)
			return at
		}).Should(BeNumerically(">", since), next.what)
	}
}
