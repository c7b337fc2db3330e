package conformance

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

// clusterSaid sets a condition of a Cluster, as if it had been so for some time.
func clusterSaid(kind string, status metav1.ConditionStatus, ago time.Duration) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) {
		conditions.Delete(c, kind) // or its last transition would stay
		conditions.Set(c, condition(kind, status, ago))
	}
}

// notInitialized is a Cluster whose control plane never was up.
func notInitialized(c *clusterv1.Cluster) {
	clusterSaid(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionFalse, time.Hour)(c)
	c.Status.Initialization.ControlPlaneInitialized = nil
}

func ofControlPlane(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" }

const neverStarted = "False/NodeStartupTimeout False/NodeStartupTimeout"

var _ = Describe("Gates", func() {
	It("let only control-plane machines be judged, by their start-up, before the control plane is initialized", func(ctx SpecContext) {
		s := newEnvironment(ctx, notInitialized)
		s.machine(ctx, "control", ofControlPlane)
		s.machine(ctx, "control-with-node", ofControlPlane, s.hasNode("unread"))
		s.machine(ctx, "worker")
		s.check(ctx, "check", builders.StartsWithin(time.Second))

		Eventually(s.health(ctx, "control")).Should(Equal(neverStarted))
		Eventually(s.owner(ctx, "control")).Should(Equal(ownerRequested))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{3, 0, 0}))
		Expect(s.of(ctx, "check", "WorkloadClusterReachable")()).To(Equal("Unknown/NotInitialized"))
		Eventually(number(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check", `state="unknown"`)...)).Should(BeEquivalentTo(2))
		Consistently(s.health(ctx, "worker")).Should(Equal(nothing))
		Expect(s.health(ctx, "control-with-node")()).To(Equal(nothing), "its node cannot be read")
	})

	It("do not keep a machine that a user marked from being remediated, but the limit does", func(ctx SpecContext) {
		s := newEnvironment(ctx, notInitialized)
		s.machine(ctx, "a", annotated(clusterv1.RemediateMachineAnnotation, ""))
		s.machine(ctx, "b")
		s.check(ctx, "none", atMost("0"))
		Eventually(s.health(ctx, "a")).Should(Equal("False/HasRemediateAnnotation False/HasRemediateMachineAnnotation"))
		Eventually(s.counts(ctx, "none")).Should(Equal([]int32{2, 0, 0}))
		s.changeCheck(ctx, "none", atMost("1"))
		Eventually(s.message(ctx, "none", "RemediationAllowed")).Should(HaveSuffix("2 of 2 targets are not healthy: " +
			"1 unhealthy, 0 pending, 0 starting, 0 being deleted, 1 unknown; 1 of 2 allows 1"))
		Expect(s.allowed(ctx, "none")()).To(Equal(restricted), "b is not healthy either")
		Expect(s.owner(ctx, "a")()).To(Equal(nothing))

		s.changeCheck(ctx, "none", atMost("2"))
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Expect(s.health(ctx, "b")()).To(Equal(nothing))
	})

	It("give a first node ten minutes by default", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		m := s.machine(ctx, "a")
		s.check(ctx, "check")

		deadline := number(ctx, manager, "kubemend_machinehealthcheck_next_deadline_timestamp_seconds", s.labels("check")...)
		Eventually(deadline).Should(BeEquivalentTo(m.CreationTimestamp.Add(10 * time.Minute).Unix()))
	})

	It("W6: a Cluster that becomes initialized, or whose infrastructure becomes ready, enqueues its checks", func(ctx SpecContext) {
		planes := newEnvironment(ctx, notInitialized)
		infrastructure := newEnvironment(ctx, clusterSaid(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionFalse, time.Hour))
		for _, s := range []*environment{planes, infrastructure} {
			s.machine(ctx, "a")
			s.check(ctx, "check", builders.StartsWithin(time.Second))
			Eventually(s.counts(ctx, "check")).Should(Equal([]int32{1, 0, 0}))
		}
		Consistently(infrastructure.health(ctx, "a")).Should(Equal(nothing))

		planes.changeCluster(ctx, clusterSaid(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue, 0))
		infrastructure.changeCluster(ctx, clusterSaid(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue, 0))

		Eventually(planes.health(ctx, "a")).Should(Equal(neverStarted))
		Eventually(infrastructure.health(ctx, "a")).Should(Equal(neverStarted))
	})

	It("W21: infrastructure that is not ready makes machines unknown, not healthy", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "bad", "good", "back")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "bad", "back")
		Eventually(s.requested(ctx)).Should(ConsistOf("bad", "back"))
		Eventually(s.health(ctx, "good")).Should(Equal(well))
		uid := s.request(ctx, "bad").GetUID()

		s.changeCluster(ctx, clusterSaid(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionFalse, 0))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{3, 0, 0}))
		s.comesBack(ctx, "back")
		s.fallsSilent(ctx, "good")

		Consistently(s.requested(ctx)).Should(ConsistOf("bad", "back"))
		Expect(s.health(ctx, "bad")()).To(Equal(silent))
		Expect(s.health(ctx, "back")()).To(Equal(silent))
		Expect(s.health(ctx, "good")()).To(Equal(well))
		Expect(s.external(ctx, "bad")()).To(Equal("False/WaitingForRemediation"))

		s.changeCluster(ctx, clusterSaid(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue, 0))
		Eventually(s.requested(ctx)).Should(ConsistOf("bad", "good"))
		Eventually(s.health(ctx, "back")).Should(Equal(well))
		Expect(s.request(ctx, "bad").GetUID()).To(Equal(uid))
	})
})

