package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// outagePatience is for what waits for connections: ClusterCache gives one up after five probes of ten seconds, and
// tries a new one every half minute.
const outagePatience = 90 * time.Second

// startup is the time that a node has to appear in. It is over before the outage of the spec is.
const startup = 45 * time.Second

var _ = Describe("A workload cluster whose API server is down", func() {
	down := false
	BeforeEach(func(ctx SpecContext) { allWell(ctx) })
	AfterEach(func(ctx SpecContext) {
		if down {
			Expect(workload.StartAPIServer(ctx)).To(Succeed())
		}
		provider.RefuseToStart(nil)
		scale(ctx, workers)
		leaveAsFound(ctx)
	})

	It("has nothing begun or ended because of it, obeys marks by hand, and is judged again when it is back", func(ctx SpecContext) {
		// Nodes are Unknown for a moment when the API server is back, until their kubelets have renewed their leases: less
		// than the check's patience.
		check := applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{
			"NODE_UNHEALTHY_TIMEOUT": "60s", "NODE_STARTUP_TIMEOUT": startup.String(), "MAX_UNHEALTHY": "100%",
		})
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		starting, startedAt := startsSlowly(ctx)
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 6"))
		before, saidBefore := identities(ctx), healthOfAll(ctx)

		By("taking the API server away")
		Expect(workload.StopAPIServer(ctx)).To(Succeed())
		down = true
		lostAt := time.Now()
		Eventually(said(ctx, check.Name, mendv1.WorkloadClusterReachable)).WithTimeout(outagePatience).Should(Equal("False/Unreachable"))
		reach := conditions.Get(getCheck(ctx, check.Name), mendv1.WorkloadClusterReachable)
		Expect(reach.LastTransitionTime.Time).To(BeTemporally("~", lostAt, outagePatience))
		Expect(reach.Message).To(ContainSubstring(reach.LastTransitionTime.UTC().Format(time.RFC3339)))

		By("waiting until the connection is given up, and the start-up timeout is over")
		nothingChanges := func(g Gomega) {
			untouched(ctx, before)(g)
			g.Expect(healthOfAll(ctx)).To(Equal(saidBefore))
		}
		Consistently(nothingChanges).WithTimeout(time.Until(startedAt.Add(startup + 3*time.Second))).Should(Succeed())
		Eventually(func(g Gomega) {
			nothingChanges(g)
			g.Expect(metric(ctx, "capi_cluster_cache_connection_up")(g)).To(Equal("0"))
		}).WithTimeout(outagePatience).Should(Succeed())

		By("marking a machine")
		marked := workerNames(ctx)[0]
		if marked == starting {
			marked = workerNames(ctx)[1]
		}
		annotate(ctx, marked, clusterv1.RemediateMachineAnnotation)
		Eventually(saidOf(ctx, marked, clusterv1.MachineHealthCheckSucceededCondition)).Should(Equal("False/HasRemediateAnnotation"))
		Eventually(func() *metav1.Time { return machines(ctx)[marked].DeletionTimestamp }).ShouldNot(BeNil(), "its MachineSet has deleted it")

		By("giving the API server back")
		Expect(workload.StartAPIServer(ctx)).To(Succeed())
		down = false
		provider.RefuseToStart(nil)
		kubelet(starting).Start()
		Eventually(said(ctx, check.Name, mendv1.WorkloadClusterReachable)).WithTimeout(outagePatience).Should(Equal("True/ReachableAgain"))
		Eventually(counts(ctx, check.Name)).WithTimeout(outagePatience).Should(Equal("6 of 6"))
		replaced(ctx, before, marked)
		Expect(events(ctx, check, starting, mendv1.EventMachineMarkedUnhealthy)()).To(BeZero())
		Expect(events(ctx, check, check.Name, mendv1.EventUnreachable)()).To(Equal(1))
		Expect(events(ctx, check, check.Name, mendv1.EventReachable)()).To(Equal(1))
	}, SpecTimeout(6*time.Minute))
})

// startsSlowly adds a worker whose kubelet does not come up, and returns its name and from when its node is awaited.
func startsSlowly(ctx context.Context) (name string, awaited time.Time) {
	GinkgoHelper()
	old := identities(ctx)
	provider.RefuseToStart(func(machine client.ObjectKey) bool { _, known := old[machine.Name]; return !known })
	scale(ctx, workers+1)
	Eventually(func(g Gomega) {
		for candidate, m := range machines(ctx) {
			ready := conditions.Get(m, clusterv1.MachineInfrastructureReadyCondition)
			if _, known := old[candidate]; !known && m.Labels["nodepool"] != "" && ready != nil && ready.Status == metav1.ConditionTrue {
				name, awaited = candidate, ready.LastTransitionTime.Time
			}
		}
		g.Expect(name).NotTo(BeEmpty())
		g.Expect(kubelet(name)).NotTo(BeNil())
	}).Should(Succeed())
	return name, awaited
}

// scale sets how many workers there are to be.
func scale(ctx context.Context, number int32) {
	GinkgoHelper()
	deployment := &clusterv1.MachineDeployment{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pool}, deployment)).To(Succeed())
	before := deployment.DeepCopy()
	deployment.Spec.Replicas = ptr.To(number)
	Expect(here.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
}

// healthOfAll is what is said of the health of all machines, with the time since when.
func healthOfAll(ctx context.Context) map[string]*metav1.Condition {
	GinkgoHelper()
	health := map[string]*metav1.Condition{}
	for name, m := range machines(ctx) {
		health[name] = conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition)
	}
	return health
}
