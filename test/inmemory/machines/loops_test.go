package machines

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// machineSet makes the owner of the environment's machines.
func (s *environment) machineSet() *clusterv1.MachineSet {
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.cluster.Namespace, Name: "workers", Labels: map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
	}}
	set.Spec.ClusterName, set.Spec.Replicas = s.cluster.Name, new(int32(1))
	set.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}}
	s.Expect(s.here.Create(s.ctx, set)).To(Succeed())
	return set
}

// failing makes a machine of an owner whose provider cannot make it, which says so: it never gets a node.
func (s *environment) failing(name string, owner *clusterv1.MachineSet) {
	s.machine(name, func(m *clusterv1.Machine) {
		m.OwnerReferences[0].Name, m.OwnerReferences[0].UID = owner.Name, owner.UID
		m.Status.Conditions = []metav1.Condition{condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionFalse, 0)}
	})
}

// replaces replaces a machine as soon as its owner is asked to, as a MachineSet does, and reports whether it did.
func (s *environment) replaces(name, next string, owner *clusterv1.MachineSet) bool {
	if s.owner(name)() != ownerRequested {
		return false
	}
	s.Expect(client.IgnoreNotFound(s.here.Delete(s.ctx, s.get(name)))).To(Succeed())
	s.failing(next, owner)
	return true
}

func infrastructureFails(check *clusterv1.MachineHealthCheck) {
	check.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionFalse, TimeoutSeconds: new(int32(0)),
	}}
}

// It was replaced 600 times in ten minutes.
func TestAMachineThatIsReplacedBeforeItEverHadANodeIsReplacedEverMoreRarely(t *testing.T) {
	run(t, func(s *environment) {
		owner, replaced := s.machineSet(), 0
		s.check("check", infrastructureFails)
		s.failing("worker-0", owner)
		name := func(n int) string { return fmt.Sprintf("worker-%d", n) }
		lasts := func(d time.Duration) {
			for begin := time.Now(); time.Since(begin) < d; time.Sleep(time.Second) {
				if s.replaces(name(replaced), name(replaced+1), owner) {
					replaced++
				}
			}
		}
		lasts(10 * time.Minute)
		s.Expect(replaced).To(Equal(4), "at once, and after 1, 2 and 4 minutes")
		waits := conditions.Get(s.get(name(replaced)), mendv1.Remediation)
		s.Expect(waits.Reason).To(Equal("RemediationLoop"))
		s.Expect(waits.Message).To(MatchRegexp(`Machines of MachineSet workers .* This ends at 2000-01-01T00:17:\d\dZ at the latest`))

		s.restart()
		lasts(3 * time.Minute)
		s.Expect(replaced).To(Equal(4), "another manager waits as well")
		s.change(name(replaced), annotated(clusterv1.RemediateMachineAnnotation, ""))
		lasts(2 * time.Second)
		s.Expect(replaced).To(Equal(5), "a person does not wait")
	})
}
