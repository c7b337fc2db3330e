package machines

import (
	"testing"

	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/test/builders"
)

// clusterSaid sets a condition of a Cluster, as if it had been so for some time.
func clusterSaid(kind string, status metav1.ConditionStatus, ago time.Duration) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) {
		conditions.Delete(c, kind) // or its last transition would stay
		conditions.Set(c, condition(kind, status, ago))
	}
}

// notInitialized is a Cluster whose control plane never was up.
func notInitialized(c *clusterv1.Cluster) {
	clusterSaid(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionFalse, time.Hour)(c)
	c.Status.Initialization.ControlPlaneInitialized = nil
}

func ofControlPlane(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" }

const neverStarted = "False/NodeStartupTimeout False/NodeStartupTimeout"

func TestGatesLetOnlyControlPlaneMachinesBeJudgedByTheirStartUpBeforeTheControlPlaneIsInitialized(t *testing.T) {
	run(t, func(s *environment) {
		s.changeCluster(notInitialized)
		s.machine("control", ofControlPlane)
		s.machine("control-with-node", ofControlPlane, s.hasNode("unread"))
		s.machine("worker")
		s.check("check", builders.StartsWithin(time.Second))

		s.Eventually(s.health("control")).Should(Equal(neverStarted))
		s.Eventually(s.owner("control")).Should(Equal(ownerRequested))
		s.Eventually(s.counts("check")).Should(Equal([]int32{3, 0, 0}))
		s.Expect(s.of("check", "WorkloadClusterReachable")()).To(Equal("Unknown/NotInitialized"))
		s.Eventually(s.number("kubemend_machinehealthcheck_targets", s.labels("check", `state="unknown"`)...)).Should(BeEquivalentTo(2))
		s.Consistently(s.health("worker")).Should(Equal(nothing))
		s.Expect(s.health("control-with-node")()).To(Equal(nothing), "its node cannot be read")
	})
}

func TestGatesDoNotKeepAMachineThatAUserMarkedFromBeingRemediatedButTheLimitDoes(t *testing.T) {
	run(t, func(s *environment) {
		s.changeCluster(notInitialized)
		s.machine("a", annotated(clusterv1.RemediateMachineAnnotation, ""))
		s.machine("b")
		s.check("none", atMost("0"))
		s.Eventually(s.health("a")).Should(Equal("False/HasRemediateAnnotation False/HasRemediateMachineAnnotation"))
		s.Eventually(s.counts("none")).Should(Equal([]int32{2, 0, 0}))
		s.changeCheck("none", atMost("1"))
		s.Eventually(s.message("none", "RemediationAllowed")).Should(HaveSuffix("2 of 2 targets are not healthy: " +
			"1 unhealthy, 0 pending, 0 starting, 0 being deleted, 1 unknown; 1 of 2 allows 1"))
		s.Expect(s.allowed("none")()).To(Equal(restricted), "b is not healthy either")
		s.Expect(s.owner("a")()).To(Equal(nothing))

		s.changeCheck("none", atMost("2"))
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Expect(s.health("b")()).To(Equal(nothing))
	})
}

func TestGatesGiveAFirstNodeTenMinutesByDefault(t *testing.T) {
	run(t, func(s *environment) {
		m := s.machine("a")
		s.check("check")

		deadline := s.number("kubemend_machinehealthcheck_next_deadline_timestamp_seconds", s.labels("check")...)
		s.Eventually(deadline).Should(BeEquivalentTo(m.CreationTimestamp.Add(10 * time.Minute).Unix()))
	})
}

func TestW6GatesAClusterThatBecomesInitializedOrWhoseInfrastructureBecomesReadyEnqueuesItsChecks(t *testing.T) {
	run(t, func(s *environment) {
		planes := s.newEnvironment(notInitialized)
		infrastructure := s.newEnvironment(clusterSaid(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionFalse, time.Hour))
		for _, s := range []*environment{planes, infrastructure} {
			s.machine("a")
			s.check("check", builders.StartsWithin(time.Second))
			s.Eventually(s.counts("check")).Should(Equal([]int32{1, 0, 0}))
		}
		s.Consistently(infrastructure.health("a")).Should(Equal(nothing))

		planes.changeCluster(clusterSaid(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue, 0))
		infrastructure.changeCluster(clusterSaid(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue, 0))

		s.Eventually(planes.health("a")).Should(Equal(neverStarted))
		s.Eventually(infrastructure.health("a")).Should(Equal(neverStarted))
	})
}

func TestW21GatesInfrastructureThatIsNotReadyMakesMachinesUnknownNotHealthy(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.workers("bad", "good", "back")
		s.check("check", by("reboot"))
		s.fallsSilent("bad", "back")
		s.Eventually(s.requested()).Should(ConsistOf("bad", "back"))
		s.Eventually(s.health("good")).Should(Equal(well))
		uid := s.request("bad").GetUID()

		s.changeCluster(clusterSaid(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionFalse, 0))
		s.Eventually(s.counts("check")).Should(Equal([]int32{3, 0, 0}))
		s.comesBack("back")
		s.fallsSilent("good")

		s.Consistently(s.requested()).Should(ConsistOf("bad", "back"))
		s.Expect(s.health("bad")()).To(Equal(silent))
		s.Expect(s.health("back")()).To(Equal(silent))
		s.Expect(s.health("good")()).To(Equal(well))
		s.Expect(s.external("bad")()).To(Equal("False/WaitingForRemediation"))

		s.changeCluster(clusterSaid(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue, 0))
		s.Eventually(s.requested()).Should(ConsistOf("bad", "good"))
		s.Eventually(s.health("back")).Should(Equal(well))
		s.Expect(s.request("bad").GetUID()).To(Equal(uid))
	})
}

func TestMissingInputDelaysNoOtherCheckNoClusterNoKubeconfig(t *testing.T) {
	alone(t, func(s *environment) {
		orphan := &environment{setting: s.setting, cluster: builders.Cluster(s.cluster.Namespace, "c2")}
		s.unreachable["mute"] = true
		s.start(acting)
		orphan.check("orphan")
		mute := s.environment(s.cluster.Namespace, "mute")
		mute.machine("mute-marked", annotated(clusterv1.RemediateMachineAnnotation, ""))
		mute.machine("mute-silent", mute.hasNode("a"))
		mute.check("mute")
		s.worker("a")
		s.check("check")

		s.Eventually(s.health("a")).Should(Equal(well))
		s.Eventually(mute.owner("mute-marked")).Should(Equal(ownerRequested), "a mark needs no connection")
		s.Eventually(orphan.allowed("orphan")).Should(Equal("False/ClusterNotFound"))
		s.Consistently(mute.health("mute-silent")).Should(Equal(nothing), "what cannot be asked is not called deleted")
		s.Expect(mute.of("mute", "WorkloadClusterReachable")()).To(Equal("False/Unreachable"))

		// The Cluster that was missing is created, and enqueues its check.
		late := s.environment(s.cluster.Namespace, "c2")
		late.worker("late")
		s.Eventually(late.health("late")).Should(Equal(well))
		s.Eventually(late.allowed("orphan")).Should(Equal(remediates))
	})
}
