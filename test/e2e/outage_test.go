package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// startup is the time that a node has to appear in. It is over before the outage of the spec is.
const startup = 45 * time.Second

var _ = Describe("A workload cluster whose API server is down", func() {
	// The cluster is one of its own, and none of its controllers runs: kube-controller-manager would be blind for a
	// minute after the outage, and then call nodes Unknown that are not.
	env := &environment{namespace: "outage", controlPlanes: 1, workers: 3}
	BeforeEach(func(ctx SpecContext) {
		var err error
		env.plane, err = control.Workload(ctx, "outage", rig.WorkloadOptions{Bare: true, Audit: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { suite.NothingForbidden([]*rig.ControlPlane{env.plane}) })
		env.build(ctx, "outage")
		env.allHealthy(ctx)
	})
	AfterEach(func(ctx SpecContext) {
		provider.RefuseToStart(nil)
		Expect(here.DeleteAllOf(ctx, &clusterv1.MachineHealthCheck{}, client.InNamespace(env.namespace))).To(Succeed())
	})

	It("starts and ends no remediation because of it, respects marks by users, and is judged again afterwards", func(ctx SpecContext) {
		check := env.applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{
			"NODE_STARTUP_TIMEOUT": startup.String(), "MAX_UNHEALTHY": "100%",
		})
		Eventually(env.counts(ctx, check.Name)).Should(Equal("3 of 3"))
		starting, startedAt := env.startsSlowly(ctx)
		Eventually(env.counts(ctx, check.Name)).Should(Equal("3 of 4"))
		before, saidBefore := env.identities(ctx), env.healthOfAll(ctx)

		By("taking the API server away")
		Expect(env.plane.StopAPIServer(ctx)).To(Succeed())
		lostAt := time.Now()
		Eventually(env.said(ctx, check.Name, mendv1.WorkloadClusterReachable)).Should(Equal("False/Unreachable"))
		reach := conditions.Get(env.getCheck(ctx, check.Name), mendv1.WorkloadClusterReachable)
		Expect(reach.LastTransitionTime.Time).To(BeTemporally(">=", lostAt.Truncate(time.Second)))
		Expect(reach.Message).To(ContainSubstring(reach.LastTransitionTime.UTC().Format(time.RFC3339)))

		By("waiting until the connection is given up, and the start-up timeout is over")
		nothingChanges := func(g Gomega) {
			env.untouched(ctx, before)(g)
			g.Expect(env.healthOfAll(ctx)).To(Equal(saidBefore))
		}
		Consistently(nothingChanges).WithTimeout(time.Until(startedAt.Add(startup + 3*time.Second))).Should(Succeed())
		Eventually(func(g Gomega) {
			nothingChanges(g)
			g.Expect(suite.Metric(ctx, manager, "capi_cluster_cache_connection_up", `="outage"`)(g)).To(Equal("0"))
		}).Should(Succeed())

		By("marking a machine")
		marked := env.workerNames(ctx)[0]
		if marked == starting {
			marked = env.workerNames(ctx)[1]
		}
		env.annotate(ctx, marked, clusterv1.RemediateMachineAnnotation)
		Eventually(env.saidOf(ctx, marked, clusterv1.MachineHealthCheckSucceededCondition)).Should(Equal("False/HasRemediateAnnotation"))
		Eventually(func() bool {
			m := env.machines(ctx)[marked]
			return m == nil || m.DeletionTimestamp != nil
		}).Should(BeTrue(), "its MachineSet has deleted it")

		By("giving the API server back")
		Expect(env.plane.StartAPIServer(ctx)).To(Succeed())
		provider.RefuseToStart(nil)
		env.kubelet(starting).Start()
		Eventually(env.said(ctx, check.Name, mendv1.WorkloadClusterReachable)).Should(Equal("True/ReachableAgain"))
		Eventually(env.counts(ctx, check.Name)).Should(Equal("4 of 4"))
		env.replaced(ctx, before, marked)
		Eventually(env.counts(ctx, check.Name)).Should(Equal("4 of 4"))
		Expect(env.events(ctx, check, starting, mendv1.EventMachineMarkedUnhealthy)()).To(BeZero())

		By("deleting a node, of which only a watch on the new connection can tell")
		before, lost := env.identities(ctx), starting
		Expect(env.there.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lost}})).To(Succeed())
		env.replaced(ctx, before, lost)
		Expect(env.events(ctx, check, check.Name, mendv1.EventUnreachable)()).To(Equal(1))
		Expect(env.events(ctx, check, check.Name, mendv1.EventReachable)()).To(Equal(1))
	}, SpecTimeout(specPatience))
})

// startsSlowly adds a worker whose kubelet does not come up, and returns its name and from when its node is awaited.
func (env *environment) startsSlowly(ctx context.Context) (name string, awaited time.Time) {
	GinkgoHelper()
	old := env.identities(ctx)
	provider.RefuseToStart(func(machine client.ObjectKey) bool { _, known := old[machine.Name]; return !known })
	env.scale(ctx, env.workers+1)
	Eventually(func(g Gomega) {
		for candidate, m := range env.machines(ctx) {
			ready := conditions.Get(m, clusterv1.MachineInfrastructureReadyCondition)
			if _, known := old[candidate]; !known && m.Labels["nodepool"] != "" && ready != nil && ready.Status == metav1.ConditionTrue {
				name, awaited = candidate, ready.LastTransitionTime.Time
			}
		}
		g.Expect(name).NotTo(BeEmpty())
		g.Expect(env.kubelet(name)).NotTo(BeNil())
	}).Should(Succeed())
	return name, awaited
}

// scale sets how many workers there are to be.
func (env *environment) scale(ctx context.Context, number int32) {
	GinkgoHelper()
	deployment := &clusterv1.MachineDeployment{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: env.namespace, Name: env.pool()}, deployment)).To(Succeed())
	before := deployment.DeepCopy()
	deployment.Spec.Replicas = ptr.To(number)
	Expect(here.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
}

// healthOfAll is what is said of the health of all machines, with the time since when.
func (env *environment) healthOfAll(ctx context.Context) map[string]*metav1.Condition {
	GinkgoHelper()
	health := map[string]*metav1.Condition{}
	for name, m := range env.machines(ctx) {
		health[name] = conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition)
	}
	return health
}
