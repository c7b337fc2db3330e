package baremetal

import (
	"context"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// What is unsafe at any moment of any spec is found by chronicle.faults when its environment ends. Here are the situations that invite it.
var _ = Describe("Safety", func() {
	bothKinds("of control-plane hosts that fail together one is powered off at a time, and the others report for which one they wait", func(ctx context.Context, s *environment) {
		s.start()
		var all []*member
		for _, name := range []string{"a", "b", "c"} {
			m := s.controlPlane(ctx, name)
			m.host.Take(simulator.Times{PowerOff: 300 * time.Millisecond})
			m.fails(ctx)
			all = append(all, m)
		}
		of := []kind{s.kind, s.kind, kinds[0], kinds[1]} // the third is remediated by the other kind: that has to be seen as well
		if of[2].Kind.Kind == s.Kind.Kind {
			of[2] = of[3]
		}
		for i, m := range all {
			m.remediateBy(ctx, of[i])
		}
		waiting, over := 0, 0
		look := func() {
			waiting, over = 0, 0
			for i, m := range all {
				switch rem := m.remediationBy(ctx, of[i]); memoryOf(rem).State {
				case "Pending", "Preparing":
					if text := builders.ReportOf(rem).Message; strings.Contains(text, "Waiting in its queue (") {
						waiting++
					}
				case "Succeeded":
					if len(rem.GetFinalizers()) == 0 { // with the last one goes the last trace
						over++
					}
				}
			}
		}
		Eventually(func() int { look(); return waiting }).Should(Equal(2))
		Eventually(func() int {
			if look(); waiting+over == len(all) {
				s.clock.Step(5 * time.Second) // remediations in the queue are reconciled again after as long as caches may lag
			}
			return over
		}).Should(Equal(len(all)))

		histories := make([]simulator.History, 0, len(all))
		for _, m := range all {
			Expect(m.power()).To(Equal(cycled(1)))
			Expect(m.traces(ctx)).To(BeEmpty())
			histories = append(histories, m.host.History())
		}
		Expect(simulator.MostOff(histories...)).To(Equal(1))
	})

	bothKinds("W23: a host whose consumer is another machine is not touched", func(ctx context.Context, s *environment) {
		s.start()
		m, other := s.worker(ctx, "w"), s.worker(ctx, "other")
		m.changeHost(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef.Name = other.name })
		m.fails(ctx)
		m.remediate(ctx)
		m.comesTo(ctx, "Preparing")
		Eventually(m.reports(ctx, infrav1.PowerOffRequestedCondition)).Should(Equal("False/HostMismatch"))
		Expect(m.says(ctx).Message).To(ContainSubstring("names Metal3Machine " + s.namespace + "/other, expected Metal3Machine " + s.namespace + "/w"))
		s.clock.Step(timeout)

		m.ends(ctx, "Failed")
		Expect(slices.Concat(m.power(), other.power())).To(BeEmpty())
		Expect(history.when(s.namespace, 0, onHost(func(h *bmov1alpha1.BareMetalHost) bool { return len(h.Annotations) > 0 }))).To(BeZero())
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	bothKinds("W24: a machine with the owner's name and another UID is not touched", func(ctx context.Context, s *environment) {
		m := s.worker(ctx, "w")
		m.fails(ctx)
		m.remediate(ctx)
		again := m.machine(ctx)
		vanishes(ctx, again.DeepCopy())
		nodeRef := again.Status.NodeRef
		again.ResourceVersion, again.UID = "", ""
		s.create(ctx, again)
		again.Status.NodeRef = nodeRef
		Expect(here.Status().Update(ctx, again)).To(Succeed())
		s.start()

		m.ends(ctx, "Ended")
		Expect(m.power()).To(BeEmpty())
		Expect(m.bmh(ctx).Annotations).To(BeEmpty())
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	bothKinds("a host that powers on by itself before its node is fenced is powered off again first", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.pod(ctx)
		m.fails(ctx)
		m.remediate(ctx)
		m.comesToMove(ctx)
		m.strip(ctx, m.holdOff(ctx)) // a user meant well
		Eventually(m.holds).WithArguments(ctx).Should(BeTrue(), "it is kept powered off again")
		m.evict(ctx)
		Eventually(func() bool {
			s.clock.Step(5 * time.Second) // it may have been seen off already, which has to be so for a while
			return m.isOver(ctx, "Succeeded")
		}).Should(BeTrue())
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	bothKinds("W5: orphaned annotations of a remediation that was removed by force are removed after a grace period", func(ctx context.Context, s *environment) {
		const grace = 5 * time.Minute
		s.wanted.sweeps = grace
		s.start()
		m := s.worker(ctx, "w")
		m.pod(ctx)
		m.fails(ctx)
		m.remediate(ctx)
		m.comesTo(ctx, "MovingWorkload")
		s.kill()
		vanishes(ctx, m.remediation(ctx))
		s.begin(0, "")
		s.start()
		Consistently(m.holds).WithArguments(ctx).Should(BeTrue(), "it may be on its way, with clusterctl or from a backup")

		Eventually(func() bool {
			s.clock.Step(grace) // from when it was first seen
			return m.holds(ctx)
		}).Should(BeFalse())
		Eventually(m.host.Powered).Should(BeTrue())
	})
})
