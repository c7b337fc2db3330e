package conformance

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/test/builders"
)

// A connection is probed every 10 s, and lost when two probes in a row failed.
const (
	noticed  = 45 * time.Second // and some time more, for a machine that is busy
	patience = 20               // seconds; a first probe fails before, and the outage is not over by then
)

// ofMachines makes a check look at two conditions of Machines: one that mirrors the connection, and one of their own.
func ofMachines(c *clusterv1.MachineHealthCheck) {
	c.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](patience)
	c.Spec.Checks.UnhealthyNodeConditions[1].TimeoutSeconds = ptr.To[int32](patience)
	c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
		{Type: "NodeReady", Status: metav1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](1)},
		{Type: "GPUHealthy", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](1)},
	}
}

// machineSaid gives a machine a condition of long ago.
func machineSaid(kind string, status metav1.ConditionStatus, reason string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		c := condition(kind, status, long)
		c.Reason = reason
		conditions.Set(m, c)
	}
}

var _ = Describe("A workload cluster out of reach", func() {
	It("W13: makes machines unjudged as far as their nodes go, and nothing else; when it is back, all are judged again", func(ctx SpecContext) {
		way := newForwarder(workload)
		s := &scene{cluster: builders.Cluster(newNamespace(ctx), "far")}
		s.kubeconfig(ctx, way.kubeconfig(workload))
		s.template(ctx, "reboot")
		nodes := []string{"good", "bad", "recovers", "dies", "suspect", "loses-node", "by-hand", "own-fault"}
		s.workers(ctx, nodes...)
		s.begin(ctx)
		s.fallsSilent(ctx, "bad", "recovers")
		s.check(ctx, "check", by("reboot"), ofMachines)
		Eventually(s.external(ctx, "bad")).Should(Equal(asked))
		Eventually(s.external(ctx, "recovers")).Should(Equal(asked))
		Eventually(s.of(ctx, "check", "WorkloadClusterReachable")).Should(Equal("True/Reachable"))

		s.nodeReports(ctx, "suspect", corev1.NodeReady, corev1.ConditionUnknown, 0) // the last that is heard of it
		Eventually(number(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check", `state="suspect"`)...)).Should(BeEquivalentTo(1))

		way.cut()
		s.machine(ctx, "starting", func(m *clusterv1.Machine) { m.Status.Conditions = nil })
		for _, m := range append(nodes, "starting") {
			s.change(ctx, m, machineSaid("NodeReady", metav1.ConditionUnknown, "ConnectionDown"))
		}
		s.comesBack(ctx, "recovers")
		s.fallsSilent(ctx, "dies")
		s.losesNode(ctx, "loses-node")
		s.isSaidToBeOut(ctx)

		By("being judged by what is known without the workload cluster")
		s.change(ctx, "by-hand", annotated(clusterv1.RemediateMachineAnnotation, ""))
		s.change(ctx, "own-fault", machineSaid("GPUHealthy", metav1.ConditionFalse, "Broken"))
		Eventually(s.requested(ctx)).WithTimeout(quick).Should(ConsistOf("bad", "recovers", "by-hand", "own-fault"))
		Eventually(s.health(ctx, "own-fault")).Should(Equal("False/UnhealthyMachine False/UnhealthyMachine"))
		started := s.get(ctx, "starting").CreationTimestamp.Add((patience + 1) * time.Second)
		Eventually(time.Now).Should(BeTemporally(">", started), "its time would be over")
		Consistently(s.requested(ctx)).Should(ConsistOf("bad", "recovers", "by-hand", "own-fault"))
		s.standsAsItWas(ctx)

		By("coming back")
		s.comesBack(ctx, "suspect")
		way.mend()
		Eventually(s.of(ctx, "check", "WorkloadClusterReachable")).Should(Equal("True/ReachableAgain"))
		back := conditions.Get(s.getCheck(ctx, "check"), "WorkloadClusterReachable").LastTransitionTime.Time
		Expect(s.health(ctx, "starting")()).To(Equal(nothing), "it has a new start-up time")
		Eventually(s.health(ctx, "dies")).Should(Equal(silent))
		Eventually(s.health(ctx, "loses-node")).Should(Equal("False/NodeDeleted False/NodeNotFound"))
		Eventually(s.health(ctx, "recovers")).Should(Equal(well))
		Eventually(s.requested(ctx)).Should(ConsistOf("bad", "dies", "loses-node", "by-hand", "own-fault"))
		Eventually(s.reachable(ctx)).Should(BeEquivalentTo(1))
		Eventually(s.health(ctx, "starting")).Should(Equal(neverStarted))
		at := conditions.Get(s.get(ctx, "starting"), clusterv1.MachineHealthCheckSucceededCondition).LastTransitionTime
		Expect(at.Time).To(BeTemporally(">=", back.Add(patience*time.Second)))
		Expect(s.health(ctx, "suspect")()).To(Equal(well))
		Expect(s.events(ctx, "suspect", "MachineMarkedUnhealthy")()).To(BeZero(), "it was back before anybody could ask")
		Expect(s.events(ctx, "check", "WorkloadClusterUnreachable")()).To(Equal(1))
		Expect(s.events(ctx, "check", "WorkloadClusterReachable")()).To(Equal(1))
	})
})

func (s *scene) reachable(ctx context.Context) func() float64 {
	return number(ctx, manager, "kubemend_workload_cluster_reachable",
		`namespace="`+s.cluster.Namespace+`"`, `cluster="`+s.cluster.Name+`"`)
}

// isSaidToBeOut waits until the check says that, and since when, its cluster is out of reach.
func (s *scene) isSaidToBeOut(ctx context.Context) {
	GinkgoHelper()
	Eventually(s.of(ctx, "check", "WorkloadClusterReachable")).WithTimeout(noticed).Should(Equal("False/Unreachable"))
	c := conditions.Get(s.getCheck(ctx, "check"), "WorkloadClusterReachable")
	Expect(c.Message).To(ContainSubstring("out of reach since %s", c.LastTransitionTime.UTC().Format(time.RFC3339)))
	Eventually(s.reachable(ctx)).Should(BeZero())
	Expect(exported(ctx, manager, "kubemend_workload_cluster_reachable", `namespace="`+s.cluster.Namespace+`"`)()).To(Equal(1))
	Eventually(number(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check", `state="unjudged"`)...)).Should(BeEquivalentTo(9))
}

// standsAsItWas checks that nothing was said of machines because their nodes could not be asked.
func (s *scene) standsAsItWas(ctx context.Context) {
	GinkgoHelper()
	for machine, want := range map[string]string{
		"good": well, "bad": silent, "recovers": silent, "dies": well, "suspect": well, "loses-node": well, "starting": nothing,
	} {
		Expect(s.health(ctx, machine)()).To(Equal(want), fmt.Sprint("of ", machine))
	}
	Expect(s.external(ctx, "recovers")()).To(Equal(asked))
}
