package baremetal

import (
	"context"
	"net/http"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// N1, that owner remediation is requested in both conditions, is in the spec of C6.
var _ = Describe("Stricter than with CAPM3, a remediation", func() {
	at("MovingWorkload", kinds[0], "N2: that is deleted in any phase releases host and node", func(ctx context.Context, _ standstill, m *member) {
		Expect(here.Delete(ctx, m.remediation(ctx))).To(Succeed())

		Eventually(m.gone).WithArguments(ctx).Should(BeTrue())
		Expect(m.traces(ctx)).To(BeEmpty())
		m.isUsable(ctx)
	})

	for what, of := range suite.InOrder(map[string]func(*member) client.Object{
		"machine": func(m *member) client.Object { return builders.ControlPlaneMachine(m.environment.cluster, m.name) },
		"Metal3Machine": func(m *member) client.Object {
			return builders.Metal3Machine(builders.ControlPlaneMachine(m.environment.cluster, m.name))
		},
		"host": func(m *member) client.Object { return builders.BareMetalHost(m.environment.namespace, m.name) },
	}) {
		at("MovingWorkload", kinds[1], "N3: whose "+what+" is gone for good ends in any phase, and releases host and node", func(ctx context.Context, _ standstill, m *member) {
			m.host.Mute(-1) // no owner remediation would be requested of a machine that recovered meanwhile
			vanishes(ctx, of(m))

			ended := "Ended" // it has no owner that could be asked to replace it
			if what != "machine" {
				ended = "OwnerRequested"
				Eventually(func() string { return m.says(ctx).Message }).Should(ContainSubstring("cannot be found; waiting for it to come back"))
				m.environment.clock.Step(timeout) // it may be registered anew until then
			}
			m.ends(ctx, ended)
			Eventually(m.traces).WithArguments(ctx).Should(BeEmpty())
			if what == "Metal3Machine" {
				m.ownerIsAsked(ctx)
			}
			if what != "host" {
				m.isUsable(ctx)
			}
			Expect(here.Delete(ctx, m.remediation(ctx))).To(Succeed())
			Expect(m.gone(ctx)).To(BeTrue())
		})
	}

	oneKind(kinds[0], "N4: power-cycles while the workload cluster is unreachable, and does not request owner remediation meanwhile", func(ctx context.Context, s *environment) {
		s.refuse(down)
		s.wanted.down = true
		s.start()
		m := s.worker(ctx, "w")
		m.fails(ctx)
		m.remediate(ctx)
		m.comesTo(ctx, "MovingWorkload")
		Eventually(m.reports(ctx, infrav1.WorkloadMovedCondition)).Should(Equal("False/ClusterUnreachable"))
		s.clock.Step(timeout)
		m.inVain(ctx, 1)
		Eventually(m.reports(ctx, infrav1.NodeHealthyCondition)).Should(Equal("False/ClusterUnreachable"))
		s.clock.Step(timeout)
		m.settles(ctx)
		Expect(m.at(ctx)).To(Equal(memory{"Booting", 1}), "it waits for a person")

		s.refuse(func(faultproxy.Call) int { return 0 })
		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal(cycled(1)))
		Expect(history.when(s.namespace, 0, onNode(outOfService))).To(BeZero())
		Expect(m.bmh(ctx).Annotations).To(BeEmpty(), "the host is not bad")
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	oneKind(kinds[1], "N4: soon powers a control-plane host on again on which the unreachable API server may run", func(ctx context.Context, s *environment) {
		s.start()
		m := s.controlPlane(ctx, "cp")
		m.host.Take(simulator.Times{PowerOff: 3 * time.Second}) // when it is off, the workload cluster is out of reach
		m.fails(ctx)
		m.remediate(ctx)
		Eventually(m.holds).WithArguments(ctx).Should(BeTrue())
		s.refuse(down)
		m.comesTo(ctx, "MovingWorkload")
		Eventually(m.reports(ctx, infrav1.WorkloadMovedCondition)).Should(Equal("False/ClusterUnreachable"))
		s.clock.Step(time.Minute)
		Eventually(m.host.Powered).Should(BeTrue())
		Eventually(m.reports(ctx, infrav1.WorkloadMovedCondition)).Should(Equal("False/ClusterUnreachable"))
		s.refuse(func(faultproxy.Call) int { return 0 })

		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal(cycled(1)))
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	oneKind(kinds[0], "N5: of a machine that never had a node power-cycles, retries and requests owner remediation", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w", func(o *origin) { o.noNode = true })
		m.remediate(ctx)
		m.inVain(ctx, 1)
		m.inVain(ctx, 2)

		m.ends(ctx, "OwnerRequested")
		Expect(m.power()).To(Equal(cycled(2)))
		m.ownerRemediationIsRequested(ctx)
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	bothKinds("N5: succeeds if the node joins after the reboot", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w", func(o *origin) { o.noNode = true })
		m.remediate(ctx)
		m.comesTo(ctx, "Booting")
		m.host.Carry(m.kubelet)
		machine := m.machine(ctx)
		before := machine.DeepCopy()
		machine.Status.NodeRef.Name = m.node()
		Expect(here.Status().Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())

		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal(cycled(1)))
	})

	oneKind(kinds[1], "N6: reports the error of a BMC, retries, and requests owner remediation", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.host.FailPower("no route to the BMC")
		m.fails(ctx)
		m.remediate(ctx)
		for attempt := range 2 {
			m.comesToAttempt(ctx, "PoweringOff", attempt+1)
			Eventually(func() string { return m.says(ctx).Message }).Should(ContainSubstring("power management error: no route to the BMC"))
			s.clock.Step(timeout)
		}

		m.ends(ctx, "OwnerRequested")
		m.ownerRemediationIsRequested(ctx)
		Expect(m.power()).To(BeEmpty())
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	for what, stick := range suite.InOrder(map[string]func(context.Context, *member) string{
		"pod": func(ctx context.Context, m *member) string {
			return "Pod " + m.environment.namespace + "/" + m.pod(ctx).Name
		},
		"volume": func(ctx context.Context, m *member) string { return "VolumeAttachment " + m.volume(ctx).Name },
	}) {
		oneKind(kinds[1], "N7: powers the host on at the attempt's deadline in spite of a "+what+" that does not go, and names it", func(ctx context.Context, s *environment) {
			s.start()
			m := s.worker(ctx, "w")
			name := stick(ctx, m)
			m.fails(ctx)
			m.remediate(ctx)
			m.comesTo(ctx, "MovingWorkload")
			Eventually(func() string { return m.says(ctx).Message }).Should(ContainSubstring(name))
			s.clock.Step(timeout)

			m.ends(ctx, "Succeeded")
			Expect(m.reports(ctx, infrav1.WorkloadMovedCondition)()).To(Equal("False/WorkloadStuck"))
			Expect(m.power()).To(Equal(cycled(1)))
			Expect(m.traces(ctx)).To(BeEmpty())
		})
	}

	oneKind(kinds[0], "N8: reboots a host that must not be powered off once per attempt, and does not fence its node", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w", func(o *origin) { o.host = append(o.host, builders.NeverOff) })
		m.host.Mute(1)
		m.fails(ctx)
		m.remediate(ctx)
		m.comesTo(ctx, "Booting")
		Eventually(m.power).Should(Equal([]simulator.Power{simulator.Reset}))
		Eventually(m.reports(ctx, infrav1.PoweredOffCondition)).Should(Equal("False/CannotBeProven"))
		Eventually(m.reports(ctx, infrav1.WorkloadMovedCondition)).Should(Equal("False/CannotBeProven"))
		s.clock.Step(timeout)

		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal([]simulator.Power{simulator.Reset, simulator.Reset}))
		Expect(history.when(s.namespace, 0, onNode(outOfService))).To(BeZero())
		holdOff := m.holdOff(ctx)
		Expect(history.when(s.namespace, 0, onHost(func(h *bmov1alpha1.BareMetalHost) bool {
			_, heldOff := h.Annotations[holdOff]
			return heldOff
		}))).To(BeZero(), "it would reboot for ever")
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	for what, unmanaged := range suite.InOrder(unmanagedHosts) {
		oneKind(kinds[0], "N9: waits for a host that is "+what+", gives the reason, and resumes afterwards", func(ctx context.Context, s *environment) {
			s.start()
			m := s.worker(ctx, "w")
			unmanaged.begin(ctx, m)
			m.fails(ctx)
			m.remediate(ctx)
			m.comesTo(ctx, "Preparing")
			Eventually(m.reports(ctx, infrav1.PowerOffRequestedCondition)).Should(Equal("False/HostNotReady"))
			Expect(m.says(ctx).Message).To(ContainSubstring(unmanaged.why))
			Expect(m.holds(ctx)).To(BeFalse())
			unmanaged.end(ctx, m)

			m.ends(ctx, "Succeeded")
			Expect(m.power()).To(Equal(cycled(1)))
			Expect(m.traces(ctx)).To(BeEmpty())
		})

		oneKind(kinds[1], "N9: of a host that stays "+what+" asks a person, does not touch the power, and resumes afterwards", func(ctx context.Context, s *environment) {
			s.start()
			m := s.worker(ctx, "w")
			unmanaged.begin(ctx, m)
			m.fails(ctx)
			m.remediate(ctx)
			m.comesToAttempt(ctx, "Preparing", 1)
			for range 3 {
				s.clock.Step(timeout)
				m.settles(ctx)
			}
			Expect(m.at(ctx)).To(Equal(memory{"Preparing", 1}), "that is not the host's fault")
			Eventually(func() string { return m.says(ctx).Message }).Should(ContainSubstring("has not been managed for too long"))
			Expect(m.power()).To(BeEmpty())
			Expect(history.when(s.namespace, 0, onHost(held))).To(BeZero())
			unmanaged.end(ctx, m)

			m.ends(ctx, "Succeeded")
			Expect(m.power()).To(Equal(cycled(1)))
			Expect(m.traces(ctx)).To(BeEmpty())
		})
	}

	for version, clearsAll := range suite.InOrder(map[string]bool{"0.13, which takes all annotations away": true, "0.14, which leaves them": false}) {
		bothKinds("N12: leaves no power annotation to the next owner of a host that BMO "+version+" deprovisions", func(ctx context.Context, s *environment) {
			s.start()
			m := s.worker(ctx, "w", func(o *origin) { o.host = []func(*bmov1alpha1.BareMetalHost){builders.Deployed} })
			m.host.ClearAllReboots(clearsAll)
			m.pod(ctx)
			m.fails(ctx)
			m.remediate(ctx)
			m.comesTo(ctx, "MovingWorkload")
			// So Cluster API and CAPM3 delete a machine.
			m.isLeaving(ctx)
			m.changeHost(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image, h.Spec.Online = nil, false })

			m.ends(ctx, "Ended")
			Eventually(func() bmov1alpha1.ProvisioningState { return m.bmh(ctx).Status.Provisioning.State }).Should(Equal(bmov1alpha1.StateAvailable))
			Eventually(m.traces).WithArguments(ctx).Should(BeEmpty())
			m.changeHost(ctx, func(h *bmov1alpha1.BareMetalHost) {
				builders.Deployed(h)
				builders.ConsumedBy("next")(h)
			})
			Eventually(m.host.Powered).Should(BeTrue())
		})
	}

	bothKinds("N13: removes no taint that it has not set", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		n := m.theNode(ctx)
		before := n.DeepCopy()
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		Expect(here.Patch(ctx, n, client.MergeFrom(before))).To(Succeed())
		m.fails(ctx)
		m.remediate(ctx)

		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal(cycled(1)))
		Expect(outOfService(m.theNode(ctx))).To(BeTrue())
		Expect(history.when(s.namespace, 0, onNode(fenced))).To(BeZero())
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	bothKinds("N14: of one host without disturbance makes at most the stated number of API calls", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.fails(ctx)
		s.begin(0, "")
		m.remediate(ctx)

		m.ends(ctx, "Succeeded")
		// Events, the watch on pods and the probes of the connection are among them.
		Expect(s.plan.Calls()).To(BeNumerically("<=", budget))
	})

	oneKind(kinds[1], "N15: of a machine that recovers before the power-off does not power its host off", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.annotateHost(ctx, bmov1alpha1.PausedAnnotation, "test")
		m.fails(ctx)
		m.remediate(ctx)
		m.comesTo(ctx, "Preparing")
		// A machine that no check has marked unhealthy is rebooted because a user wants it.
		Eventually(m.remediation).WithArguments(ctx).Should(HaveField("ObjectMeta.Annotations",
			HaveKeyWithValue(mendv1.PowerCycleAnnotation, ContainSubstring(`"startedUnhealthy":true`))))
		m.kubelet.Start()

		m.ends(ctx, "Succeeded")
		m.strip(ctx, bmov1alpha1.PausedAnnotation)
		Consistently(m.power).Should(BeEmpty())
		Expect(history.when(s.namespace, 0, onHost(held))).To(BeZero())
		Expect(m.traces(ctx)).To(BeEmpty())
	})
})

