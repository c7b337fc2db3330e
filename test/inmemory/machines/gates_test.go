package machines

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// atMost lets a check remediate while no more than that are not healthy: a number or a percentage.
func atMost(limit string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.Parse(limit))
	}
}

// lenient makes silent machines of a check pending, strict makes all of them unhealthy: in one reconcile, when all of them are in the
// cache.
func lenient(c *clusterv1.MachineHealthCheck) { silentFor(c, 2*long) }

func strict(c *clusterv1.MachineHealthCheck) { silentFor(c, long/2) }

func silentFor(c *clusterv1.MachineHealthCheck, patience time.Duration) {
	for i := range c.Spec.Checks.UnhealthyNodeConditions {
		c.Spec.Checks.UnhealthyNodeConditions[i].TimeoutSeconds = ptr.To(int32(patience / time.Second))
	}
}

const (
	remediates = "True/RemediationAllowed"
	restricted = "False/TooManyUnhealthy"
)

func TestCountingSelectsNothingWithAnEmptySelector(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.counts("check")).Should(Equal([]int32{1, 1, 1}))

		emptied := []byte(`{"spec":{"selector":{"matchLabels":null}}}`) // the typed client cannot say this
		s.Expect(s.here.Patch(s.ctx, s.getCheck("check"), client.RawPatch(types.MergePatchType, emptied))).To(Succeed())

		s.Eventually(s.counts("check")).Should(Equal([]int32{0, 0, 0}))
		s.Expect(s.getCheck("check").Status.Targets).To(BeEmpty())
	})
}

func TestCountingExcludesMachinesWithASkipOrPauseAnnotationFromTheTotalToo(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c", "d")
		s.check("check", atMost("50%"), lenient)
		s.fallsSilent("b", "c", "d")
		s.Eventually(s.counts("check")).Should(Equal([]int32{4, 1, 0}))
		s.changeCheck("check", strict)
		s.Eventually(s.health("d")).Should(Equal(silent))
		s.Eventually(s.allowed("check")).Should(Equal(restricted), "3 of 4, and 2 are allowed")
		s.Expect(s.owner("b")()).To(Equal(nothing))

		s.change("c", annotated(clusterv1.MachineSkipRemediationAnnotation, ""))
		s.Eventually(s.message("check", "RemediationAllowed")).Should(HaveSuffix("50% of 3 allows 1"))
		s.Eventually(s.health("c")).Should(Equal(nothing), "its conditions are removed")

		s.change("d", annotated(clusterv1.PausedAnnotation, "anything"))
		s.Eventually(s.owner("b")).Should(Equal(ownerRequested), "1 of 2, and 1 is allowed")
		s.Eventually(s.counts("check")).Should(Equal([]int32{2, 1, 0}))
		s.Expect(s.getCheck("check").Status.Targets).To(Equal([]string{"a", "b"}))
		s.Eventually(s.health("d")).Should(Equal(nothing))
		s.Expect(s.owner("c")()).To(Equal(nothing))

		s.change("d", without(clusterv1.PausedAnnotation))
		s.Eventually(s.health("d")).Should(Equal(silent))
	})
}

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
		s.template("reboot")
		s.workers("good", "bad")
		s.worker("once-failed", everFailed)
		s.byHand("once-failed", clonedFrom("reboot"))
		s.fallsSilent("bad")
		s.check("check", by("reboot"))
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
