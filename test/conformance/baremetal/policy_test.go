package baremetal

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

// kubemend acts on its memory, so a user who may write it can cause what it says. docs/security.md describes it.
var _ = Describe("The policy of config/policy/memory.yaml", func() {
	It("allows only users who may write the status of remediations to change what kubemend remembers", func(ctx SpecContext) {
		const namespace = "policy-memory"
		Expect(here.Create(ctx, builders.Namespace(namespace))).To(Succeed())
		for _, obj := range suite.Manifest("../../../config/policy/memory.yaml") {
			Expect(here.Create(ctx, obj)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, obj)).To(Succeed()) })
		}
		tenant, controller := as(ctx, namespace, "tenant", "hostremediations", "baremetalhosts"), as(ctx, namespace, "controller", "hostremediations", "hostremediations/status", "baremetalhosts")

		made := func(by client.Client, name string, annotations map[string]string) func() error {
			return func() error {
				rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
				return by.Create(ctx, rem, client.DryRunAll)
			}
		}
		remembers := map[string]string{mendv1.PowerCycleAnnotation: "{}"}
		refused := MatchError(And(ContainSubstring("only who may patch the status of hostremediations"), ContainSubstring(mendv1.PowerCycleAnnotation)))
		Eventually(made(tenant, "forged", remembers)).Should(refused)
		Expect(made(tenant, "honest", map[string]string{"note": "of a tenant"})()).To(Succeed())
		Expect(made(controller, "moved", remembers)()).To(Succeed(), "as clusterctl does, or who restores a backup")
		Expect(made(here, "administrated", remembers)()).To(Succeed())

		rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "real", Annotations: remembers}}
		Expect(here.Create(ctx, rem)).To(Succeed())
		patch := func(by client.Client, o client.Object, text string) error {
			return by.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(text)))
		}
		Expect(patch(tenant, rem, `{"metadata":{"annotations":{"kubemend.io/power-cycle":"{\"state\":\"Ended\"}"}}}`)).To(refused)
		Expect(patch(tenant, rem, `{"metadata":{"annotations":{"kubemend.io/power-cycle":null}}}`)).To(refused)
		Expect(patch(tenant, rem, `{"metadata":{"annotations":{"remediation.metal3.io/node-labels-backup":"{}"}}}`)).To(MatchError(ContainSubstring("node-labels-backup")))
		Expect(patch(tenant, rem, `{"metadata":{"annotations":{"note":"of a tenant"},"finalizers":[]}}`)).To(Succeed(), "what is not memory is theirs to change")

		host := builders.BareMetalHost(namespace, "host")
		Expect(here.Create(ctx, host)).To(Succeed())
		Expect(patch(tenant, host, `{"metadata":{"annotations":{"kubemend.io/marked-unhealthy-for":"a"}}}`)).To(MatchError(ContainSubstring("marked-unhealthy-for")))
		Expect(patch(controller, host, `{"metadata":{"annotations":{"kubemend.io/marked-unhealthy-for":"a"}}}`)).To(Succeed())
		Expect(patch(tenant, host, `{"spec":{"online":true}}`)).To(Succeed())
	})
})

// as is a client of a user who may create and change these resources in a namespace.
func as(ctx context.Context, namespace, name string, resources ...string) client.Client {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{mendv1.GroupVersion.Group, "metal3.io"}, Resources: resources, Verbs: []string{"create", "patch"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}
	Expect(builders.Apply(ctx, here, role, binding)).To(Succeed())
	config := rest.CopyConfig(plane.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	impersonated, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return impersonated
}
