package machines

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
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

		s.comesBack("a", "of-control-plane")
		for _, name := range []string{"a", "of-control-plane"} {
			s.Eventually(s.health(name)).Should(Equal(well))
			s.Expect(collections.IsUnhealthyAndOwnerRemediated(s.get(name))).To(BeFalse(), "an owner that was paused replaces none")
		}
	})
}

func TestW13AnUnreachableClusterMakesMachinesUnknownUntilItIsBack(t *testing.T) {
	run(t, func(s *environment) {
		s.template()
		s.workers("bad", "recovers", "dies", "by-hand")
		s.check("check", byRequests)
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
		s.change("by-hand", annotated(clusterv1.RemediateMachineAnnotation))
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
		s.check("check", builders.Patience(2*time.Minute))
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
		s.check("check", builders.Patience(2*time.Minute))
		s.Eventually(s.health("a")).Should(Equal(well))
		began := time.Now().Truncate(time.Second)
		s.nodeReports("a", corev1.NodeReady, corev1.ConditionUnknown, 0)
		time.Sleep(3 * time.Minute)
		marked := conditions.Get(s.get("a"), clusterv1.MachineHealthCheckSucceededCondition)
		s.Expect(marked.LastTransitionTime.Time).To(BeTemporally("==", began.Add(2*time.Minute)))
	})
}

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
		s.template()
		s.workers("bad", "good", "back")
		s.check("check", byRequests)
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
		orphan.check("orphan")
		mute := &environment{setting: s.setting, cluster: builders.Cluster(s.cluster.Namespace, "mute")} // to which no kubeconfig leads
		mute.begin()
		mute.machine("mute-marked", annotated(clusterv1.RemediateMachineAnnotation))
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

// atMost lets a check remediate while no more than that are not healthy: a number or a percentage.
func atMost(limit string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.Parse(limit))
	}
}

const remediates = "True/RemediationAllowed"

func TestCountingSelectsOnlyMachinesOfItsOwnClusterAndNamespace(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.environment(s.cluster.Namespace, "c2").worker("b")
		s.newEnvironment().worker("c")
		s.check("check")

		s.Eventually(s.counts("check")).Should(Equal([]int32{1, 1, 1}))
		s.Expect(s.getCheck("check").Status.Targets).To(Equal([]string{"a"}))
		c := s.getCheck("check")
		s.Expect(c.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c1"))
		s.Expect(c.OwnerReferences).To(Equal([]metav1.OwnerReference{{
			APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: s.cluster.UID,
		}}))
		s.Eventually(func() int64 { return s.getCheck("check").Status.ObservedGeneration }).Should(Equal(c.Generation))
	})
}

// pausedAs gives a check the annotation cluster.x-k8s.io/paused with a value.
func pausedAs(value string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Annotations = map[string]string{clusterv1.PausedAnnotation: value}
	}
}

func TestPausedIsFalseWhileKubemendActsOnAnUnclaimedCheckAndHasAReasonWhenItIsTrue(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.of("check", "Paused")).Should(Equal("False/NotPaused"))
		s.Eventually(s.health("a")).Should(Equal(well))

		s.changeCheck("check", pausedAs("true"))
		s.Eventually(s.of("check", "Paused")).Should(Equal("True/Paused"))
		s.Expect(s.message("check", "Paused")()).To(Equal("MachineHealthCheck has the cluster.x-k8s.io/paused annotation"))
		s.pause(true)
		s.Eventually(s.message("check", "Paused")).Should(Equal(
			"Cluster spec.paused is set to true, MachineHealthCheck has the cluster.x-k8s.io/paused annotation"))

		s.fallsSilent("a")
		s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		s.Eventually(s.message("check", "Paused")).Should(Equal("Cluster spec.paused is set to true"))
		s.Expect(s.health("a")()).To(Equal(well))
		s.Expect(s.exported("kubemend_machinehealthcheck_targets", s.labels("check")...)()).To(BeZero())

		s.pause(false)
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Eventually(s.of("check", "Paused")).Should(Equal("False/NotPaused"))
	})
}

func TestUnclaimedChecksAreJudgedAndCountedInModeObserveWithoutAWrite(t *testing.T) {
	runWith(t, observe, func(s *environment) {
		s.template()
		s.workers("good", "bad")
		s.worker("once-failed", everFailed)
		s.byHand("once-failed", clonedFrom("reboot"))
		s.fallsSilent("bad")
		s.check("check", byRequests)
		versions := s.versions()
		state := func(name string) func() float64 {
			return s.number("kubemend_machinehealthcheck_targets", s.labels("check", `state="`+name+`"`)...)
		}

		s.Eventually(state("unhealthy")).Should(BeEquivalentTo(1))
		s.Eventually(state("healthy")).Should(BeEquivalentTo(2))
		isSaid := func(mode string) {
			s.Eventually(s.number("kubemend_machinehealthcheck_mode", s.labels("check", `mode="`+mode+`"`)...)).Should(BeEquivalentTo(1))
			s.Expect(s.exported("kubemend_machinehealthcheck_mode", s.labels("check")...)()).To(Equal(1))
		}
		isSaid("observing")
		s.comesBack("bad")
		s.fallsSilent("good")
		s.losesNode("once-failed")
		s.Eventually(state("unhealthy")).Should(BeEquivalentTo(2))
		s.Expect(s.recorded()).To(BeEmpty())
		versions["Cluster/c1"] = s.versions()["Cluster/c1"] // on which is kept what answers
		s.Expect(s.versions()).To(Equal(versions))
		s.Expect(s.number("kubemend_remediations_started_total", s.labels("check")...)()).To(BeZero())

		// Claiming the check.
		s.changeCheck("check", builders.Claimed)
		s.Eventually(s.requested()).Should(ConsistOf("good", "once-failed"))
		s.Eventually(s.health("bad")).Should(Equal(well))
		s.isRequested("good")
		s.Expect(s.of("check", "Paused")()).To(Equal("-"))
		isSaid("acting")

		// Releasing the check.
		before := s.settles()
		s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { delete(c.Annotations, clusterv1.PausedAnnotation) })
		s.Eventually(s.reconciles).Should(BeNumerically(">", before))
		s.comesBack("good")
		s.Eventually(state("unhealthy")).Should(BeEquivalentTo(1))
		s.Consistently(s.requested()).Should(ConsistOf("good", "once-failed"), "Cluster API acts on it now")
	})
}