var _ = Describe("Missing input", func() {
	It("delays no other check: no Cluster, no kubeconfig, an unreadable kubeconfig", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		orphan := &environment{cluster: builders.Cluster(namespace, "c2")}
		orphan.cluster.Labels = map[string]string{clusterv1.WatchLabel: acting}
		orphan.check(ctx, "orphan")
		mute := &environment{cluster: builders.Cluster(namespace, "mute")}
		mute.begin(ctx)
		mute.machine(ctx, "mute-marked", annotated(clusterv1.RemediateMachineAnnotation, ""))
		mute.check(ctx, "mute")
		garbled := &environment{cluster: builders.Cluster(namespace, "garbled")}
		garbled.kubeconfig(ctx, []byte("nonsense"))
		garbled.begin(ctx)
		garbled.machine(ctx, "garbled", garbled.hasNode("a"))
		garbled.check(ctx, "garbled")
		s := newEnvironmentIn(ctx, namespace, "c1")
		s.worker(ctx, "a")
		s.check(ctx, "check")

		Eventually(s.health(ctx, "a")).Should(Equal(well))
		Eventually(mute.owner(ctx, "mute-marked")).Should(Equal(ownerRequested), "a mark needs no connection")
		Eventually(garbled.of(ctx, "garbled", "WorkloadClusterReachable")).Should(Equal("False/KubeconfigRefused"))
		Expect(garbled.health(ctx, "garbled")()).To(Equal(nothing), "what cannot be asked is not called deleted")
		Eventually(orphan.allowed(ctx, "orphan")).Should(Equal("False/ClusterNotFound"))

		// The Cluster that was missing is created, and enqueues its check.
		late := newEnvironmentIn(ctx, namespace, "c2")
		late.worker(ctx, "late")
		Eventually(late.health(ctx, "late")).Should(Equal(well))
		Eventually(late.allowed(ctx, "orphan")).Should(Equal(remediates))
	})
})

var _ = Describe("A kubeconfig that names a file of the manager", func() {
	It("is refused, its server receives no request, and it works once it is corrected", func(ctx SpecContext) {
		var mu sync.Mutex
		var heard []http.Header
		server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, r.Header)
		}))
		DeferCleanup(server.Close)
		token := filepath.Join(GinkgoT().TempDir(), "token")
		Expect(os.WriteFile(token, []byte("the manager's"), 0o600)).To(Succeed())
		ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		s := &environment{cluster: builders.Cluster(newNamespace(ctx), "spy")}
		s.kubeconfig(ctx, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {tokenFile: %q}}]}`, server.URL, ca, token))
		s.begin(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")

		Eventually(s.of(ctx, "check", "WorkloadClusterReachable")).Should(Equal("False/KubeconfigRefused"))
		Expect(s.message(ctx, "check", "WorkloadClusterReachable")()).To(HavePrefix(
			"Secret spy-kubeconfig: the kubeconfig is refused: users[u].user.tokenFile names a file, which would be read where this runs. "))
		Eventually(s.events(ctx, "spy", mendv1.EventKubeconfigRefused)).Should(Equal(1))
		mu.Lock()
		Expect(heard).To(BeEmpty())
		mu.Unlock()

		right := rig.KubeconfigSecret(client.ObjectKeyFromObject(s.cluster), workload)
		Expect(here.Update(ctx, right)).To(Succeed())
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		Eventually(s.of(ctx, "check", "WorkloadClusterReachable")).Should(Equal("True/ReachableAgain"))
		Expect(heard).To(BeEmpty())
	})
})
