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

const neverStarted = "False/NodeStartupTimeout False/NodeStartupTimeout"

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
	run(t, func(s *environment) {
		orphan := &environment{setting: s.setting, cluster: builders.Cluster(s.cluster.Namespace, "c2")}
		s.unreachable["mute"] = true
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
