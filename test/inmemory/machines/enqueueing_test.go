package machines

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
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

		s.nodeReports("a", "KernelDeadlock", corev1.ConditionTrue, 0)
		time.Sleep(long)

		for i, twin := range twins {
			s.Eventually(twin.health(names[i])).Should(Equal(silent))
		}
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

		s.change("a", annotated("example.org/news")) // may be a mark by hand
		s.Eventually(s.reconciles).Should(Equal(before + 1))
	})
}

func TestW11ReconcilesAHeartbeatOfANodeCausesNoReconcileAndNoWrite(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		before, versions := s.settles(), s.versions()
		for range 20 {
			node := &corev1.Node{}
			s.Expect(s.there.Get(s.ctx, client.ObjectKey{Name: s.node("a")}, node)).To(Succeed())
			for i := range node.Status.Conditions {
				node.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
			}
			s.Expect(s.there.Status().Update(s.ctx, node)).To(Succeed())
			time.Sleep(time.Second)
		}
		s.Expect(s.reconciles()).To(Equal(before))
		s.Expect(s.versions()).To(Equal(versions))
	})
}

func TestW12ReconcilesABurstOfChangesCausesAFewNotOneForEachMachine(t *testing.T) {
	run(t, func(s *environment) {
		var names []string
		for i := range 30 {
			names = append(names, fmt.Sprintf("m%02d", i))
		}
		s.workers(names...)
		s.check("check")
		before := s.settles()

		for _, name := range names {
			s.nodeReports(name, corev1.NodeReady, corev1.ConditionUnknown, 0)
		}
		turned := s.settles()
		s.Expect(turned - before).To(BeNumerically("<", 5))
		time.Sleep(patience)
		s.Expect(s.settles() - turned).To(BeNumerically("<", 5))
		s.Expect(s.counts("check")()).To(Equal([]int32{30, 0, 0}))
	})
}

func TestW12ReconcilesOneChangeCausesOneAndWhatKubemendWritesNone(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c", "d")
		s.check("check")
		last := s.settles()
		for i, name := range []string{"a", "b", "c"} {
			s.nodeReports(name, corev1.NodeReady, corev1.ConditionUnknown, 0)
			turned := s.settles()
			s.Expect(turned-last).To(BeNumerically("<=", 3), name) // one of them writes the numbers, a second later
			time.Sleep(patience)
			s.Eventually(s.owner(name)).Should(Equal(ownerRequested))
			s.Eventually(s.counts("check")).Should(Equal([]int32{4, int32(3 - i), int32(3 - i)}))
			// A second one says on the check what its record says that the capacity waits for.
			// Before the first one it does not know yet which power cycles are under way. The event of a mark may come before the answer.
			now := s.settles()
			s.Expect(now-turned).To(BeNumerically("<=", 4), name)
			last = now
		}
	})
}

// A controller that replaces the conditions of Machines by its own list.
func TestConditionsThatAreRemovedAgainAndAgainAreSetEverMoreRarely(t *testing.T) {
	for _, kind := range []string{
		mendv1.Remediation, clusterv1.MachineOwnerRemediatedCondition, clusterv1.MachineHealthCheckSucceededCondition,
	} {
		removed := func(m *clusterv1.Machine) { conditions.Delete(m, kind) }
		run(t, func(s *environment) {
			s.workers("a")
			s.check("check")
			s.fallsSilent("a")
			s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
			onMachines := func(call apiserver.Call) bool { return call.Writes() && call.Resource == "machines" }
			_, before := s.calls(0, onMachines)
			for range 600 { // ten minutes
				s.change("a", removed)
				time.Sleep(time.Second)
			}
			writes, _ := s.calls(before, onMachines)
			s.Expect(writes["patch machines"]).To(And(BeNumerically(">=", 8), BeNumerically("<=", 20)), kind)
			s.Expect(s.events("a", mendv1.EventUndone)()).To(Equal(1), kind)
		})
	}
}

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
		s.change(name(replaced), annotated(clusterv1.RemediateMachineAnnotation))
		lasts(2 * time.Second)
		s.Expect(replaced).To(Equal(5), "a person does not wait")
	})
}
