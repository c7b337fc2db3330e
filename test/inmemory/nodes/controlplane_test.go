package nodes

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
)

// cluster makes the Cluster that the nodes belong to, managed from the cluster itself.
func (s *environment) cluster(ctx context.Context) *clusterv1.Cluster {
	GinkgoHelper()
	c := builders.Cluster(s.name, "c")
	Expect(s.here.Create(ctx, c)).To(Succeed())
	return c
}

// machine makes the Machine "m-<node>" of a node, and the node name it.
func (s *environment) machine(ctx context.Context, c *clusterv1.Cluster, node string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	GinkgoHelper()
	m := builders.ControlPlaneMachine(c, "m-"+node, edits...)
	if _, is := s.getNode(ctx, node).Labels["node-role.kubernetes.io/control-plane"]; !is {
		delete(m.Labels, clusterv1.MachineControlPlaneLabel)
	}
	Expect(s.here.Create(ctx, m)).To(Succeed())
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: s.called(node)}
	Expect(s.here.Status().Update(ctx, m)).To(Succeed())
	s.changeNode(ctx, node, annotated(map[string]string{
		clusterv1.MachineAnnotation: m.Name, clusterv1.ClusterNamespaceAnnotation: m.Namespace, clusterv1.ClusterNameAnnotation: c.Name,
	}))
	return m
}

// annotates sets an annotation of obj, or removes it if it has no value.
func (s *environment) annotates(ctx context.Context, obj client.Object, key, value string) {
	GinkgoHelper()
	before := obj.DeepCopyObject().(client.Object)
	all := obj.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	if value == "" {
		delete(all, key)
	}
	obj.SetAnnotations(all)
	Expect(s.here.Patch(ctx, obj, client.MergeFrom(before))).To(Succeed())
}

// skipped waits until a check has told why it remediates a node no further, in these words.
func (s *environment) skipped(ctx context.Context, check string, words ...string) {
	GinkgoHelper()
	all := HavePrefix("Warning [remediation] ")
	for _, w := range words {
		all = And(all, ContainSubstring(w))
	}
	Eventually(s.events(ctx, check, "RemediationSkipped")).Should(ContainElement(all))
}

var _ = Describe("Nodes of Cluster API,", func() {
	once("seed 2.5: a node is left to an acting MachineHealthCheck that selects its Machine, and no other node is", func(ctx context.Context, s *environment) {
		c := s.cluster(ctx)
		s.workers(ctx, 5)
		watched := func(m *clusterv1.Machine) { m.Labels["watched"] = "yes" }
		s.machine(ctx, c, "w1", watched)
		s.machine(ctx, c, "w2")
		check := builders.MachineHealthCheck(c, "mhc", func(m *clusterv1.MachineHealthCheck) {
			m.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"watched": "yes"}}
		})
		Expect(s.here.Create(ctx, check)).To(Succeed())
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1", "w2")
		s.request(ctx, "w2")
		s.skipped(ctx, "check", "w1", "MachineHealthCheck "+s.name+"/mhc watches its Machine m-w1")
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		Eventually(s.of(ctx, "check", "Disabled")).Should(Equal("False/NodeHealthCheckEnabled"))

		s.annotates(ctx, check, clusterv1.PausedAnnotation, "kubemend") // claimed: it is kubemend that acts
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		s.annotates(ctx, check, clusterv1.PausedAnnotation, "somebody")
		s.request(ctx, "w1")
	})

	once("W29, seed 1.6, 2.7: nothing starts while their Cluster is rolled out, and it starts afterwards", func(ctx context.Context, s *environment) {
		c := s.cluster(ctx)
		rolls := func(status metav1.ConditionStatus) {
			GinkgoHelper()
			before := c.DeepCopy()
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()}}
			Expect(s.here.Status().Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		}
		rolls(metav1.ConditionTrue)
		s.workers(ctx, 3)
		s.machine(ctx, c, "w1")
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		Eventually(s.allowed(ctx, "check")).Should(Equal("False/ClusterUpgrading"))
		Expect(s.message(ctx, "check", "RemediationAllowed")()).To(Equal(
			"Postponing potential remediations because of ongoing cluster upgrade: Cluster " + s.name + "/c is rolling out"))
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		rolls(metav1.ConditionFalse)
		s.request(ctx, "w1")
	})

	for _, r := range []remediator{metal3, hosts} {
		in(ladders, fmt.Sprintf("W33: a %s is named after the Machine, owned by it and the check, and followed by the next step at its timeout", r.kind.Kind),
			func(ctx context.Context, s *environment) {
				c := s.cluster(ctx)
				s.workers(ctx, 3)
				m := s.machine(ctx, c, "w1")
				template := s.template(ctx, r, "cycle", func(t *unstructured.Unstructured) {
					t.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
				})
				check := s.check(ctx, "check", ladder(step, template, s.template(ctx, reboot, "soft")))
				s.fails(ctx, "w1")
				req := s.request(ctx, "w1")
				Expect(req.GetName()).To(Equal("m-w1"))
				Expect(req.GetAnnotations()).To(HaveKeyWithValue("remediation.medik8s.io/node-name", s.called("w1")))
				owners := req.GetOwnerReferences()
				Expect(owners).To(HaveLen(2))
				Expect(owners[0].UID).To(Equal(check.UID))
				Expect(owners[1]).To(Equal(metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m-w1", UID: m.UID}))
				Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: " + r.kind.Kind + "/cycle"}))
				s.clock.Step(step)
				Eventually(s.requested(ctx, "w1")).Should(Equal([]string{r.kind.Kind + "/cycle", "RebootRemediation/soft"}))
				s.recovers(ctx, "w1")
				Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
			})

		once(fmt.Sprintf("C31, W33: no %s is made for a node without a Machine, or outside the Machine's namespace", r.kind.Kind),
			func(ctx context.Context, s *environment) {
				c := s.cluster(ctx)
				s.workers(ctx, 5)
				s.machine(ctx, c, "w1")
				far := r.object(s.elsewhere, "far")
				far.SetGroupVersionKind(r.templates())
				far.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
				Expect(s.here.Create(ctx, far)).To(Succeed())
				s.kinds[r] = true
				s.check(ctx, "check", s.by(corev1.ObjectReference{
					APIVersion: far.GetAPIVersion(), Kind: far.GetKind(), Namespace: s.elsewhere, Name: "far",
				}))
				s.fails(ctx, "w1", "w2")
				s.skipped(ctx, "check", "w1", fmt.Sprintf("%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s",
					far.GetKind(), s.name, "elsewhere"))
				s.skipped(ctx, "check", "w2", "remediates Machines of Cluster API, and this node has no Machine in this cluster")
				Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1", "w2"}))
				Expect(s.nodesRequested(ctx)()).To(BeEmpty())
				Expect(s.lease(ctx, "w1")).To(BeNil())
			})
	}

	once("a Machine that names another node does not count as the node's", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		m := s.machine(ctx, s.cluster(ctx), "w1")
		m.Status.NodeRef.Name = "other"
		Expect(s.here.Status().Update(ctx, m)).To(Succeed())
		s.annotates(ctx, m, clusterv1.MachineSkipRemediationAnnotation, "yes")
		s.check(ctx, "check", s.by(s.template(ctx, selfNode, "automatic")))
		s.fails(ctx, "w1")
		Expect(s.request(ctx, "w1").GetOwnerReferences()).To(HaveLen(1))
	})
})
