package baremetal

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Whatever stops a remediation for a while: a pause, a move to another cluster, the death of its controllers.
var _ = Describe("Stricter than with CAPM3, a remediation", func() {
	bothKinds("N10: does nothing while the cluster is paused", func(ctx context.Context, s *environment) {
		s.pause(ctx, true)
		s.start()
		m := s.worker(ctx, "w")
		m.fails(ctx)
		m.remediate(ctx)
		Eventually(func() string { return m.says(ctx).Message }).Should(ContainSubstring("paused"))
		s.clock.Step(timeout)
		Consistently(m.remediation).WithArguments(ctx).Should(HaveField("ObjectMeta.Finalizers", BeEmpty()))
		Expect(m.bmh(ctx).Annotations).To(BeEmpty())

		s.pause(ctx, false)
		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal(cycled(1)))
	})

	bothKinds("N10: releases its host when the cluster is paused, and starts over as clusterctl recreates it", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.host.Die(true)
		m.fails(ctx)
		m.remediate(ctx)
		Eventually(m.remediation).WithArguments(ctx).Should(HaveField("ObjectMeta.Annotations", HaveKey(blockMove)))

		s.pause(ctx, true)
		m.mayBeMoved(ctx)
		m.isMoved(ctx)
		m.host.Die(false)
		Consistently(m.holds).WithArguments(ctx).Should(BeFalse())
		s.pause(ctx, false)

		m.ends(ctx, "Succeeded")
		Expect(m.says(ctx).Retries).To(BeZero(), "the attempt is not counted again")
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	bothKinds("N10: moves the workload before it releases its host in a pause, and blocks clusterctl move until then", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.pod(ctx)
		m.fails(ctx)
		m.remediate(ctx)
		Eventually(m.isFenced).WithArguments(ctx).Should(BeTrue())
		s.pause(ctx, true)
		Consistently(m.remediation).WithArguments(ctx).Should(HaveField("ObjectMeta.Annotations", HaveKey(blockMove)))
		Expect(m.holds(ctx)).To(BeTrue(), "to let it on now could run the pod twice")
		m.evict(ctx)
		m.mayBeMoved(ctx)
		Eventually(m.isFenced).WithArguments(ctx).Should(BeFalse())
		m.isMoved(ctx)
		s.pause(ctx, false)

		m.ends(ctx, "Succeeded")
		Expect(m.power()).To(Equal(cycled(1)))
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	at("MovingWorkload", kinds[1], "N10: that is renamed while it keeps a host powered off ends the same, and orphans nothing", func(ctx context.Context, st standstill, m *member) {
		s := m.environment
		s.kill()
		m.isMoved(ctx)
		s.begin(0, "")
		s.start()
		st.resume(ctx, m)

		m.ends(ctx, st.ends)
		Expect(m.power()).To(Equal(cycled(st.cycles)))
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	at("MovingWorkload", kinds[0], "N11: continues where it was after its controllers are killed and restarted", func(ctx context.Context, st standstill, m *member) {
		s := m.environment
		s.kill()
		s.begin(0, "")
		s.start()
		st.resume(ctx, m)

		m.ends(ctx, st.ends)
		Expect(m.power()).To(Equal(cycled(st.cycles)))
		Expect(m.traces(ctx)).To(BeEmpty())
	})
})

// mayBeMoved waits until clusterctl would move the remediation: it must hold on to nothing by a name that it is about to lose.
func (m *member) mayBeMoved(ctx context.Context) {
	GinkgoHelper()
	Eventually(m.remediation).WithArguments(ctx).ShouldNot(HaveField("ObjectMeta.Annotations", HaveKey(blockMove)))
	Expect(m.holds(ctx)).To(BeFalse())
}

// isMoved makes the remediation be another object of the same content, without a status, as clusterctl does.
func (m *member) isMoved(ctx context.Context) {
	GinkgoHelper()
	was := m.remediation(ctx)
	is := was.DeepCopyObject().(client.Object)
	is.SetUID("")
	is.SetResourceVersion("")
	is.SetGeneration(0)
	is.SetCreationTimestamp(metav1.Time{})
	is.SetManagedFields(nil)
	withoutFinalizers := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	Expect(here.Delete(ctx, was)).To(Succeed())
	Expect(client.IgnoreNotFound(here.Patch(ctx, was, withoutFinalizers))).To(Succeed())
	Eventually(m.gone).WithArguments(ctx).Should(BeTrue())
	Expect(here.Create(ctx, is)).To(Succeed())
}

// pause sets or clears spec.paused of the Cluster.
func (s *environment) pause(ctx context.Context, paused bool) {
	GinkgoHelper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.cluster.Name}}
	patch := `{"spec":{"paused":false}}`
	if paused {
		patch = `{"spec":{"paused":true}}`
	}
	Expect(here.Patch(ctx, c, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}
