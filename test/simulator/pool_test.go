package simulator_test

import (
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// datacentre is a cluster on a pool of hosts.
type datacentre struct {
	*environment
	fixture *fixture
}

func newDatacentre(t *testing.T, name string, o simulator.HostsOptions, hosts ...client.Object) *datacentre {
	t.Helper()
	d := &datacentre{fixture: newFixture(t, name, o)}
	d.environment = newEnvironment(t, name, simulator.InfrastructureOptions{Hosts: d.fixture.hosts, Every: 200 * time.Millisecond})
	d.Expect(builders.Apply(d.ctx, d.mgmt, hosts...)).To(Succeed())
	return d
}

// carrier is the host that carries a machine.
func (d *datacentre) carrier(machine string) *slot {
	host := d.provider.Host(client.ObjectKey{Namespace: d.cluster.Namespace, Name: machine})
	d.Expect(host).NotTo(BeNil(), machine)
	return &slot{fixture: d.fixture, Host: host, name: host.Key().Name}
}

func (d *datacentre) host(name string) *slot {
	return &slot{fixture: d.fixture, Host: d.fixture.hosts.Host(client.ObjectKey{Namespace: d.cluster.Namespace, Name: name}), name: name}
}

func (d *datacentre) metal3Machine(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	object.SetKind("Metal3Machine")
	d.Expect(d.mgmt.Get(d.ctx, client.ObjectKey{Namespace: d.cluster.Namespace, Name: name}, object)).To(Succeed())
	return object
}

func (d *datacentre) nodeBecomes(node string, status corev1.ConditionStatus) {
	d.Eventually(func(g Gomega) { g.Expect(d.condition(g, node, corev1.NodeReady).Status).To(Equal(status)) }).Should(Succeed())
}

func TestMachinesUseFreeHostsAndReleaseThem(t *testing.T) {
	t.Parallel()
	marked := func(name, key string) client.Object {
		return builders.BareMetalHost("pool", name, builders.Annotated[*bmov1alpha1.BareMetalHost](key, ""))
	}
	d := newDatacentre(t, "pool", quick,
		marked("a", "capm3.metal3.io/unhealthy"), marked("b", "capi.metal3.io/unhealthy"),
		marked("c", bmov1alpha1.DetachedAnnotation), builders.BareMetalHost("pool", "d", builders.ConsumedBy("another")),
		builders.BareMetalHost("pool", "e"))
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.ControlPlane(d.cluster, 1)...)).To(Succeed())
	d.allRun(1)

	first := d.carrier("pool-cp-0")
	d.Expect(first.name).To(Equal("e"))
	d.Expect(d.metal3Machine("pool-cp-0").GetAnnotations()).To(HaveKeyWithValue("metal3.io/BareMetalHost", "pool/e"))
	d.Expect(d.machines(d)["pool-cp-0"].Spec.ProviderID).To(Equal("metal3://pool/e/pool-cp-0"))
	bmh := first.bmh(d)
	d.Expect(bmh.Status.Provisioning.State).To(Equal(bmov1alpha1.StateProvisioned))
	d.Expect(bmh.Spec.ConsumerRef).To(HaveValue(Equal(corev1.ObjectReference{
		APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "Metal3Machine", Namespace: "pool", Name: "pool-cp-0",
	})))
	first.told(true)

	// The second machine waits until the first gives its host back.
	second := builders.ControlPlaneMachine(d.cluster, "pool-cp-1")
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.Metal3Machine(second), second)).To(Succeed())
	d.Eventually(func(g Gomega) { g.Expect(d.infrastructureReady(g, "pool-cp-1")["reason"]).To(Equal("Provisioning")) }).Should(Succeed())
	kubelet := d.kubelet("pool-cp-0")
	machine := d.machines(d)["pool-cp-0"]
	d.Expect(d.mgmt.Delete(d.ctx, &machine)).To(Succeed())
	d.Eventually(func(g Gomega) { g.Expect(d.machines(g)).NotTo(HaveKey("pool-cp-0")) }).Should(Succeed())
	d.allRun(1)
	d.Expect(kubelet.Running()).To(BeFalse())
	d.Expect(first.bmh(d).Spec.ConsumerRef.Name).To(Equal("pool-cp-1"))
	d.Expect(first.History().Cycles()).To(Equal(1), "it was off in between")
	for _, name := range []string{"a", "b", "c", "d"} {
		d.Expect(d.host(name).History()).To(BeEmpty(), "host %s is not touched", name)
	}

	// When no machine waits for it, a host ends off and free.
	machine = d.machines(d)["pool-cp-1"]
	d.Expect(d.mgmt.Delete(d.ctx, &machine)).To(Succeed())
	first.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Spec.ConsumerRef).To(BeNil())
		g.Expect(bmh.Spec.Image).To(BeNil())
		g.Expect(bmh.Spec.Online).To(BeFalse())
		g.Expect(bmh.Status.Provisioning.State).To(Equal(bmov1alpha1.StateAvailable))
		g.Expect(bmh.Status.PoweredOn).To(BeFalse())
	})
	d.Expect(first.Kubelet()).To(BeNil())
}

