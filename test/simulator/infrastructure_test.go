package simulator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

// world is one Cluster with its simulated infrastructure.
type world struct {
	*WithT
	ctx      context.Context
	mgmt     client.Client
	work     client.Client
	cluster  *clusterv1.Cluster
	provider *simulator.Infrastructure
}

// newWorld starts the infrastructure, and makes a cluster that nothing was asked of yet.
func newWorld(t *testing.T, name string, o simulator.InfrastructureOptions) *world {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	ctx := t.Context()

	o.Namespace = name
	provider, err := simulator.NewInfrastructure(management.Config(), o)
	g.Expect(err).NotTo(HaveOccurred())
	play(t, "infrastructure", provider.Start)

	w := &world{
		WithT: g, ctx: ctx, provider: provider,
		mgmt: clientOf(t, management), work: clientOf(t, workload),
		cluster: builders.Cluster(name, name),
	}
	key := client.ObjectKeyFromObject(w.cluster)
	g.Expect(provider.Serve(key, workload.Config())).To(Succeed())
	g.Expect(builders.Apply(ctx, w.mgmt, builders.Namespace(name), rig.KubeconfigSecret(key, workload),
		builders.Metal3Cluster(w.cluster), w.cluster)).To(Succeed())
	return w
}

// machines are those of the cluster, by name.
func (w *world) machines(g Gomega) map[string]clusterv1.Machine {
	list := &clusterv1.MachineList{}
	g.Expect(w.mgmt.List(w.ctx, list, client.InNamespace(w.cluster.Namespace))).To(Succeed())
	byName := map[string]clusterv1.Machine{}
	for _, machine := range list.Items {
		byName[machine.Name] = machine
	}
	return byName
}

func (w *world) allRun(number int) {
	w.Eventually(func(g Gomega) {
		machines := w.machines(g)
		g.Expect(machines).To(HaveLen(number))
		for name, machine := range machines {
			g.Expect(machine.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), name)
			g.Expect(machine.Status.NodeRef.Name).To(Equal(name))
		}
	}).Should(Succeed())
}

func (w *world) kubelet(machine string) *simulator.Kubelet {
	return w.provider.Kubelet(client.ObjectKey{Namespace: w.cluster.Namespace, Name: machine})
}

// worker is the name of one machine of the MachineDeployment.
func (w *world) worker() string {
	for name := range w.machines(w) {
		if strings.HasPrefix(name, w.cluster.Name+"-md") {
			return name
		}
	}
	return ""
}

func (w *world) condition(g Gomega, node string, kind corev1.NodeConditionType) corev1.NodeCondition {
	n := &corev1.Node{}
	g.Expect(w.work.Get(w.ctx, client.ObjectKey{Name: node}, n)).To(Succeed())
	for _, condition := range n.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

func TestAClusterLivesThroughTheLossOfAWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "whole", simulator.InfrastructureOptions{})
	w.Expect(builders.Apply(w.ctx, w.mgmt, builders.ControlPlane(w.cluster, 3)...)).To(Succeed())
	w.Expect(builders.Apply(w.ctx, w.mgmt, builders.Workers(w.cluster, "whole-md", 3)...)).To(Succeed())

	began := time.Now()
	w.allRun(6)
	t.Logf("six machines run after %s", time.Since(began))
	w.Eventually(func(g Gomega) {
		cluster := &clusterv1.Cluster{}
		g.Expect(w.mgmt.Get(w.ctx, client.ObjectKeyFromObject(w.cluster), cluster)).To(Succeed())
		g.Expect(conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition)).To(BeTrue())
	}).Should(Succeed())

	lost := w.worker()
	began = time.Now()
	w.kubelet(lost).Stop()
	w.Eventually(func(g Gomega) {
		ready := w.condition(g, lost, corev1.NodeReady)
		g.Expect(ready.Status).To(Equal(corev1.ConditionUnknown))
		g.Expect(ready.Reason).To(Equal("NodeStatusUnknown"), "only node-lifecycle writes this reason")
	}).Should(Succeed())
	t.Logf("the silent node is Unknown after %s", time.Since(began))

	machine := w.machines(w)[lost]
	began = time.Now()
	w.Expect(w.mgmt.Delete(w.ctx, &machine)).To(Succeed())
	w.Eventually(func(g Gomega) { g.Expect(w.machines(g)).NotTo(HaveKey(lost)) }).Should(Succeed())
	w.allRun(6)
	t.Logf("the replacement runs after %s", time.Since(began))
	w.Expect(client.IgnoreNotFound(w.work.Get(w.ctx, client.ObjectKey{Name: lost}, &corev1.Node{}))).To(Succeed())
	w.Expect(w.kubelet(lost)).To(BeNil())
}

