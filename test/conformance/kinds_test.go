package conformance

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	"github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	templates "github.com/kubemend/kubemend/controllers/hostremediation/admission"
	checks "github.com/kubemend/kubemend/controllers/nodehealthcheck/admission"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/schemas"
	"github.com/kubemend/kubemend/test/suite"
)

// Where the generated manifests are, seen from here.
const (
	crdManifests     = "../../config/crd/bases"
	webhookManifests = "../../config/webhook/manifests.yaml"
)

// catalog is a control plane that serves the generated CRDs, with their conversion. That of the other specs has simulated ones
// of the same names.
type catalog struct {
	plane *rig.ControlPlane
	client.Client

	// Where the API server reaches the program's webhooks.
	url       string
	authority []byte

	// warnings are those of the API server since they were last emptied.
	warnings []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (c *catalog) HandleWarningHeader(_ int, _, text string) { c.warnings = append(c.warnings, text) }

// validator is the user with whose rights the webhooks read.
const validator = "validator"

func newCatalog(ctx context.Context) *catalog {
	GinkgoHelper()
	plane, err := control.Management(ctx, rig.ManagementOptions{Name: "kinds", CRDs: []string{crdManifests}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.StopAPIServer) // no other suite needs it, and others need the memory
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1beta1.AddToScheme, v1beta2.AddToScheme, mendv1.AddToScheme, nhcv1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	c := &catalog{plane: plane}
	config := plane.Config()
	config.WarningHandler = c
	c.Client, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	c.serveWebhooks(ctx)
	c.convert(ctx)
	return c
}

// as returns a stored object in the version of k.
func (c *catalog) as(ctx context.Context, k schemas.Kind, stored *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	o := schemas.Kind{APIVersion: k.APIVersion, Kind: stored.GetKind()}.Object(stored.GetName(), "")
	Expect(c.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	return o
}

// serveWebhooks serves the program's own webhooks until the specs end, under the rights that the program ships with. The rig leads webhooks to
// Cluster API core only, so they are served from here.
func (c *catalog) serveWebhooks(ctx context.Context) {
	GinkgoHelper()
	config, _, err := c.plane.User(validator)
	Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile("../../config/rbac/nodes/role.yaml")
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{}
	Expect(yaml.UnmarshalStrict(content, role)).To(Succeed())
	c.grant(ctx, role)
	m, err := ctrl.NewManager(config, ctrl.Options{Scheme: c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	Expect(templates.SetUp(m)).To(Succeed())
	Expect(checks.SetUp(m)).To(Succeed())
	server := httptest.NewTLSServer(m.GetWebhookServer().WebhookMux())
	DeferCleanup(server.Close)
	c.url = server.URL
	c.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// convert adds to the CRDs what the generated ones do not have: who converts. It returns when the API server knows.
func (c *catalog) convert(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{"metal3remediations", "metal3remediationtemplates"} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(c.Get(ctx, client.ObjectKey{Name: name + "." + v1beta2.GroupVersion.Group}, crd)).To(Succeed())
		before := crd.DeepCopy()
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To(c.url + "/convert"), CABundle: c.authority},
				ConversionReviewVersions: []string{"v1", "v1beta1"},
			},
		}
		Expect(c.Patch(ctx, crd, client.MergeFrom(before))).To(Succeed())
	}
	strategy := `{"strategy":{"retryLimit":2,"timeout":"5m0s","type":"Reboot"}}`
	for _, kind := range []schemas.Kind{schemas.Metal3V1Beta1, schemas.Metal3V1Beta1.Template()} {
		Eventually(c.tried).WithArguments(ctx, kind.Object("tried", strategy)).Should(Equal(strategy), "without conversion the timeout is lost")
	}
}

// complete registers the generated webhooks, at the address where they are served, and returns when the API server asks them.
func (c *catalog) complete(ctx context.Context) {
	GinkgoHelper()
	hooks := &admissionv1.MutatingWebhookConfiguration{}
	generated(hooks, "MutatingWebhookConfiguration")
	for i := range hooks.Webhooks {
		c.lead(&hooks.Webhooks[i].ClientConfig)
	}
	Expect(c.Create(ctx, hooks)).To(Succeed())
	for _, k := range schemas.Current {
		Eventually(c.tried).WithArguments(ctx, k.Template().Object("tried", `{"strategy":{}}`)).Should(Equal(schemas.Complete))
	}
}

// validate does the same with the generated validation of NodeHealthChecks.
func (c *catalog) validate(ctx context.Context) {
	GinkgoHelper()
	hooks := &admissionv1.ValidatingWebhookConfiguration{}
	generated(hooks, "ValidatingWebhookConfiguration")
	for i := range hooks.Webhooks {
		c.lead(&hooks.Webhooks[i].ClientConfig)
	}
	Expect(c.Create(ctx, hooks)).To(Succeed())
	resembling := `{"selector":{"matchExpressions":[{"key":"a","operator":"Resembles","values":["b"]}]},` + withTemplate[1:]
	Eventually(c.tried).WithArguments(ctx, check("asked", resembling)).Should(ContainSubstring("Invalid selector"))
}

// generated reads the object of that kind from the generated manifests.
func generated(into any, kind string) {
	GinkgoHelper()
	for _, o := range suite.Manifest(webhookManifests) {
		if o.GetKind() == kind {
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)).To(Succeed())
			return
		}
	}
	Fail("no " + kind + " in " + webhookManifests)
}

// lead makes the API server find a webhook where it is served.
func (c *catalog) lead(to *admissionv1.WebhookClientConfig) {
	to.URL, to.CABundle = ptr.To(c.url+*to.Service.Path), c.authority
	to.Service = nil
}

// tried is what would become of the spec of an object, or why it is refused.
func (c *catalog) tried(ctx context.Context, o *unstructured.Unstructured) string {
	o = o.DeepCopy()
	return answer(o, c.Create(ctx, o, client.DryRunAll))
}

// namespace makes one, if it is not there.
func (c *catalog) namespace(ctx context.Context, name string) {
	GinkgoHelper()
	if name == "" {
		return
	}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(client.IgnoreAlreadyExists(c.Create(ctx, n))).To(Succeed())
}
