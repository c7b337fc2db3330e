package machines

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
)

// remediation is what the condition kubemend.io/Remediation of a machine says.
func (s *environment) remediation(machine string) func() string {
	return func() string {
		cond := conditions.Get(s.get(machine), mendv1.Remediation)
		if cond == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s", cond.Status, cond.Reason)
	}
}

func TestAMachineSaysWhetherItIsBeingRemediatedUntilItIsHealthy(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a", func(m *clusterv1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "ms", UID: "1", Controller: new(true),
			}}
		})
		s.check("check", func(c *clusterv1.MachineHealthCheck) {
			c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "0"}
		})
		s.Eventually(s.health("a")).Should(Equal(well))
		s.Expect(s.remediation("a")()).To(Equal("-"))

		s.nodeReports("a", corev1.NodeReady, corev1.ConditionUnknown, 0)
		s.Eventually(s.remediation("a")).Should(Equal("False/WithinTimeout"))
		version := s.get("a").ResourceVersion
		s.workload.Silence(true)
		time.Sleep(time.Minute)
		s.Eventually(s.of("check", "WorkloadClusterReachable")).Should(Equal("False/Unreachable"))
		time.Sleep(long)
		s.Expect(s.get("a").ResourceVersion).To(Equal(version), "an outage writes no Machine")
		s.workload.Silence(false)
		time.Sleep(long) // what was seen before the outage counts from its end on

		s.Eventually(s.remediation("a")).Should(Equal("False/NoneAtOnce"))
		s.Expect(s.health("a")()).To(Equal(silent))
		s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		s.Eventually(s.remediation("a")).Should(Equal("True/OwnerAsked"))
		s.Expect(conditions.GetMessage(s.get("a"), mendv1.Remediation)).To(HavePrefix("Its owner, MachineSet ms, was asked to remediate it: see RemediationRecord a-"))
		version = s.get("a").ResourceVersion
		time.Sleep(long)
		s.Expect(s.get("a").ResourceVersion).To(Equal(version), "a steady world causes no writes")

		s.comesBack("a")
		s.Eventually(s.remediation("a")).Should(Equal("-"))
		s.Expect(s.health("a")()).To(Equal(well))
		patches, _ := s.calls(0, func(call apiserver.Call) bool {
			return call.Name == "a" && call.Subresource == "status" && call.Writes() && !call.Failed
		})
		s.Expect(patches).To(Equal(map[string]int{"patch machines": 6}),
			"healthy, pending, pending anew after the outage, blocked, asked, healthy: each is one patch")
	})
}

func TestAMachineOfACheckOnWhichNobodyActsSaysNothing(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("paused", "deselected", "orphaned")
		s.check("check")
		s.Eventually(s.health("orphaned")).Should(Equal(well))
		for _, name := range []string{"paused", "deselected", "orphaned"} {
			s.nodeReports(name, corev1.NodeReady, corev1.ConditionUnknown, 0)
			s.Eventually(s.remediation(name)).Should(Equal("False/WithinTimeout"))
		}

		s.change("deselected", func(m *clusterv1.Machine) { m.Labels["pool"] = "another" })
		s.Eventually(s.remediation("deselected")).Should(Equal("-"))
		s.Expect(s.health("deselected")()).To(Equal(well))
		s.change("paused", annotated(clusterv1.PausedAnnotation, ""))
		s.Eventually(s.remediation("paused")).Should(Equal("-"))
		s.change("paused", without(clusterv1.PausedAnnotation))
		s.Eventually(s.remediation("paused")).Should(Equal("False/WithinTimeout"))

		s.changeCheck("check", pausedAs("true"))
		s.Eventually(s.remediation("paused")).Should(Equal("-"))
		s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		s.Eventually(s.remediation("paused")).ShouldNot(Equal("-"))

		s.Expect(s.here.Delete(s.ctx, s.getCheck("check"))).To(Succeed())
		s.Eventually(s.remediation("paused")).Should(Equal("-"))
		s.Eventually(s.remediation("orphaned")).Should(Equal("-"))
	})
}

func TestAnOwnerThatNeverAnswersKeepsItsPlaceOnlyIfOthersOfItsKindHaveAnswered(t *testing.T) {
	talos := func(m *clusterv1.Machine) {
		m.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "x.io/v1", Kind: "TalosControlPlane", Name: "cp", UID: "1", Controller: new(true)},
		}
	}
	inV1Beta1 := &clusterv1.Condition{
		Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse, Message: "too few replicas",
		Reason: clusterv1.WaitingForRemediationV1Beta1Reason, Severity: clusterv1.ConditionSeverityWarning,
	}
	for _, answers := range []string{"never", "as others", "in v1beta1"} {
		run(t, func(s *environment) {
			s.worker("a", talos)
			s.worker("b")
			s.worker("elsewhere", talos, func(m *clusterv1.Machine) { m.Labels["pool"] = "another" })
			if answers == "as others" {
				s.change("elsewhere", func(m *clusterv1.Machine) {
					deferred := condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, 0)
					deferred.Reason = clusterv1.MachineSetMachineRemediationDeferredReason
					conditions.Set(m, deferred)
				})
			}
			s.check("check", func(c *clusterv1.MachineHealthCheck) {
				c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "1"}
			})
			s.Eventually(s.health("a")).Should(Equal(well))
			s.fallsSilent("a")
			s.Expect(s.owner("a")()).To(Equal(ownerRequested))
			if answers == "in v1beta1" {
				s.change("a", func(m *clusterv1.Machine) { v1beta1conditions.Set(m, inV1Beta1) })
				s.Eventually(func() string { return conditions.GetMessage(s.get("a"), mendv1.Remediation) }).
					Should(HaveSuffix("It says: too few replicas"))
			}
			s.Expect(s.here.Delete(s.ctx, s.get("elsewhere"))).To(Succeed())
			s.fallsSilent("b")
			time.Sleep(long)
			if answers == "as others" {
				s.Consistently(s.owner("b"), 3*time.Hour, time.Minute).ShouldNot(Equal(ownerRequested))
			} else {
				s.Expect(s.owner("b")()).To(Equal(ownerRequested))
			}
		})
	}
}
