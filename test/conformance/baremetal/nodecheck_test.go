package baremetal

import (
	"context"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
)

// askedByNodeCheck makes the remediation in the shape that a NodeHealthCheck gives it: no label names the Cluster, and the check, which is
// nowhere to be found here, owns it as well.
func (m *member) askedByNodeCheck(ctx context.Context) {
	GinkgoHelper()
	owners := append([]metav1.OwnerReference{
		{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "workers", UID: "a-node-health-check"},
	}, ownedBy(m.machine(ctx))...)
	m.environment.create(ctx, m.environment.make(metav1.ObjectMeta{
		Namespace: m.environment.namespace, Name: m.name, OwnerReferences: owners,
		Labels:      map[string]string{"app.kubernetes.io/part-of": "node-healthcheck-controller"},
		Annotations: map[string]string{"remediation.medik8s.io/node-name": m.node(), "remediation.medik8s.io/template-name": "reboot"},
	}, infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: int32(timeout / time.Second)}))
}

// isToldToStop lets the check wait for the remediation no longer.
func (m *member) isAskedToStop(ctx context.Context) {
	GinkgoHelper()
	annotation := `{"metadata":{"annotations":{"` + nhcv1.TimedOutAnnotation + `":"` + time.Now().UTC().Format(time.RFC3339) + `"}}}`
	Expect(here.Patch(ctx, m.remediation(ctx), client.RawPatch("application/merge-patch+json", []byte(annotation)))).To(Succeed())
}

// stands is what the remediation says of itself as a whole.
func (m *member) stands(ctx context.Context) [2]string {
	c := m.says(ctx).Conditions
	return [2]string{c[nhcv1.ProcessingCondition], c[nhcv1.SucceededCondition]}
}

// underWay is what it says while it waits for something.
func underWay(why string) [2]string { return [2]string{"True/" + why, "Unknown/" + why} }

// over is what it says when it is over.
func over(succeeded metav1.ConditionStatus, why string) [2]string {
	return [2]string{"False/" + why, string(succeeded) + "/" + why}
}

// saidItFailedWhileItHeld is the revision at which a remediation said that it has failed while it held its host off; 0 if none did. A check
// that hears of a failure lets the next step start at once.
func (s *environment) saidItFailedWhileItHeld() uint64 {
	holding := map[string]bool{}
	for _, moment := range history.of(s.namespace) {
		switch o := moment.object.(type) {
		case *bmov1alpha1.BareMetalHost:
			holding[o.Name] = held(o)
		case *corev1.Node, *clusterv1.Machine:
		default:
			if builders.ReportOf(o).Conditions[nhcv1.SucceededCondition] == "False/TimedOutByCheck" && holding[o.GetName()] {
				return moment.revision
			}
		}
	}
	return 0
}

