package inspect

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// What was once said otherwise than it was done.
func TestWhatWasSaidOtherwiseThanItWasDone(t *testing.T) {
	bad := func(s *machineScene, name string, ago time.Duration) *clusterv1.Machine {
		m := s.aMachine(name)
		s.aNode(m, corev1.ConditionUnknown, at(ago))
		return m
	}
	unclaimed := func(s *machineScene) {
		s.unclaimed, s.checks[0].Annotations = machinehealthcheck.Act, map[string]string{}
	}
	lost := func(s *machineScene) {
		s.unseen["c1"] = true
		say(s.checks[0], mendv1.WorkloadClusterReachable, metav1.ConditionFalse, mendv1.UnreachableReason, at(time.Minute))
	}
	for name, edit := range map[string]func(*machineScene){
		"a check of a paused cluster keeps its conditions": func(s *machineScene) {
			s.clusters[0].Spec.Paused = ptr.To(true)
			bad(s, "m", time.Hour)
		},
		"a check that is not claimed and that is acted on says that its cluster is paused": func(s *machineScene) {
			s.clusters[0].Spec.Paused = ptr.To(true)
			unclaimed(s)
		},
		"a check without its cluster says so": func(s *machineScene) { s.clusters = nil },
		"the manager also says in a check that is not claimed that it cannot see the cluster": func(s *machineScene) {
			unclaimed(s)
			lost(s)
			bad(s, "m", time.Hour)
		},
		"what a machine says of itself comes due though its node cannot be seen": func(s *machineScene) {
			lost(s)
			s.checks[0].Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
				{Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
			}
			say(s.aMachine("m"), clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown, "NodeUnknown", at(time.Minute))
		},
		"who comes due while as many as may be are remediated has to wait": func(s *machineScene) {
			s.checks[0].Annotations[mendv1.MaxInFlightAnnotation] = "1"
			bad(s, "m0", time.Hour)
			bad(s, "m1", time.Minute)
		},
		"before its control plane is initialized it does not matter that the cluster cannot be seen": func(s *machineScene) {
			s.clusters[0].Status.Conditions[0].Status = metav1.ConditionFalse
			s.hidden["c1"] = true
			s.checks[0].Spec.Remediation.TriggerIf.UnhealthyInRange = "[2-3]"
			say(s.checks[0], clusterv1.MachineHealthCheckRemediationAllowedCondition, metav1.ConditionFalse,
				clusterv1.MachineHealthCheckTooManyUnhealthyReason, at(time.Minute))
			s.aMachine("m")
		},
		"a request cannot be made from a template for other objects": func(s *machineScene) {
			s.checks[0].Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
				APIVersion: mendv1.GroupVersion.String(), Kind: "OddRemediationTemplate", Name: "reboot",
			}
			bad(s, "m", time.Hour)
		},
		"a request that a check of the same name made for a machine that is healthy takes no place of another": func(s *machineScene) {
			s.checks[0].Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
				APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
			}
			s.checks[0].Annotations[mendv1.MaxInFlightAnnotation] = "1"
			bad(s, "m1", 0)
			s.aNode(s.aMachine("m0"), corev1.ConditionTrue, at(time.Hour))
			u := aRequest("HostRemediation", "m0")
			madeBy(u, "check-a", "another-uid")
			s.others = append(s.others, u)
		},
	} {
		t.Run(name, func(t *testing.T) {
			aMachineScene(edit).play(t).story("check-a")
		})
	}
}
