package machines

import (
	"testing"

	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
)

func TestJudgingRequestsOwnerRemediationOfAMachineWhoseNodeIsSilentInTheWordsThatOwnersExpect(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.worker("of-control-plane", func(m *clusterv1.Machine) {
			m.Labels[clusterv1.MachineControlPlaneLabel] = ""
			m.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "cp", UID: "1",
				Controller: new(true),
			}}
		})
		s.check("check")
		s.Eventually(s.health("a")).Should(Equal(well))

		s.fallsSilent("a", "of-control-plane")

		for _, name := range []string{"a", "of-control-plane"} {
			s.Eventually(s.owner(name)).Should(Equal(ownerRequested))
			m := s.get(name)
			s.Expect(flavours(m, "HealthCheckSucceeded")).To(Equal(silent))
			s.Expect(conditions.GetMessage(m, "OwnerRemediated")).To(Equal("Waiting for remediation"))
			// The very functions by which MachineSet and KubeadmControlPlane find such machines.
			s.Expect(collections.IsUnhealthyAndOwnerRemediated(m)).To(BeTrue())
		}
		s.Eventually(s.counts("check")).Should(Equal([]int32{2, 0, 0}))
	})
}

func TestW13AnUnreachableClusterMakesMachinesUnknownUntilItIsBack(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.workers("bad", "recovers", "dies", "by-hand")
		s.check("check", by("reboot"))
		s.fallsSilent("bad", "recovers")
		s.Eventually(s.requested()).Should(ConsistOf("bad", "recovers"))
		s.Expect(s.of("check", "WorkloadClusterReachable")()).To(Equal("True/Reachable"))

		s.workload.Silence(true)
		time.Sleep(time.Minute)
		s.comesBack("recovers")
		s.fallsSilent("dies")
		s.Eventually(s.of("check", "WorkloadClusterReachable")).Should(Equal("False/Unreachable"))
		s.Expect(s.message("check", "WorkloadClusterReachable")()).To(ContainSubstring("out of reach since "))
		s.Expect(s.number("kubemend_workload_cluster_reachable", `name="c1"`)()).To(BeZero())
		s.Eventually(s.number("kubemend_machinehealthcheck_targets", s.labels("check", `state="unknown"`)...)).Should(BeEquivalentTo(4))
		s.change("by-hand", annotated(clusterv1.RemediateMachineAnnotation, ""))
		s.Eventually(s.requested()).Should(ConsistOf("bad", "recovers", "by-hand"))
		s.Consistently(s.health("dies")).Should(Equal(well))
		s.Expect(s.health("recovers")()).To(Equal(silent))

		s.workload.Silence(false)
		time.Sleep(time.Minute)
		s.Eventually(s.of("check", "WorkloadClusterReachable")).Should(Equal("True/ReachableAgain"))
		s.Eventually(s.requested()).Should(ConsistOf("bad", "by-hand"))
		s.Expect(s.health("dies")()).To(Equal(well), "what was seen before the outage counts from its end on")
		time.Sleep(health.Settling + 5*time.Minute)
		s.Eventually(s.health("dies")).Should(Equal(silent))
		s.Expect(s.events("check", "WorkloadClusterUnreachable")()).To(Equal(1))
		s.Expect(s.events("check", "WorkloadClusterReachable")()).To(Equal(1))
	})
}

// Probes failed three times, so that ClusterCache kept the connection, and the watch of Nodes is made again half a minute later.
func TestW13ANodeThatRecoversInAShortOutageIsNotRemediatedByWhatTheCacheHadBefore(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check", func(c *clusterv1.MachineHealthCheck) { silentFor(c, 2*time.Minute) })
		s.Eventually(s.health("a")).Should(Equal(well))
		s.nodeReports("a", corev1.NodeReady, corev1.ConditionUnknown, 0)
		time.Sleep(80 * time.Second)
		s.workload.Silence(true)
		time.Sleep(20 * time.Second)
		s.comesBack("a")
		time.Sleep(15 * time.Second)
		s.workload.Silence(false)
		s.workload.Refuse(func(call apiserver.Call) bool { return call.Resource == "nodes" })
		time.Sleep(25 * time.Second)
		s.Expect(s.health("a")()).To(Equal(well), "20 s after the timeout of what the cache has")
		s.workload.Refuse(nil)
		time.Sleep(2 * time.Minute)
		s.Expect(s.health("a")()).To(Equal(well))
		s.Expect(s.of("check", "WorkloadClusterReachable")()).To(Equal("True/ReachableAgain"))
	})
}

func TestALinkThatIsLostAgainAndAgainKeepsNoNodeFromBeingRemediated(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.machine("b")
		s.check("check", builders.StartsWithin(10*time.Minute))
		s.Eventually(s.health("a")).Should(Equal(well))
		began := time.Now()
		s.nodeReports("a", corev1.NodeReady, corev1.ConditionUnknown, 0)
		var marked, late time.Duration
		for late == 0 && time.Since(began) < time.Hour {
			if time.Sleep(3 * time.Minute); marked == 0 && s.health("a")() == silent {
				marked = time.Since(began)
			}
			if s.health("b")() == neverStarted {
				late = time.Since(began)
			}
			s.workload.Silence(true)
			time.Sleep(time.Minute)
			s.workload.Silence(false)
		}
		s.Expect(s.events("check", "WorkloadClusterUnreachable")()).To(BeNumerically(">", 1))
		s.Expect(marked).To(And(BeNumerically(">", 5*time.Minute), BeNumerically("<", 8*time.Minute)))
		s.Expect(late).To(And(BeNumerically(">", 12*time.Minute), BeNumerically("<", 20*time.Minute)))
	})
}

func TestTheStatusesThatRulesNameCountTogetherWhileANodeIsNeverReadyInBetween(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.health("a")).Should(Equal(well))
		s.nodeReports("a", corev1.NodeReady, corev1.ConditionFalse, 0)
		time.Sleep(4 * time.Minute)
		s.nodeReports("a", corev1.NodeReady, corev1.ConditionUnknown, 0)
		s.Consistently(s.health("a"), 50*time.Second).Should(Equal(well))
		s.Eventually(s.health("a"), time.Minute).Should(Equal(silent))
	})
}

func TestW10ATimeoutExpiresToTheSecond(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check", func(c *clusterv1.MachineHealthCheck) { silentFor(c, 2*time.Minute) })
		s.Eventually(s.health("a")).Should(Equal(well))
		began := time.Now().Truncate(time.Second)
		s.nodeReports("a", corev1.NodeReady, corev1.ConditionUnknown, 0)
		time.Sleep(3 * time.Minute)
		marked := conditions.Get(s.get("a"), clusterv1.MachineHealthCheckSucceededCondition)
		s.Expect(marked.LastTransitionTime.Time).To(BeTemporally("==", began.Add(2*time.Minute)))
	})
}
