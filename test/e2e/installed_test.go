package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/rig"
)

// An installed manager elects a leader in its own namespace, lets only those who may read its metrics, and logs for machines. The other specs
// have it do none of that, which takes time.
var _ = Describe("A manager as it is installed", func() {
	const namespace = metav1.NamespaceDefault

	It("elects a leader, writes its manager lease, protects its diagnostics and logs JSON", func(ctx SpecContext) {
		manager.Kill()
		DeferCleanup(func(ctx SpecContext) { startManager(ctx) })
		began := time.Now().Truncate(time.Second)
		installed, err := management.Kubemend(ctx, "installed", account,
			"--leader-elect", "--leader-elect-namespace="+rig.Namespace, "--insecure-diagnostics=false", "--logging-format=json")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(installed.Kill)

		lease := &coordinationv1.Lease{}
		Eventually(func(g Gomega) {
			g.Expect(here.Get(ctx, client.ObjectKey{Namespace: rig.Namespace, Name: "leader.kubemend.io"}, lease)).To(Succeed())
			g.Expect(ptr.Deref(lease.Spec.HolderIdentity, "")).NotTo(BeEmpty())
		}).Should(Succeed())

		announced := func(g Gomega) *managerlease.Manager {
			m, err := managerlease.In(ctx, here, rig.Namespace, time.Now())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(m).NotTo(BeNil())
			g.Expect(m.Announcement).NotTo(BeNil())
			return m
		}
		Eventually(func(g Gomega) {
			m := announced(g)
			g.Expect(m.Alive).To(BeTrue())
			g.Expect(m.Announcement.Started.Time).To(BeTemporally(">=", began), "it takes the place of the manager of the other specs")
			kinds := m.Announcement.Kinds
			g.Expect(kinds).To(ContainElement(And(HaveField("CRD", "machinehealthchecks.cluster.x-k8s.io"), HaveField("Reason", BeEmpty()))))
			g.Expect(kinds).To(ContainElement(HaveField("CRD", "hostremediations.kubemend.io")), "it has looked for its kinds by now")
		}).Should(Succeed())

		metrics := strings.Replace(installed.Metrics, "http:", "https:", 1)
		asked := func(bearer string) func() (int, error) {
			return func() (int, error) { return status(ctx, metrics, bearer) }
		}
		Eventually(asked("")).Should(Equal(http.StatusUnauthorized)) // it is there a moment after the manager is ready: it makes a certificate first
		reader := reads(ctx, namespace, "metrics-reader")
		Eventually(asked(token(ctx, reader))).Should(Equal(http.StatusForbidden))
		mayRead(ctx, reader)
		Eventually(asked(token(ctx, reader))).Should(Equal(http.StatusOK))

		installed.Kill() // or it might be writing
		log, err := os.ReadFile(installed.Log)
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(string(log)) {
			Expect(json.Valid([]byte(line))).To(BeTrue(), line)
		}
	}, SpecTimeout(specPatience))
})

// status is how the manager answers, with a token or without. Its certificate is one that it has made itself.
func status(ctx context.Context, url, bearer string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	anybody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer anybody.CloseIdleConnections()
	response, err := anybody.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// reads makes a ServiceAccount that ends with the spec.
func reads(ctx context.Context, namespace, name string) *corev1.ServiceAccount {
	GinkgoHelper()
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(here.Create(ctx, made)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, made)).To(Succeed()) })
	return made
}

func token(ctx context.Context, of *corev1.ServiceAccount) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{}
	Expect(here.SubResource("token").Create(ctx, of, request)).To(Succeed())
	return request.Status.Token
}

// mayRead gives a ServiceAccount the right that ships for Prometheus.
func mayRead(ctx context.Context, reader *corev1.ServiceAccount) {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(project, "config", "observability", "prometheus-rbac.yaml"))
	Expect(err).NotTo(HaveOccurred())
	shipped, _, _ := strings.Cut(string(content), "\n---\n")
	role := &rbacv1.ClusterRole{}
	Expect(yaml.UnmarshalStrict([]byte(shipped), role)).To(Succeed())
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: reader.Namespace, Name: reader.Name}},
	}
	for _, obj := range []client.Object{role, binding} {
		Expect(here.Create(ctx, obj)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, obj)).To(Succeed()) })
	}
}
