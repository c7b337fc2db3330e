package capi

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("A machine whose node stops being ready", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("is replaced by its KubeadmControlPlane if it is of the control plane, and its etcd member is removed", func(ctx SpecContext) {
		check := shared.check(ctx, controlPlane)
		before, lost := shared.identities(ctx), shared.names(ctx, controlPlane)[0]
		Expect(shared.members(ctx)).To(ContainElement(lost))

		began := time.Now()
		shared.turn(ctx, lost, corev1.ConditionFalse)

		shared.replaced(ctx, before, lost)
		verdicts := shared.verdicts(began, lost)
		Expect(verdicts).To(ContainElement("False/UnhealthyNode"))
		Expect(verdicts[slices.Index(verdicts, "False/UnhealthyNode"):]).To(HaveEach("False/UnhealthyNode"),
			"why it is replaced, not that its node goes with it")
		Expect(shared.members(ctx)).To(HaveLen(3))
		Expect(shared.members(ctx)).NotTo(ContainElement(lost))
		shared.expectEventsOnce(ctx, check, lost)
	}, SpecTimeout(specPatience))
})

var _ = Describe("Two machines of the control plane whose nodes stop being ready together", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("are replaced one after the other, since the KubeadmControlPlane defers the second", func(ctx SpecContext) {
		check := shared.check(ctx, controlPlane)
		before, lost := shared.identities(ctx), shared.names(ctx, controlPlane)[:2]

		for _, name := range lost {
			shared.turn(ctx, name, corev1.ConditionFalse)
		}

		By("waiting until the second is deferred")
		Eventually(func(g Gomega) {
			i := slices.IndexFunc(lost, func(name string) bool {
				return shared.said(ctx, name, clusterv1.MachineOwnerRemediatedCondition)() == "False/"+
					controlplanev1.KubeadmControlPlaneMachineRemediationDeferredReason
			})
			g.Expect(i).NotTo(Equal(-1), "none is put off")
			e := shared.explained(ctx, lost[i])
			g.Expect(e.Message).To(HavePrefix("UNHEALTHY, PUT OFF BY ITS OWNER: RemediationDeferred "))
			g.Expect(e.Next.Text).To(HavePrefix("KubeadmControlPlane " + shared.owner(ctx).Name + " tries again by itself"))
			g.Expect(e.Next.Manual).To(BeFalse())
		}).Should(Succeed())

		By("waiting until both are replaced")
		Eventually(func(g Gomega) {
			Expect(shared.deleting(ctx)).To(BeNumerically("<=", 1), "never two at once")
			g.Expect(shared.identities(ctx)).NotTo(Or(HaveKey(lost[0]), HaveKey(lost[1])))
		}).Should(Succeed())
		shared.replaced(ctx, before, lost...)
		for _, name := range lost {
			shared.expectEventsOnce(ctx, check, name)
		}
	}, SpecTimeout(specPatience))
})

// expectEventsOnce expects one event about the unhealthy machine and one about the start of its remediation.
func (env *environment) expectEventsOnce(ctx context.Context, check *clusterv1.MachineHealthCheck, machine string) {
	GinkgoHelper()
	for _, reason := range []string{mendv1.EventMachineMarkedUnhealthy, mendv1.EventRemediationStarted} {
		Eventually(env.notes).WithArguments(ctx, check, reason, machine).Should(HaveLen(1), reason)
	}
}

// deleting returns how many control-plane machines are being deleted.
func (env *environment) deleting(ctx context.Context) int {
	GinkgoHelper()
	number := 0
	for _, m := range env.machines(ctx) {
		if _, is := m.Labels[clusterv1.MachineControlPlaneLabel]; is && !m.DeletionTimestamp.IsZero() {
			number++
		}
	}
	return number
}

const refused = "False/" + controlplanev1.KubeadmControlPlaneMachineCannotBeRemediatedReason

// These are the rules for control planes in Cluster API's documentation (seed 004), and what kubemend reports while a rule holds.
var _ = Describe("A KubeadmControlPlane that was asked to replace a machine", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("replaces no machine while the other machines are unhealthy, and explain says so", func(ctx SpecContext) {
		shared.check(ctx, controlPlane)
		before, all := shared.identities(ctx), shared.names(ctx, controlPlane)
		for _, name := range all[1:] {
			shared.turnAPIServer(ctx, name, corev1.ConditionFalse)
			DeferCleanup(func(ctx SpecContext) { shared.turnAPIServer(ctx, name, corev1.ConditionTrue) })
			shared.seenByOwner(ctx, name, "False/")
		}

		shared.turn(ctx, all[0], corev1.ConditionFalse)

		Eventually(shared.said(ctx, all[0], clusterv1.MachineOwnerRemediatedCondition)).Should(Equal(refused))
		e := shared.explained(ctx, all[0])
		Expect(e.Message).To(HavePrefix("UNHEALTHY, NOT REMEDIATED: CannotBeRemediated "))
		Expect(e.Checks[0].Targets[0].Message).To(ContainSubstring("Kubernetes control plane components or in etcd quorum loss"))
		Expect(shared.identities(ctx)).To(Equal(before))

		By("having the others recover")
		for _, name := range all[1:] {
			shared.turnAPIServer(ctx, name, corev1.ConditionTrue)
			shared.seenByOwner(ctx, name, "True/")
		}
		shared.replaced(ctx, before, all[0])
	}, SpecTimeout(specPatience))
})

