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

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

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