func TestTheNodeFollowsThePowerOfItsHost(t *testing.T) {
	t.Parallel()
	d := newDatacentre(t, "follows", quick, builders.BareMetalHosts("follows", "host", 1)...)
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.ControlPlane(d.cluster, 1)...)).To(Succeed())
	d.allRun(1)
	s, node := d.carrier("follows-cp-0"), "follows-cp-0"

	s.annotate(suffixed, hard)
	s.told(false)
	d.Expect(d.kubelet(node).Running()).To(BeFalse())
	d.nodeBecomes(node, corev1.ConditionUnknown)
	s.strip(suffixed)
	d.nodeBecomes(node, corev1.ConditionTrue)

	// A kubelet that hangs is back after a reboot; the host was on all the time before.
	d.kubelet(node).Stop()
	d.nodeBecomes(node, corev1.ConditionUnknown)
	d.Expect(s.Powered()).To(BeTrue())
	s.annotate(bare, hard)
	d.nodeBecomes(node, corev1.ConditionTrue)
	d.Expect(s.History().Cycles()).To(Equal(2))
}

func TestAHostMayNeedMoreThanOneBoot(t *testing.T) {
	t.Parallel()
	d := newDatacentre(t, "boots", quick, builders.BareMetalHosts("boots", "host", 1)...)
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.ControlPlane(d.cluster, 1)...)).To(Succeed())
	d.allRun(1)
	s, kubelet := d.carrier("boots-cp-0"), d.kubelet("boots-cp-0")
	reboot := func() {
		boots := s.Boots()
		s.annotate(bare, hard)
		s.Eventually(s.Boots).Should(Equal(boots + 1))
		s.told(true)
	}
	s.Mute(1)
	reboot()
	d.nodeBecomes("boots-cp-0", corev1.ConditionUnknown)
	d.Expect(kubelet.Running()).To(BeFalse())
	reboot()
	s.Eventually(kubelet.Running).Should(BeTrue())

	s.Mute(-1)
	reboot()
	reboot()
	s.isReconciled(d.fixture.add("witness", builders.Deployed))
	s.Expect(kubelet.Running()).To(BeFalse())
	s.Mute(0)
	const boot = 500 * time.Millisecond
	s.Take(simulator.Times{Boot: boot})
	began := time.Now()
	reboot()
	s.Eventually(kubelet.Running).Should(BeTrue())
	s.Expect(time.Since(began)).To(BeNumerically(">=", boot))
}

func TestAMachineWithoutAFreeHostWaitsForOne(t *testing.T) {
	t.Parallel()
	d := newDatacentre(t, "waits", quick)
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.Workers(d.cluster, "waits-md", 2)...)).To(Succeed())
	d.Eventually(func(g Gomega) {
		machines := d.machines(g)
		g.Expect(machines).To(HaveLen(2))
		for name := range machines {
			g.Expect(d.infrastructureReady(g, name)["reason"]).To(Equal("Provisioning"))
		}
	}).Should(Succeed())
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.BareMetalHosts("waits", "host", 2)...)).To(Succeed())
	d.allRun(2)
	taken := map[string]bool{}
	for name := range d.machines(d) {
		taken[d.carrier(name).name] = true
	}
	d.Expect(taken).To(HaveLen(2), "each has its own")
	var histories []simulator.History
	for name := range taken {
		histories = append(histories, d.host(name).History())
	}
	d.Expect(simulator.MostOff(histories...)).To(BeZero())
	for _, machine := range d.machines(d) {
		d.Expect(machine.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)))
	}
}

