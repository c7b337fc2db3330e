package conformance

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/admission"
	"github.com/kubemend/kubemend/test/rig"
)

// validator is the user as whom the validation reads.
const validator = "validator"

// clinic is a control plane that serves NodeHealthChecks, and that no manager looks at.
type clinic struct {
	plane *rig.ControlPlane
	client.Client

	// said are the warnings of the API server since they were last forgotten.
	said []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (c *clinic) HandleWarningHeader(_ int, _, text string) { c.said = append(c.said, text) }

func newClinic(ctx context.Context) *clinic {
	GinkgoHelper()
	plane, err := control.Management(ctx, rig.ManagementOptions{Name: "clinic", CRDs: []string{crdManifests}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.StopAPIServer) // nobody else needs it, and others need the memory
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, nhcv1.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}
	c := &clinic{plane: plane}
	config := plane.Config()
	config.WarningHandler = c
	c.Client, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// ask serves the program's own validation until the specs end, under the rights that the program ships with, registers it as generated, and
// returns when the API server asks it.
func (c *clinic) ask(ctx context.Context) {
	GinkgoHelper()
	config, _, err := c.plane.User(validator)
	Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile("../../config/rbac/role.yaml")
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{}
	Expect(yaml.UnmarshalStrict(content, role)).To(Succeed())
	c.grant(ctx, role)
	m, err := ctrl.NewManager(config, ctrl.Options{Scheme: c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	Expect(admission.SetUp(m)).To(Succeed())
	server := httptest.NewTLSServer(m.GetWebhookServer().WebhookMux())
	DeferCleanup(server.Close)

	hooks := &admissionv1.ValidatingWebhookConfiguration{}
	content, err = os.ReadFile(webhookManifests)
	Expect(err).NotTo(HaveOccurred())
	_, validating, found := strings.Cut(string(content), "kind: MutatingWebhookConfiguration")
	Expect(found).To(BeTrue())
	_, validating, found = strings.Cut(validating, "---\n")
	Expect(found).To(BeTrue())
	Expect(yaml.UnmarshalStrict([]byte(validating), hooks)).To(Succeed())
	Expect(hooks.Webhooks).NotTo(BeEmpty())
	for i := range hooks.Webhooks {
		to := &hooks.Webhooks[i].ClientConfig
		to.URL, to.CABundle = ptr.To(server.URL+*to.Service.Path), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		to.Service = nil
	}
	Expect(c.Create(ctx, hooks)).To(Succeed())
	Eventually(func() error {
		return c.Create(ctx, check("asked", specWith(oneTemplate, resembling)), client.DryRunAll)
	}).Should(MatchError(ContainSubstring("Invalid selector")))
	c.said = nil
}

// grant makes a role and gives it to the validation.
func (c *clinic) grant(ctx context.Context, role *rbacv1.ClusterRole) {
	GinkgoHelper()
	Expect(c.Create(ctx, role)).To(Succeed())
	Expect(c.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: validator}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	})).To(Succeed())
}

// columns are what kubectl shows of a check.
func (c *clinic) columns(ctx context.Context, name string) map[string]any {
	GinkgoHelper()
	lists, err := discovery.NewDiscoveryClientForConfig(c.plane.Config())
	Expect(err).NotTo(HaveOccurred())
	content, err := lists.RESTClient().Get().AbsPath("/apis", nhcv1.GroupVersion.Group, nhcv1.GroupVersion.Version, "nodehealthchecks", name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	Expect(err).NotTo(HaveOccurred())
	table := &metav1.Table{}
	Expect(utiljson.Unmarshal(content, table)).To(Succeed())
	Expect(table.Rows).To(HaveLen(1))
	cells := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		cells[column.Name] = table.Rows[0].Cells[i]
	}
	return cells
}

// unruled does something while the CRD has no rules, as if it were an older one, and returns when it has them again.
func (c *clinic) unruled(ctx context.Context, do func()) {
	GinkgoHelper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	Expect(c.Get(ctx, client.ObjectKey{Name: "nodehealthchecks." + nhcv1.GroupVersion.Group}, crd)).To(Succeed())
	rules := crd.DeepCopy()
	withoutRules(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	Expect(c.Update(ctx, crd)).To(Succeed())
	defer func() {
		Expect(c.Patch(ctx, rules, client.MergeFrom(crd))).To(Succeed())
		Eventually(func() error { return c.Create(ctx, check("new", specWith()), client.DryRunAll) }).ShouldNot(Succeed())
	}()
	rules.ResourceVersion = crd.ResourceVersion
	do()
}

func withoutRules(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XValidations = nil
	for name, property := range schema.Properties {
		withoutRules(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		withoutRules(schema.Items.Schema)
	}
}

// set changes a stored check by a merge patch.
func (c *clinic) set(ctx context.Context, name, patch string) error {
	return c.Patch(ctx, check(name, ""), client.RawPatch(client.Merge.Type(), []byte(patch)))
}

// remediate writes into the status of a check that node-1 is remediated by this object.
func (c *clinic) remediate(ctx context.Context, name string, by *unstructured.Unstructured) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"status":{"unhealthyNodes":[{"name":"node-1","remediations":[{"started":"2026-01-01T12:00:00Z",
		"resource":{"apiVersion":%q,"kind":%q,"namespace":%q,"name":%q,"uid":%q}}]}]}}`,
		by.GetAPIVersion(), by.GetKind(), by.GetNamespace(), by.GetName(), by.GetUID())
	Expect(c.Status().Patch(ctx, check(name, ""), client.RawPatch(client.Merge.Type(), []byte(patch)))).To(Succeed())
}

// check is a NodeHealthCheck of that spec, which is JSON; there is none if it is empty.
func check(name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	o := checks.object(checks.kind, "", name)
	if spec != "" {
		o.Object["spec"] = parsed(spec)
	}
	return o
}