// budget is how many calls one remediation may need.
const budget = 60

// down is the answer of a workload cluster that is not there.
func down(faultproxy.Call) int { return http.StatusServiceUnavailable }

// unmanagedHosts are the ways in which BMO does not act on what is asked of a host's power.
var unmanagedHosts = map[string]struct {
	why        string
	begin, end func(context.Context, *member)
}{
	"paused": {
		why: "the host is paused",
		begin: func(ctx context.Context, m *member) {
			m.annotateHost(ctx, bmov1alpha1.PausedAnnotation, "metal3.io/capm3")
		},
		end: func(ctx context.Context, m *member) { m.strip(ctx, bmov1alpha1.PausedAnnotation) },
	},
	"detached": {
		why:   "the host is detached",
		begin: func(ctx context.Context, m *member) { m.annotateHost(ctx, bmov1alpha1.DetachedAnnotation, "") },
		end:   func(ctx context.Context, m *member) { m.strip(ctx, bmov1alpha1.DetachedAnnotation) },
	},
	"in another provisioning state": {
		why: `the host is "preparing"`,
		begin: func(ctx context.Context, m *member) {
			m.host.Pin(bmov1alpha1.StatePreparing)
			Eventually(func() bmov1alpha1.ProvisioningState { return m.bmh(ctx).Status.Provisioning.State }).Should(Equal(bmov1alpha1.StatePreparing))
		},
		end: func(_ context.Context, m *member) { m.host.Pin(bmov1alpha1.StateExternallyProvisioned) },
	},
}

// isUsable checks that nothing keeps the host off, once no annotation keeps it off.
func (m *member) isUsable(ctx context.Context) {
	GinkgoHelper()
	m.host.Die(false)
	m.host.FailPower("")
	Eventually(m.host.Powered).Should(BeTrue())
	Expect(m.holds(ctx)).To(BeFalse())
}

// isLeaving deletes the machine, which a finalizer keeps.
func (m *member) isLeaving(ctx context.Context) {
	GinkgoHelper()
	machine := m.machine(ctx)
	before := machine.DeepCopy()
	machine.Finalizers = []string{"test.kubemend.io/keep"}
	Expect(here.Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
	Expect(here.Delete(ctx, machine)).To(Succeed())
}