// seenByOwner waits until the KubeadmControlPlane's condition about the API server of a machine, as "Status/Reason", has this prefix.
func (env *environment) seenByOwner(ctx context.Context, machine, prefix string) {
	GinkgoHelper()
	Eventually(func() string {
		env.nudge(ctx)
		return env.said(ctx, machine, controlplanev1.KubeadmControlPlaneMachineAPIServerPodHealthyCondition)()
	}).WithPolling(2 * time.Second).Should(HavePrefix(prefix))
}

// nudge makes the KubeadmControlPlane controller reconcile, since it does not watch Pods.
func (env *environment) nudge(ctx context.Context) {
	GinkgoHelper()
	suite.Annotate(ctx, here, env.owner(ctx), "test/nudged", new(time.Now().Format(time.RFC3339Nano)))
}

// turnAPIServer sets the condition Ready of a machine's API server pod. After a patch the simulated API server could not read the Pod.
func (env *environment) turnAPIServer(ctx context.Context, machine string, status corev1.ConditionStatus) {
	GinkgoHelper()
	pod := &corev1.Pod{}
	err := env.there.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-" + machine}, pod)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return // deleted with the machine
	}
	Expect(err).NotTo(HaveOccurred())
	ready := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	Expect(ready).NotTo(BeNumerically("<", 0))
	pod.Status.Conditions[ready].Status = status
	Expect(env.there.Update(ctx, pod)).To(Succeed())
}

var _ = Describe("A rolling upgrade of the cluster", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("replaces all machines without calling an old or new one unhealthy", func(ctx SpecContext) {
		shared.check(ctx, controlPlane)
		shared.check(ctx, worker)
		before, began := shared.identities(ctx), time.Now()

		shared.topology(ctx, func(t *clusterv1.Topology) { t.Version = "v1.35.1" })

		Eventually(func(g Gomega) {
			for name, m := range shared.machines(ctx) {
				g.Expect(m.Spec.Version).To(Equal("v1.35.1"), name)
				g.Expect(before).NotTo(HaveKey(name))
			}
		}).WithContext(ctx).WithTimeout(specPatience).Should(Succeed())
		shared.allHealthy(ctx)
		Expect(shared.verdicts(began, "")).NotTo(ContainElement(HavePrefix("False/")))
	}, SpecTimeout(specPatience))
})

// This runs last: its cluster is created while the other specs run.
var _ = Describe("A control plane of one machine", SpecPriority(-1), func() {
	It("calls no machine unhealthy when it is scaled down, does not replace the last machine, and explain says so", func(ctx SpecContext) {
		shrinks.allHealthy(ctx)
		DeferCleanup(shrinks.remove)
		shrinks.check(ctx, controlPlane)
		shrinks.check(ctx, worker)
		began := time.Now()

		By("scaling down")
		shrinks.scale(ctx, 1, 1)
		shrinks.allHealthy(ctx)
		Expect(shrinks.verdicts(began, "")).NotTo(ContainElement(HavePrefix("False/")))

		By("losing the last one")
		last := shrinks.names(ctx, controlPlane)[0]
		before := shrinks.identities(ctx)
		shrinks.turn(ctx, last, corev1.ConditionFalse)
		Eventually(shrinks.said(ctx, last, clusterv1.MachineOwnerRemediatedCondition)).Should(Equal(refused))
		e := shrinks.explained(ctx, last)
		Expect(e.Message).To(HavePrefix("UNHEALTHY, NOT REMEDIATED: CannotBeRemediated "))
		Expect(e.Next.Manual).To(BeTrue())
		Expect(e.Next.Text).To(ContainSubstring("from replacing the machine, or replace it by hand"))
		Expect(shrinks.identities(ctx)).To(Equal(before))

		By("having it recover")
		shrinks.turn(ctx, last, corev1.ConditionTrue)
		Eventually(shrinks.untouched(ctx, before)).Should(Succeed())
		Expect(conditions.IsTrue(shrinks.machines(ctx)[last], clusterv1.MachineHealthCheckSucceededCondition)).To(BeTrue())
	}, SpecTimeout(specPatience))
})

// verdicts returns the health conditions, as "Status/Reason", that kubemend has written since a moment to one machine, or to all for "".
func (env *environment) verdicts(since time.Time, machine string) (said []string) {
	GinkgoHelper()
	for _, write := range suite.Writes(management, since, "machines") {
		if write.ObjectRef.Namespace != env.namespace || machine != "" && machine != write.ObjectRef.Name {
			continue
		}
		m := &clusterv1.Machine{}
		Expect(json.Unmarshal(write.RequestObject.Raw, m)).To(Succeed())
		if conditions.Has(m, clusterv1.MachineHealthCheckSucceededCondition) {
			said = append(said, saidOf(m, clusterv1.MachineHealthCheckSucceededCondition))
		}
	}
	return said
}

func (env *environment) topology(ctx context.Context, change func(*clusterv1.Topology)) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(here.Get(ctx, client.ObjectKeyFromObject(env.cluster), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	change(&cluster.Spec.Topology)
	Expect(here.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// scale changes the number of machines of the cluster.
func (env *environment) scale(ctx context.Context, controlPlanes, workers int32) {
	GinkgoHelper()
	env.controlPlanes, env.workers = controlPlanes, workers
	env.topology(ctx, func(t *clusterv1.Topology) {
		t.ControlPlane.Replicas = &controlPlanes
		t.Workers.MachineDeployments[0].Replicas = &workers
	})
}