func TestAHostTakesItsTime(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	w := newWorld(t, "slow", simulator.InfrastructureOptions{Delay: delay})
	began := time.Now()
	w.Expect(builders.Apply(w.ctx, w.mgmt, builders.ControlPlane(w.cluster, 1)...)).To(Succeed())
	w.Eventually(func(g Gomega) {
		ready := w.infrastructureReady(g, "slow-cp-0")
		g.Expect(ready["status"]).To(Equal("False"))
		g.Expect(ready["reason"]).To(Equal("Provisioning"))
	}).Should(Succeed())
	w.Expect(w.kubelet("slow-cp-0")).To(BeNil())
	w.allRun(1)
	w.Expect(time.Since(began)).To(BeNumerically(">=", delay))
	w.Expect(w.infrastructureReady(w, "slow-cp-0")["status"]).To(Equal("True"))
}

func TestAHostWithoutAKubeletHasNoNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "mute", simulator.InfrastructureOptions{})
	w.provider.RefuseToStart(func(machine client.ObjectKey) bool { return machine.Name == "mute-cp-0" })
	w.Expect(builders.Apply(w.ctx, w.mgmt, builders.ControlPlane(w.cluster, 2)...)).To(Succeed())
	w.Eventually(func(g Gomega) {
		machines := w.machines(g)
		g.Expect(machines["mute-cp-0"].Status.Phase).To(Equal(string(clusterv1.MachinePhaseProvisioned)))
		g.Expect(machines["mute-cp-1"].Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)))
	}).Should(Succeed())
	w.Expect(w.machines(w)["mute-cp-0"].Status.NodeRef.Name).To(BeEmpty())

	w.kubelet("mute-cp-0").Start()
	w.allRun(2)
}

func TestADeletedClusterGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "gone", simulator.InfrastructureOptions{})
	w.Expect(builders.Apply(w.ctx, w.mgmt, builders.ControlPlane(w.cluster, 1)...)).To(Succeed())
	w.allRun(1)
	w.Expect(w.mgmt.Delete(w.ctx, w.cluster)).To(Succeed())
	w.Eventually(func() error {
		return w.mgmt.Get(w.ctx, client.ObjectKeyFromObject(w.cluster), &clusterv1.Cluster{})
	}).Should(Satisfy(apierrors.IsNotFound))
	w.Expect(w.kubelet("gone-cp-0")).To(BeNil())
}

// This is what kubemend relies on: core does not act on a check that is claimed, and does on any other.
func TestCoreStandsBackFromAClaimedCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "claimed", simulator.InfrastructureOptions{})
	ours := builders.MachineHealthCheck(w.cluster, "ours", builders.Claimed)
	theirs := builders.MachineHealthCheck(w.cluster, "theirs")
	w.Expect(builders.Apply(w.ctx, w.mgmt, ours, theirs)).To(Succeed())
	w.Eventually(func(g Gomega) {
		g.Expect(w.mgmt.Get(w.ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
		g.Expect(theirs.Status.ExpectedMachines).NotTo(BeNil())
	}).Should(Succeed())
	w.Expect(w.mgmt.Get(w.ctx, client.ObjectKeyFromObject(ours), ours)).To(Succeed())
	w.Expect(conditions.IsTrue(ours, clusterv1.PausedCondition)).To(BeTrue())
	w.Expect(ours.Status.ExpectedMachines).To(BeNil())
	w.Expect(ours.OwnerReferences).To(BeEmpty())
}

// infrastructureReady is the condition Ready of a Metal3Machine.
func (w *world) infrastructureReady(g Gomega, machine string) map[string]any {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	object.SetKind("Metal3Machine")
	key := client.ObjectKey{Namespace: w.cluster.Namespace, Name: machine}
	g.Expect(w.mgmt.Get(w.ctx, key, object)).To(Succeed())
	found, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(HaveLen(1))
	return found[0].(map[string]any)
}

func TestApplyMayBeRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "repeated", simulator.InfrastructureOptions{})
	check := builders.MachineHealthCheck(w.cluster, "check", builders.Claimed, builders.Patience(time.Minute),
		builders.RemediatedBy("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3RemediationTemplate", "reboot"))
	w.Expect(builders.Apply(w.ctx, w.mgmt, check)).To(Succeed())
	w.Expect(check.UID).NotTo(BeEmpty(), "it is what the API server answered")
	w.Expect(check.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds).To(HaveValue(BeEquivalentTo(60)))
	first := check.DeepCopy()
	w.Expect(builders.Apply(w.ctx, w.mgmt, check)).To(Succeed())
	w.Expect(check.UID).To(Equal(first.UID))
	w.Expect(check.Generation).To(Equal(first.Generation))
}
