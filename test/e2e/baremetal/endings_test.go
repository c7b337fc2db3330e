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
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/simulator"
)

// byHand makes a remediation of a machine as a person would, for one that need not be bad.
func byHand(ctx context.Context, name string) *mendv1.HostRemediation {
	GinkgoHelper()
	m := machine(ctx, name)
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID,
		}},
	}}
	rem.Spec.Strategy = &infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 100}
	Expect(here.Create(ctx, rem)).To(Succeed())
	return rem
}

// step is what a remediation is at, as users see it.
func step(ctx context.Context, rem client.Object) func() string {
	return func() string {
		now := &mendv1.HostRemediation{}
		if err := here.Get(ctx, client.ObjectKeyFromObject(rem), now); err != nil {
			return err.Error()
		}
		return now.Status.Step
	}
}

// aWorker is the first worker by name, with its host.
func aWorker(ctx context.Context) (string, *simulator.Host) {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(here.List(ctx, list, client.InNamespace(namespace), client.HasLabels{clusterv1.MachineDeploymentNameLabel})).To(Succeed())
	name := list.Items[0].Name
	for _, m := range list.Items {
		name = min(name, m.Name)
	}
	return name, provider.Host(client.ObjectKey{Namespace: namespace, Name: name})
}

func powered(host *simulator.Host) func() bool { return host.Powered }

var _ = Describe("A power cycle", func() {
	BeforeEach(func(ctx SpecContext) { allWell(ctx) })

	It("that is taken back in the middle lets go of host and node", func(ctx SpecContext) {
		name, host := aWorker(ctx)
		attacher.Stick(true) // so that the workload does not move meanwhile
		DeferCleanup(func() { attacher.Stick(false) })
		host.Take(simulator.Times{PowerOn: 300 * time.Millisecond})
		rem := byHand(ctx, name)
		Eventually(powered(host)).Should(BeFalse())

		Expect(here.Delete(ctx, rem)).To(Succeed())

		Eventually(func() bool { return gone(ctx, kinds[0], name) }).Should(BeTrue())
		Eventually(powered(host)).Should(BeTrue())
		nothingIsLeft(ctx, host, name)
		Eventually(func() corev1.ConditionStatus { return ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
	}, SpecTimeout(specPatience))

	It("goes on where it was when the manager is killed at any time", func(ctx SpecContext) {
		name, host := aWorker(ctx)
		host.Take(simulator.Times{PowerOff: time.Second, PowerOn: time.Second, Boot: time.Second})
		DeferCleanup(func() { host.Take(simulator.Times{}) })
		began := time.Now()
		rem := byHand(ctx, name)
		for _, at := range []string{"PoweringOff", "MovingWorkload", "PoweringOn", "Booting"} {
			Eventually(step(ctx, rem)).WithTimeout(2 * time.Minute).Should(Or(Equal(at), Equal("Succeeded")))
			manager.Kill()
			var err error
			manager, err = management.Kubemend(ctx, "baremetal", nil, gate)
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(step(ctx, rem)).WithTimeout(2 * time.Minute).Should(Equal("Succeeded"))

		Expect(host.History().Since(began)).To(HaveLen(2), "off and on, once")
		done := &mendv1.HostRemediation{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), done)).To(Succeed())
		Expect(done.Status.Attempt).To(BeEquivalentTo(1))
		Expect(done.Finalizers).To(BeEmpty())
		nothingIsLeft(ctx, host, name)
		Expect(here.Delete(ctx, rem)).To(Succeed())
	}, SpecTimeout(specPatience))

	It("that a dead BMC makes impossible is retried, and then the machine is replaced on another host", func(ctx SpecContext) {
		name, host := aWorker(ctx)
		watched(ctx, kinds[0])
		before := machine(ctx, name).UID
		host.Die(true)
		host.Kubelet().Stop()

		Eventually(func(g Gomega) {
			m := &clusterv1.Machine{}
			err := here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m)
			g.Expect(client.IgnoreNotFound(err)).To(Succeed())
			g.Expect(err != nil || m.UID != before || !m.DeletionTimestamp.IsZero()).To(BeTrue(), "the machine is still there")
		}).WithTimeout(4*time.Minute).WithPolling(time.Second).Should(Succeed(), "two attempts of 100 s")

		bad := &bmov1alpha1.BareMetalHost{}
		Expect(here.Get(ctx, host.Key(), bad)).To(Succeed())
		Expect(bad.Annotations).To(And(HaveKey(infrav1.UnhealthyAnnotation), HaveKey(infrav1.LegacyUnhealthyAnnotation)))
		for key := range bad.Annotations {
			Expect(key).NotTo(HavePrefix(infrav1.PowerOffAnnotationPrefix), "the next one who has this host could not switch it on")
		}
		host.Die(false)
		allWell(ctx)
		list := &clusterv1.MachineList{}
		Expect(here.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for _, m := range list.Items {
			Expect(provider.Host(client.ObjectKeyFromObject(&m)).Key()).NotTo(Equal(host.Key()), "nobody is put on the bad host")
		}
	}, SpecTimeout(6*time.Minute))
})
