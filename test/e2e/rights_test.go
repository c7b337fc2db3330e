package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
)

const user = "kubemend-under-test"

var _ = Describe("A manager with no rights but those that it ships with", func() {
	BeforeEach(func(ctx SpecContext) { shared.allWell(ctx) })
	AfterEach(func(ctx SpecContext) {
		manager.Kill()
		shared.setKubeconfig(ctx, shared.plane.Kubeconfig())
		startManager(ctx)
		shared.leaveAsFound(ctx)
	})

	It("has a machine replaced", func(ctx SpecContext) {
		manager.Kill()
		_, onManagement, err := management.User(user)
		Expect(err).NotTo(HaveOccurred())
		grant(ctx, here, "../../config/rbac/role.yaml")
		_, onWorkload, err := shared.plane.User(user)
		Expect(err).NotTo(HaveOccurred())
		grant(ctx, shared.there, "testdata/workload-cluster-rbac.yaml")
		// Cluster API is connected already, and goes on with the rights that it has.
		shared.setKubeconfig(ctx, onWorkload)
		manager, err = management.Kubemend(ctx, "rights", onManagement)
		Expect(err).NotTo(HaveOccurred())

		check := shared.applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": "4s"})
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before, lost := shared.identities(ctx), shared.workerNames(ctx)[0]
		shared.fallSilent(lost)

		Eventually(shared.events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)).Should(Equal(1))
		shared.replaced(ctx, before, lost)
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Expect(os.ReadFile(manager.Log)).NotTo(ContainSubstring("forbidden"))
	}, SpecTimeout(specPatience))
})

// grant gives the user the role in a file.
func grant(ctx context.Context, c client.Client, file string) {
	GinkgoHelper()
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{}
	Expect(yaml.UnmarshalStrict(content, role)).To(Succeed())
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	Expect(c.Create(ctx, role)).To(Succeed())
	Expect(c.Create(ctx, binding)).To(Succeed())
	Eventually(mayDo).WithArguments(ctx, c, role.Rules[0]).Should(BeTrue(), "the API server is to know of it")
	DeferCleanup(func(ctx SpecContext) {
		Expect(c.Delete(ctx, binding)).To(Succeed())
		Expect(c.Delete(ctx, role)).To(Succeed())
	})
}

// mayDo reports whether the API server lets the user do what a rule says.
func mayDo(ctx context.Context, c client.Client, rule rbacv1.PolicyRule) (bool, error) {
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
		},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask what %s may do: %w", user, err)
	}
	return review.Status.Allowed, nil
}

// setKubeconfig changes with what rights the workload cluster is reached by those who connect from now on.
func (w *world) setKubeconfig(ctx context.Context, kubeconfig []byte) {
	GinkgoHelper()
	s := &corev1.Secret{}
	wanted := rig.KubeconfigSecret(client.ObjectKeyFromObject(w.cluster), w.plane)
	Expect(here.Get(ctx, client.ObjectKeyFromObject(wanted), s)).To(Succeed())
	before := s.DeepCopy()
	s.Data[secret.KubeconfigDataName] = kubeconfig
	Expect(here.Patch(ctx, s, client.MergeFrom(before))).To(Succeed())
}