func TestAHostWithDisablePowerOffIsReleasedPoweredOn(t *testing.T) {
	t.Parallel()
	d := newDatacentre(t, "given-back", quick, builders.BareMetalHosts("given-back", "host", 1, builders.NeverOff)...)
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.ControlPlane(d.cluster, 1)...)).To(Succeed())
	d.allRun(1)
	s, kubelet := d.carrier("given-back-cp-0"), d.kubelet("given-back-cp-0")
	machine := d.machines(d)["given-back-cp-0"]
	d.Expect(d.mgmt.Delete(d.ctx, &machine)).To(Succeed())
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Spec.ConsumerRef).To(BeNil())
		g.Expect(bmh.Status.PoweredOn).To(BeTrue())
	})
	s.Eventually(kubelet.Running).Should(BeFalse(), "what the disk held is gone")
	s.Expect(s.History()).To(HaveLen(1))
}

func TestAHostThatCannotBePoweredOffIsNotReleased(t *testing.T) {
	t.Parallel()
	d := newDatacentre(t, "kept", quick, builders.BareMetalHosts("kept", "host", 1)...)
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.ControlPlane(d.cluster, 1)...)).To(Succeed())
	d.allRun(1)
	s := d.carrier("kept-cp-0")
	s.FailPower("the fan is on fire")
	machine := d.machines(d)["kept-cp-0"]
	d.Expect(d.mgmt.Delete(d.ctx, &machine)).To(Succeed())
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Status.Provisioning.State).To(Equal(bmov1alpha1.StateDeprovisioning))
		g.Expect(bmh.Status.ErrorType).To(Equal(bmov1alpha1.ProvisioningError))
		g.Expect(bmh.Spec.ConsumerRef).NotTo(BeNil())
	})
	d.Expect(d.machines(d)).To(HaveKey("kept-cp-0"))
	s.FailPower("")
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Spec.ConsumerRef).To(BeNil())
		g.Expect(bmh.Status.ErrorType).To(BeEmpty())
	})
	d.Eventually(func(g Gomega) { g.Expect(d.machines(g)).NotTo(HaveKey("kept-cp-0")) }).Should(Succeed())
}

func TestAMachineFindsTheHostThatWasTakenForItBefore(t *testing.T) {
	t.Parallel()
	d := newDatacentre(t, "found", quick, builders.BareMetalHost("found", "a"),
		builders.BareMetalHost("found", "b", builders.ConsumedBy("found-cp-0")))
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.ControlPlane(d.cluster, 1)...)).To(Succeed())
	d.allRun(1)
	d.Expect(d.carrier("found-cp-0").name).To(Equal("b"))
	d.Expect(d.host("a").History()).To(BeEmpty())
}

func TestAHostIsPausedWithItsClusterAndKeepsItsPower(t *testing.T) {
	t.Parallel()
	d := newDatacentre(t, "paused", quick, builders.BareMetalHosts("paused", "host", 1)...)
	d.Expect(builders.Apply(d.ctx, d.mgmt, builders.ControlPlane(d.cluster, 1)...)).To(Succeed())
	d.allRun(1)
	s := d.carrier("paused-cp-0")
	pause := func(paused bool) {
		now := d.cluster.DeepCopy()
		d.Expect(d.mgmt.Get(d.ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
		before := now.DeepCopy()
		now.Spec.Paused = &paused
		d.Expect(d.mgmt.Patch(d.ctx, now, client.MergeFrom(before))).To(Succeed())
	}
	pause(true)
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Annotations).To(HaveKeyWithValue(bmov1alpha1.PausedAnnotation, "metal3.io/capm3"))
		g.Expect(bmh.Annotations).To(HaveKeyWithValue(bmov1alpha1.StatusAnnotation, ContainSubstring(`"poweredOn":true`)), "to be moved along")
	})
	s.annotate(suffixed, hard)
	s.Consistently(s.Powered).Should(BeTrue())
	pause(false)
	s.Eventually(s.Powered).Should(BeFalse())
	s.becomes(func(g Gomega, bmh *bmov1alpha1.BareMetalHost) {
		g.Expect(bmh.Annotations).NotTo(Or(HaveKey(bmov1alpha1.PausedAnnotation), HaveKey(bmov1alpha1.StatusAnnotation)))
	})
}
