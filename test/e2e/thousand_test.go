package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/spec"
)

const (
	many = 1000
	few  = 30
	// writersAtOnce is how many objects are written at the same time.
	writersAtOnce = 16
)

// crowd is a cluster of many machines that nobody looks after but kubemend: what they report, the spec writes.
type crowd struct {
	here, there client.Client
	cluster     *clusterv1.Cluster
}

var _ = Describe("A thousand machines", func() {
	It("are all judged, and exactly those are handed over that are bad", func(ctx SpecContext) {
		plane, err := control.Management(ctx, rig.ManagementOptions{Name: "many", Audit: true})
		Expect(err).NotTo(HaveOccurred())
		nodes, err := control.Workload(ctx, "many-nodes", rig.WorkloadOptions{Bare: true, Audit: true})
		Expect(err).NotTo(HaveOccurred())
		c := &crowd{here: clientFor(plane.Config()), there: clientFor(nodes.Config())}
		c.buildCluster(ctx, nodes)
		account, err := plane.Install(ctx, "default")
		Expect(err).NotTo(HaveOccurred())
		_, err = plane.Kubemend(ctx, "many", account)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { spec.NothingForbidden([]*rig.ControlPlane{plane, nodes}) })

		check, err := builders.Template("machine-health-check-workers-v1beta2.yaml", map[string]string{"CLUSTER_NAME": quickstart})
		Expect(err).NotTo(HaveOccurred())
		Expect(builders.Apply(ctx, c.here, check)).To(Succeed())
		Eventually(func(g Gomega) {
			is := &clusterv1.MachineHealthCheck{}
			g.Expect(c.here.Get(ctx, client.ObjectKeyFromObject(check), is)).To(Succeed())
			g.Expect(is.Status.CurrentHealthy).To(HaveValue(BeEquivalentTo(many)))
			g.Expect(c.unhealthy(ctx, g)).To(BeEmpty())
		}).WithTimeout(4 * time.Minute).WithPolling(time.Second).Should(Succeed())

		bad := map[string]bool{}
		for n := range few {
			bad[machineName(n*many/few)] = true
		}
		began := time.Now()
		spec.AtOnce(writersAtOnce, few, func(n int) { Expect(c.silence(ctx, machineName(n*many/few))).To(Succeed()) })
		Eventually(func(g Gomega) { g.Expect(c.unhealthy(ctx, g)).To(Equal(bad)) }).Should(Succeed())
		AddReportEntry("from the first node that turned bad to the last machine that was handed over", time.Since(began).String())
		Consistently(func(g Gomega) { g.Expect(c.unhealthy(ctx, g)).To(Equal(bad)) }).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(10*time.Minute))
})

func machineName(n int) string { return fmt.Sprintf("machine-%04d", n) }

func (c *crowd) buildCluster(ctx context.Context, nodes *rig.ControlPlane) {
	GinkgoHelper()
	c.cluster = builders.Cluster(defaultNamespace, quickstart)
	ofManager, err := nodes.GrantWorkloadUser(ctx, reader)
	Expect(err).NotTo(HaveOccurred())
	Expect(builders.Apply(ctx, c.here, rig.SharedKubeconfigSecret(client.ObjectKeyFromObject(c.cluster), nodes, ofManager), c.cluster)).To(Succeed())
	c.cluster.Status = builders.Standing()
	Expect(c.here.Status().Update(ctx, c.cluster)).To(Succeed())
	spec.AtOnce(writersAtOnce, many, func(n int) { Expect(c.add(ctx, machineName(n))).To(Succeed()) })
}

// add makes a machine with its node, both well.
func (c *crowd) add(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}}
	if err := c.there.Create(ctx, node); err != nil {
		return err
	}
	m := builders.ControlPlaneMachine(c.cluster, name, func(m *clusterv1.Machine) {
		delete(m.Labels, clusterv1.MachineControlPlaneLabel)
		m.Labels["nodepool"] = "nodepool-0"
	})
	if err := c.here.Create(ctx, m); err != nil {
		return err
	}
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: name}
	m.Status.Conditions = []metav1.Condition{builders.LongTrue(clusterv1.MachineInfrastructureReadyCondition)}
	return c.here.Status().Update(ctx, m)
}

// silence makes a node look as if nothing had been heard of it for half an hour.
func (c *crowd) silence(ctx context.Context, name string) error {
	node := &corev1.Node{}
	if err := c.there.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	before := node.DeepCopy()
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-30 * time.Minute))
	return c.there.Status().Patch(ctx, node, client.MergeFrom(before))
}

// unhealthy are the machines that owners would see as handed over. Of every other machine it must be said that it is well.
func (c *crowd) unhealthy(ctx context.Context, g Gomega) map[string]bool {
	list := &clusterv1.MachineList{}
	g.Expect(c.here.List(ctx, list)).To(Succeed())
	g.Expect(list.Items).To(HaveLen(many))
	found := map[string]bool{}
	for i := range list.Items {
		m := &list.Items[i]
		if collections.IsUnhealthyAndOwnerRemediated(m) {
			found[m.Name] = true
			continue
		}
		g.Expect(conditions.IsTrue(m, clusterv1.MachineHealthCheckSucceededCondition)).To(BeTrue(), m.Name)
		g.Expect(conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse(), m.Name)
	}
	return found
}
