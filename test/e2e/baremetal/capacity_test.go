package baremetal

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

// Cluster API core says what the drain waits for, in words that the manager quotes. All other waits are tested in memory, in
// controllers/remediationrecord.
var _ = Describe("The capacity of a worker whose drain a PodDisruptionBudget blocks", func() {
	It("is missing until the budget is gone, and back with the replacement, in the record, the check, the events and for kubectl", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		name, host := fixture.aWorker(ctx)
		budget := fixture.guarded(ctx, name)
		check := builders.MachineHealthCheck(fixture.Cluster, "capacity", builders.Claimed, builders.Patience(2*time.Second))
		Expect(builders.Apply(ctx, here, check)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, check))).To(Succeed()) })
		lost := fixture.storyOf(ctx, name)
		Eventually(func(g Gomega) []mendv1.RemediationRecord {
			open := &mendv1.RemediationRecordList{}
			ofIt := client.MatchingLabels{mendv1.RecordTargetLabel: string(lost.uid), mendv1.RecordOpenLabel: "true"}
			g.Expect(here.List(ctx, open, ofIt)).To(Succeed())
			return open.Items
		}).Should(BeEmpty(), "a remediation joins the open record of one before it, such as a power cycle of another spec")

		host.Kubelet().Report(corev1.NodeReady, corev1.ConditionFalse, "KubeletSays")

		By("waiting for the budget")
		Eventually(func() []mendv1.RecordStep { return fixture.recordOf(ctx, lost).Status.Steps }).Should(
			ContainElement(HaveField("Reason", "DrainBlockedByBudget")))
		Eventually(capacityOf(ctx, check)).Should(Equal("False DrainBlockedByBudget"))
		Expect(fixture.There.Delete(ctx, budget)).To(Succeed())

		By("waiting for the replacement")
		Eventually(func() *metav1.Time { return fixture.recordOf(ctx, lost).Status.Ended }).ShouldNot(BeNil())
		fixture.AllWell(ctx)
		record := fixture.recordOf(ctx, lost)
		Expect(record.Status.Outcome).To(Equal(mendv1.RecordReplaced))
		Expect(fixture.WorkerNames(ctx)).To(ContainElement(record.Status.Replacement.Machine.Name))
		Expect(record.Spec.Target.Host).To(HaveValue(HaveField("Name", host.Key().Name)))
		Expect(record.OwnerReferences).To(ConsistOf(HaveField("UID", fixture.Cluster.UID)))
		Eventually(capacityOf(ctx, check)).Should(HavePrefix("True "))
		Eventually(fixture.recordedEvents(ctx, "MachineHealthCheck", check.Name, lost.began)).Should(HaveKey("CapacityBack"))

		By("asking kubectl")
		kubectl := func(args ...string) string { return suite.Kubectl(ctx, management, fixture.Namespace, args...) }
		shown := strings.Fields(kubectl("get", "rrec", record.Name, "-o", "wide", "--no-headers"))
		Expect(shown[1:8]).To(Equal([]string{fixture.Name, name, name, host.Key().Name, check.Name, "Ready=False", "Replaced"}))
		Expect(shown).To(HaveLen(11), "it says how capacity came back, when it began and when capacity was back")
		Expect(kubectl("mend", "history", "machine/"+name)).To(And(
			ContainSubstring("RemediationDecided"), ContainSubstring("DrainBlockedByBudget"), ContainSubstring("Replaced")))
		for _, object := range []string{"machine/" + name, "machinedeployment/" + fixture.Pool(), "cluster/" + fixture.Name} {
			Expect(kubectl("mend", "wait", object, "--for=capacity-back", "--timeout=5m")).To(ContainSubstring("condition met"))
		}
	}, SpecTimeout(specPatience))
})

// guarded puts a pod on the node of a worker, and a budget that allows no disruption of it, for as long as the spec runs.
func (env *environment) guarded(ctx context.Context, worker string) *policyv1.PodDisruptionBudget {
	GinkgoHelper()
	labels := map[string]string{"app": "guarded"}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "guarded"}}
	budget.Spec.MinAvailable, budget.Spec.Selector = ptr.To(intstr.FromInt32(1)), &metav1.LabelSelector{MatchLabels: labels}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "guarded", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: worker, Containers: []corev1.Container{{Name: "app", Image: "simulated/app"}}},
	}
	for _, o := range []client.Object{budget, pod} {
		Expect(env.There.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(env.There.Delete(ctx, o))).To(Succeed()) })
	}
	Eventually(func(g Gomega) {
		g.Expect(env.There.Get(ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
		g.Expect(budget.Status.CurrentHealthy).To(BeEquivalentTo(1))
	}).Should(Succeed())
	return budget
}

// recordOf is the record of a machine that is lost; an empty one as long as there is none.
func (env *environment) recordOf(ctx context.Context, lost story) *mendv1.RemediationRecord {
	GinkgoHelper()
	list := &mendv1.RemediationRecordList{}
	ofIt := client.MatchingLabels{mendv1.RecordTargetLabel: string(lost.uid)}
	Expect(here.List(ctx, list, client.InNamespace(env.Namespace), ofIt)).To(Succeed())
	for i := range list.Items {
		if r := &list.Items[i]; r.Spec.Remediator == mendv1.RemediatedByOwner {
			return r
		}
	}
	return &mendv1.RemediationRecord{}
}

// capacityOf is what a check says of missing capacity, as its status and its reason.
func capacityOf(ctx context.Context, check *clusterv1.MachineHealthCheck) func(Gomega) string {
	return func(g Gomega) string {
		now := &clusterv1.MachineHealthCheck{}
		g.Expect(here.Get(ctx, client.ObjectKeyFromObject(check), now)).To(Succeed())
		c := conditions.Get(now, mendv1.CapacityBack)
		g.Expect(c).NotTo(BeNil())
		return string(c.Status) + " " + c.Reason
	}
}
