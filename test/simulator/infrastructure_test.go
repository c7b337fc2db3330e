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

// environment is one Cluster with its simulated infrastructure.
type environment struct {
	*WithT
	ctx      context.Context
	mgmt     client.Client
	work     client.Client
	cluster  *clusterv1.Cluster
	provider *simulator.Infrastructure
}

// newEnvironment starts the infrastructure, and makes a cluster that nothing was asked of yet.
func newEnvironment(t *testing.T, name string, o simulator.InfrastructureOptions) *environment {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	ctx := t.Context()

	o.Namespace = name
	provider, err := simulator.NewInfrastructure(management.Config(), o)
	g.Expect(err).NotTo(HaveOccurred())
	play(t, "infrastructure", provider.Start)

	env := &environment{
		WithT: g, ctx: ctx, provider: provider,
		mgmt: clientOf(t, management), work: clientOf(t, workload),
		cluster: builders.Cluster(name, name),
	}
	key := client.ObjectKeyFromObject(env.cluster)
	g.Expect(provider.Serve(key, workload.Config())).To(Succeed())
	g.Expect(builders.Apply(ctx, env.mgmt, builders.Namespace(name), rig.KubeconfigSecret(key, workload),
		builders.Metal3Cluster(env.cluster), env.cluster)).To(Succeed())
	return env
}

// machines are those of the cluster, by name.
func (env *environment) machines(g Gomega) map[string]clusterv1.Machine {
	list := &clusterv1.MachineList{}
	g.Expect(env.mgmt.List(env.ctx, list, client.InNamespace(env.cluster.Namespace))).To(Succeed())
	byName := map[string]clusterv1.Machine{}
	for _, machine := range list.Items {
		byName[machine.Name] = machine
	}
	return byName
}

func (env *environment) allRun(number int) {
	env.Eventually(func(g Gomega) {
		machines := env.machines(g)
		g.Expect(machines).To(HaveLen(number))
		for name, machine := range machines {
			g.Expect(machine.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), name)
			g.Expect(machine.Status.NodeRef.Name).To(Equal(name))
		}
	}).Should(Succeed())
}

func (env *environment) kubelet(machine string) *simulator.Kubelet {
	return env.provider.Kubelet(client.ObjectKey{Namespace: env.cluster.Namespace, Name: machine})
}

// worker is the name of one machine of the MachineDeployment.
func (env *environment) worker() string {
	for name := range env.machines(env) {
		if strings.HasPrefix(name, env.cluster.Name+"-md") {
			return name
		}
	}
	return ""
}

func (env *environment) condition(g Gomega, node string, kind corev1.NodeConditionType) corev1.NodeCondition {
	n := &corev1.Node{}
	g.Expect(env.work.Get(env.ctx, client.ObjectKey{Name: node}, n)).To(Succeed())
	for _, condition := range n.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

func TestAClusterLivesThroughTheLossOfAWorker(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t, "whole", simulator.InfrastructureOptions{})
	env.Expect(builders.Apply(env.ctx, env.mgmt, builders.ControlPlane(env.cluster, 3)...)).To(Succeed())
	env.Expect(builders.Apply(env.ctx, env.mgmt, builders.Workers(env.cluster, "whole-md", 3)...)).To(Succeed())

	began := time.Now()
	env.allRun(6)
	t.Logf("six machines run after %s", time.Since(began))
	env.Eventually(func(g Gomega) {
		cluster := &clusterv1.Cluster{}
		g.Expect(env.mgmt.Get(env.ctx, client.ObjectKeyFromObject(env.cluster), cluster)).To(Succeed())
		g.Expect(conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition)).To(BeTrue())
	}).Should(Succeed())

	lost := env.worker()
	began = time.Now()
	env.kubelet(lost).Stop()
	env.Eventually(func(g Gomega) {
		ready := env.condition(g, lost, corev1.NodeReady)
		g.Expect(ready.Status).To(Equal(corev1.ConditionUnknown))
		g.Expect(ready.Reason).To(Equal("NodeStatusUnknown"), "only node-lifecycle writes this reason")
	}).Should(Succeed())
	t.Logf("the silent node is Unknown after %s", time.Since(began))

	machine := env.machines(env)[lost]
	began = time.Now()
	env.Expect(env.mgmt.Delete(env.ctx, &machine)).To(Succeed())
	env.Eventually(func(g Gomega) { g.Expect(env.machines(g)).NotTo(HaveKey(lost)) }).Should(Succeed())
	env.allRun(6)
	t.Logf("the replacement runs after %s", time.Since(began))
	env.Expect(client.IgnoreNotFound(env.work.Get(env.ctx, client.ObjectKey{Name: lost}, &corev1.Node{}))).To(Succeed())
	env.Expect(env.kubelet(lost)).To(BeNil())
}