var _ = Describe("For a NodeHealthCheck, a remediation", func() {
	bothKinds("power-cycles the machine's host, reports Processing and then Succeeded, and cannot be stopped after that", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.pod(ctx)
		m.fails(ctx)
		m.askedByNodeCheck(ctx)
		m.comesTo(ctx, "MovingWorkload")
		Eventually(m.stands).WithArguments(ctx).Should(Equal(underWay("WorkloadMoving")))
		m.evict(ctx)

		m.ends(ctx, "Succeeded")
		Expect(m.stands(ctx)).To(Equal(over(metav1.ConditionTrue, "MachineHealthy")))
		Expect(m.power()).To(Equal(cycled(1)))
		Expect(m.traces(ctx)).To(BeEmpty())
		m.isAskedToStop(ctx)
		m.settles(ctx)
		Expect(m.at(ctx).State).To(Equal("Succeeded"))
		Expect(m.stands(ctx)).To(Equal(over(metav1.ConditionTrue, "MachineHealthy")))
		Expect(here.Delete(ctx, m.remediation(ctx))).To(Succeed())
		Expect(m.gone(ctx)).To(BeTrue())
	})

	bothKinds("that is stopped before its host was asked to power off does not touch it", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.annotateHost(ctx, bmov1alpha1.PausedAnnotation, "test")
		m.fails(ctx)
		m.askedByNodeCheck(ctx)
		m.comesTo(ctx, "Preparing")
		Eventually(m.stands).WithArguments(ctx).Should(Equal(underWay("HostNotReady")))
		m.isAskedToStop(ctx)

		m.ends(ctx, "Stopped")
		m.strip(ctx, bmov1alpha1.PausedAnnotation)
		Consistently(m.power).Should(BeEmpty())
		Expect(history.when(s.namespace, 0, onHost(held))).To(BeZero())
		Expect(m.stands(ctx)).To(Equal(over(metav1.ConditionFalse, "TimedOutByCheck")))
		Expect(m.traces(ctx)).To(BeEmpty())
	})

	at("PoweringOff", kinds[0], "that is stopped in any phase releases host and node, and then reports that it failed", func(ctx context.Context, _ standstill, m *member) {
		m.isAskedToStop(ctx)

		m.ends(ctx, "Stopped")
		Eventually(m.stands).WithArguments(ctx).Should(Equal(over(metav1.ConditionFalse, "TimedOutByCheck")))
		Expect(m.traces(ctx)).To(BeEmpty())
		Expect(m.environment.saidItFailedWhileItHeld()).To(BeZero())
		Expect(conditions.Has(m.machine(ctx), clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse())
		m.isUsable(ctx)
		Expect(m.at(ctx).State).To(Equal("Stopped"), "it is not begun again")
		Expect(here.Delete(ctx, m.remediation(ctx))).To(Succeed())
		Expect(m.gone(ctx)).To(BeTrue())
	})

	bothKinds("of a node that stays unhealthy retries, and requests owner remediation though no MachineHealthCheck judges the machine", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.host.Mute(-1)
		m.fails(ctx)
		m.askedByNodeCheck(ctx)
		m.inVain(ctx, 1)
		m.inVain(ctx, 2)

		m.ends(ctx, "OwnerRequested")
		Expect(m.stands(ctx)).To(Equal(over(metav1.ConditionFalse, "OwnerRequested")))
		m.ownerRemediationIsRequested(ctx)
		Expect(collections.IsUnhealthyAndOwnerRemediated(m.machine(ctx))).To(BeTrue(), "by this Cluster API chooses what it replaces")
		Expect(m.power()).To(Equal(cycled(2)))
		Expect(m.traces(ctx)).To(BeEmpty())

		m.kubelet.Start() // the node becomes healthy after all
		Eventually(m.stands).WithArguments(ctx).Should(Equal(over(metav1.ConditionTrue, "MachineHealthy")))
		Expect(m.bmh(ctx).Annotations).To(BeEmpty())
		for _, c := range m.machine(ctx).Status.Conditions {
			Expect(c.Type).NotTo(Or(Equal(clusterv1.MachineHealthCheckSucceededCondition), Equal(clusterv1.MachineOwnerRemediatedCondition)))
		}
	})

	bothKinds("of a machine that is gone releases its node, although nothing names the machine any more", func(ctx context.Context, s *environment) {
		s.start()
		m := s.worker(ctx, "w")
		m.pod(ctx)
		m.fails(ctx)
		m.askedByNodeCheck(ctx)
		m.comesToMove(ctx)
		s.kill() // so that both are seen at once
		vanishes(ctx, m.machine(ctx))
		// So the garbage collector does it, of an object with another owner.
		rem := m.remediation(ctx)
		before := rem.DeepCopyObject().(client.Object)
		rem.SetOwnerReferences(rem.GetOwnerReferences()[:1])
		Expect(here.Patch(ctx, rem, client.MergeFrom(before))).To(Succeed())
		s.start()

		m.ends(ctx, "Ended")
		Expect(m.stands(ctx)).To(Equal(over(metav1.ConditionFalse, "Ended")))
		Expect(m.traces(ctx)).To(BeEmpty())
		m.isUsable(ctx)
	})
})
