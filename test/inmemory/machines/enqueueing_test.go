package machines

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ofKernel makes a check judge by a condition that the node problem detector reports, and which no Machine condition reports.
func ofKernel(c *clusterv1.MachineHealthCheck) {
	c.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: "KernelDeadlock", Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](60)},
	}
}

func TestW7ANodesChangeEnqueuesTheCheckOfItsOwnMachineThoughAnotherClusterHasANodeOfThatName(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		twins := []*environment{s, s.newEnvironment(), s.environment(s.cluster.Namespace, "c2")}
		names := []string{"a", "a-of-c1", "a-of-c2"}
		for i, twin := range twins {
			if twin != s {
				twin.machine(names[i], func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{Name: s.node("a")} })
			}
			twin.check("check-of-"+twin.cluster.Name, ofKernel)
			s.Eventually(twin.health(names[i])).Should(Equal(well))
		}

		s.nodeReports("a", "KernelDeadlock", corev1.ConditionTrue, long)

		for i, twin := range twins {
			s.Eventually(twin.health(names[i])).Should(Equal(silent))
		}
	})
}

func TestW10EnqueueingANewCheckJudgesAtOnceAndSoItDoesAfterAUserMarksAMachine(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b")
		s.fallsSilent("a")
		s.check("check")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))

		s.change("b", annotated(clusterv1.RemediateMachineAnnotation, ""))
		s.Eventually(s.owner("b")).Should(Equal(ownerRequested))
	})
}

func TestW11ReconcilesAChangeOfAMachineThatNoVerdictDependsOnCausesNoReconcile(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		before := s.settles()

		for _, phase := range []string{"Provisioned", "Running", "Updating", "Running"} {
			s.change("a", func(m *clusterv1.Machine) { m.Status.Phase = phase })
		}
		s.Consistently(s.reconciles).Should(Equal(before))

		s.change("a", annotated("example.org/news", "")) // may be a mark by hand
		s.Eventually(s.reconciles).Should(Equal(before + 1))
	})
}