func TestAHostNeedsTheGivenTimes(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	env := newEnvironment(t, "slow", simulator.InfrastructureOptions{Delay: delay})
	began := time.Now()
	env.Expect(builders.Apply(env.ctx, env.mgmt, builders.ControlPlane(env.cluster, 1)...)).To(Succeed())
	env.Eventually(func(g Gomega) {
		ready := env.infrastructureReady(g, "slow-cp-0")
		g.Expect(ready["status"]).To(Equal("False"))
		g.Expect(ready["reason"]).To(Equal("Provisioning"))
	}).Should(Succeed())
	env.Expect(env.kubelet("slow-cp-0")).To(BeNil())
	env.allRun(1)
	env.Expect(time.Since(began)).To(BeNumerically(">=", delay))
	env.Expect(env.infrastructureReady(env, "slow-cp-0")["status"]).To(Equal("True"))
}

func TestAHostWithoutAKubeletHasNoNode(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t, "mute", simulator.InfrastructureOptions{})
	env.provider.RefuseToStart(func(machine client.ObjectKey) bool { return machine.Name == "mute-cp-0" })
	env.Expect(builders.Apply(env.ctx, env.mgmt, builders.ControlPlane(env.cluster, 2)...)).To(Succeed())
	env.Eventually(func(g Gomega) {
		machines := env.machines(g)
		g.Expect(machines["mute-cp-0"].Status.Phase).To(Equal(string(clusterv1.MachinePhaseProvisioned)))
		g.Expect(machines["mute-cp-1"].Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)))
	}).Should(Succeed())
	env.Expect(env.machines(env)["mute-cp-0"].Status.NodeRef.Name).To(BeEmpty())

	env.kubelet("mute-cp-0").Start()
	env.allRun(2)
}

func TestADeletedClusterGoes(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t, "gone", simulator.InfrastructureOptions{})
	env.Expect(builders.Apply(env.ctx, env.mgmt, builders.ControlPlane(env.cluster, 1)...)).To(Succeed())
	env.allRun(1)
	env.Expect(env.mgmt.Delete(env.ctx, env.cluster)).To(Succeed())
	env.Eventually(func() error {
		return env.mgmt.Get(env.ctx, client.ObjectKeyFromObject(env.cluster), &clusterv1.Cluster{})
	}).Should(Satisfy(apierrors.IsNotFound))
	env.Expect(env.kubelet("gone-cp-0")).To(BeNil())
}

// This is what kubemend relies on: core does not act on a check that is claimed, and does on any other.
func TestCoreSkipsAClaimedCheck(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t, "claimed", simulator.InfrastructureOptions{})
	ours := builders.MachineHealthCheck(env.cluster, "ours", builders.Claimed)
	theirs := builders.MachineHealthCheck(env.cluster, "theirs")
	env.Expect(builders.Apply(env.ctx, env.mgmt, ours, theirs)).To(Succeed())
	env.Eventually(func(g Gomega) {
		g.Expect(env.mgmt.Get(env.ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
		g.Expect(theirs.Status.ExpectedMachines).NotTo(BeNil())
	}).Should(Succeed())
	env.Expect(env.mgmt.Get(env.ctx, client.ObjectKeyFromObject(ours), ours)).To(Succeed())
	env.Expect(conditions.IsTrue(ours, clusterv1.PausedCondition)).To(BeTrue())
	env.Expect(ours.Status.ExpectedMachines).To(BeNil())
	env.Expect(ours.OwnerReferences).To(BeEmpty())
}

// infrastructureReady is the condition Ready of a Metal3Machine.
func (env *environment) infrastructureReady(g Gomega, machine string) map[string]any {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	object.SetKind("Metal3Machine")
	key := client.ObjectKey{Namespace: env.cluster.Namespace, Name: machine}
	g.Expect(env.mgmt.Get(env.ctx, key, object)).To(Succeed())
	found, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(HaveLen(1))
	return found[0].(map[string]any)
}

func TestApplyMayBeRepeated(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t, "repeated", simulator.InfrastructureOptions{})
	check := builders.MachineHealthCheck(env.cluster, "check", builders.Claimed, builders.Patience(time.Minute),
		builders.RemediatedBy("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3RemediationTemplate", "reboot"))
	env.Expect(builders.Apply(env.ctx, env.mgmt, check)).To(Succeed())
	env.Expect(check.UID).NotTo(BeEmpty(), "it is what the API server answered")
	env.Expect(check.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds).To(HaveValue(BeEquivalentTo(60)))
	first := check.DeepCopy()
	env.Expect(builders.Apply(env.ctx, env.mgmt, check)).To(Succeed())
	env.Expect(check.UID).To(Equal(first.UID))
	env.Expect(check.Generation).To(Equal(first.Generation))
}
