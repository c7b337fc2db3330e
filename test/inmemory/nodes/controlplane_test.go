package nodes

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
)

// cluster makes the Cluster that the nodes belong to, managed from the cluster itself.
func (e *environment) cluster() *clusterv1.Cluster {
	c := builders.Cluster(e.namespace, "c")
	e.makes(c)
	return c
}

// machine makes the Machine "m-<node>" of a node, and the node name it.
func (e *environment) machine(c *clusterv1.Cluster, node string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	e.Helper()
	m := builders.ControlPlaneMachine(c, "m-"+node, edits...)
	if _, is := e.getNode(node).Labels["node-role.kubernetes.io/control-plane"]; !is {
		delete(m.Labels, clusterv1.MachineControlPlaneLabel)
	}
	e.makes(m)
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: node}
	e.must(e.here.Status().Update(e.Context(), m))
	e.changeNode(node, annotated(map[string]string{
		clusterv1.MachineAnnotation: m.Name, clusterv1.ClusterNamespaceAnnotation: m.Namespace, clusterv1.ClusterNameAnnotation: c.Name,
	}))
	return m
}

// annotates sets an annotation of obj.
func (e *environment) annotates(obj client.Object, key, value string) {
	e.Helper()
	builders.Annotated[client.Object](key, value)(obj)
	e.must(e.here.Update(e.Context(), obj))
}

// skipped expects that a check has told why it remediates a node no further, in these words.
func (e *environment) skipped(check string, words ...string) {
	GinkgoHelper()
	all := HavePrefix("Warning [remediation] ")
	for _, w := range words {
		all = And(all, ContainSubstring(w))
	}
	Eventually(e.events(check, "RemediationSkipped")).Should(ContainElement(all))
}

var _ = Describe("Nodes of Cluster API,", func() {
	once("seed 2.5: a node is left to an acting MachineHealthCheck that selects its Machine, and no other node is", func(s *environment) {
		c := s.cluster()
		s.workers(5)
		watched := func(m *clusterv1.Machine) { m.Labels["watched"] = "yes" }
		s.machine(c, "w1", watched)
		s.machine(c, "w2")
		check := builders.MachineHealthCheck(c, "mhc", func(m *clusterv1.MachineHealthCheck) {
			m.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"watched": "yes"}}
		})
		s.makes(check)
		s.check("check", s.by(s.template(reboot, "soft")))
		s.fails("w1", "w2")
		s.request("w2")
		s.skipped("check", "w1", "MachineHealthCheck "+s.namespace+"/mhc watches its Machine m-w1")
		Expect(s.of("w1")).To(BeEmpty())
		Eventually(s.checkSays("check", "Disabled")).Should(Equal("False/NodeHealthCheckEnabled"))

		s.annotates(check, clusterv1.PausedAnnotation, "kubemend") // claimed: it is kubemend that acts
		s.settle("check")
		Expect(s.of("w1")).To(BeEmpty())
		s.annotates(check, clusterv1.PausedAnnotation, "somebody")
		s.request("w1")
	})

	once("W29, seed 1.6, 2.7: nothing starts while their Cluster is rolled out, and it starts afterwards", func(s *environment) {
		c := s.cluster()
		rolls := func(status metav1.ConditionStatus) {
			GinkgoHelper()
			before := c.DeepCopy()
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()}}
			Expect(s.here.Status().Patch(s.Context(), c, client.MergeFrom(before))).To(Succeed())
		}
		rolls(metav1.ConditionTrue)
		s.workers(3)
		s.machine(c, "w1")
		s.check("check", s.by(s.template(reboot, "soft")))
		s.fails("w1")
		Eventually(s.allowed("check")).Should(Equal("False/ClusterUpgrading"))
		Expect(s.message("check", "RemediationAllowed")()).To(Equal(
			"Postponing potential remediations because of ongoing cluster upgrade: Cluster " + s.namespace + "/c is rolling out"))
		Expect(s.of("w1")).To(BeEmpty())
		rolls(metav1.ConditionFalse)
		s.request("w1")
	})

	for _, r := range []remediator{metal3, hosts} {
		in(ladders, fmt.Sprintf("W33: a %s is named after the Machine, owned by it and the check, and followed by the next step at its timeout", r.kind.Kind),
			func(s *environment) {
				c := s.cluster()
				s.workers(3)
				m := s.machine(c, "w1")
				check := s.check("check", escalating(s.template(r, "cycle"), s.template(reboot, "soft")))
				s.fails("w1")
				req := s.request("w1")
				Expect(req.GetName()).To(Equal("m-w1"))
				Expect(req.GetAnnotations()).To(HaveKeyWithValue("remediation.medik8s.io/node-name", "w1"))
				owners := req.GetOwnerReferences()
				Expect(owners).To(HaveLen(2))
				Expect(owners[0].UID).To(Equal(check.UID))
				Expect(owners[1]).To(Equal(metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m-w1", UID: m.UID}))
				Eventually(s.listed("check")).Should(Equal([]string{"w1: " + short(r.kind.Kind) + "/cycle"}))
				s.leaps(step)
				Eventually(s.requested("w1")).Should(Equal([]string{short(r.kind.Kind) + "/cycle", "Reboot/soft"}))
				s.recovers("w1")
				Eventually(s.requested("w1")).Should(BeEmpty())
			})

		once(fmt.Sprintf("C31, W33: no %s is made for a node without a Machine, or outside the Machine's namespace", r.kind.Kind),
			func(s *environment) {
				c := s.cluster()
				s.workers(5)
				s.machine(c, "w1")
				s.check("check", s.by(s.template(r, "far", func(t *unstructured.Unstructured) { t.SetNamespace(s.elsewhere) })))
				s.fails("w1", "w2")
				s.skipped("check", "w1", fmt.Sprintf("%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s",
					r.templates().Kind, s.namespace, s.elsewhere))
				s.skipped("check", "w2", "remediates Machines of Cluster API, and this node has no Machine in this cluster")
				Eventually(s.listed("check")).Should(Equal([]string{"w1", "w2"}))
				Expect(s.nodesRequested()()).To(BeEmpty())
				Expect(s.leases()).NotTo(HaveKey("w1"))
			})
	}

	once("a Machine that names another node does not count as the node's", func(s *environment) {
		s.workers(3)
		m := s.machine(s.cluster(), "w1")
		m.Status.NodeRef.Name = "other"
		Expect(s.here.Status().Update(s.Context(), m)).To(Succeed())
		s.annotates(m, clusterv1.MachineSkipRemediationAnnotation, "yes")
		s.check("check", s.by(s.template(selfNode, "automatic")))
		s.fails("w1")
		Expect(s.request("w1").GetOwnerReferences()).To(HaveLen(1))
	})
})
