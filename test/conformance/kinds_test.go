package conformance

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	"github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/hostremediation/admission"
	"github.com/kubemend/kubemend/test/rig"
)

// Where the generated manifests are, seen from here.
const (
	crdManifests     = "../../config/crd/bases"
	webhookManifests = "../../config/webhook/manifests.yaml"
)

// The kinds that kubemend defines, in every version.
var (
	metal3Old  = provider{v1beta1.GroupVersion.String(), "Metal3Remediation"}
	metal3New  = provider{v1beta2.GroupVersion.String(), "Metal3Remediation"}
	hostsOwn   = provider{mendv1.GroupVersion.String(), "HostRemediation"}
	ofThisTime = []provider{metal3New, hostsOwn}
)

// manifest makes an object of that name with that spec.
type manifest func(name, spec string) *unstructured.Unstructured

// A strategy in which everything is the default, in v1beta2 and in v1beta1.
const (
	complete     = `{"strategy":{"retryLimit":1,"timeoutSeconds":600,"type":"Reboot"}}`
	completeOnce = `{"strategy":{"retryLimit":1,"timeout":"10m0s","type":"Reboot"}}`
)

// remediation is a manifest of the kind; spec is JSON, and there is none if it is empty.
func (p provider) remediation(name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	o := p.object(p.kind, "default", name)
	if spec != "" {
		o.Object["spec"] = parsed(spec)
	}
	return o
}

// madeFrom is a manifest of the kind's template that embeds this spec, and nothing at all if it is empty.
func (p provider) madeFrom(name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	o := p.object(p.kind+"Template", "default", name)
	if spec != "" {
		o.Object["spec"] = map[string]any{"template": map[string]any{"spec": parsed(spec)}}
	}
	return o
}

func parsed(content string) map[string]any {
	GinkgoHelper()
	var o map[string]any
	Expect(utiljson.Unmarshal([]byte(content), &o)).To(Succeed()) // which makes integers of integers, as the API server does
	return o
}

// specOf is the spec of a remediation, or the one that a template embeds, as JSON; empty if there is none.
func specOf(o *unstructured.Unstructured) string {
	GinkgoHelper()
	fields := []string{"spec"}
	if strings.HasSuffix(o.GetKind(), "Template") {
		fields = []string{"spec", "template", "spec"}
	}
	spec, found, err := unstructured.NestedMap(o.Object, fields...)
	Expect(err).NotTo(HaveOccurred())
	if !found {
		return ""
	}
	content, err := json.Marshal(spec)
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// catalog is a control plane that serves the generated CRDs, with their conversion. That of the other specs has simulated ones
// of the same names.
type catalog struct {
	plane *rig.ControlPlane
	client.Client

	// Where the API server reaches the program's webhooks.
	url       string
	authority []byte
}

func newCatalog(ctx context.Context) *catalog {
	GinkgoHelper()
	plane, err := control.Management(ctx, rig.ManagementOptions{Name: "kinds", CRDs: []string{crdManifests}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.StopAPIServer) // nobody else needs it, and others need the memory
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1beta1.AddToScheme, v1beta2.AddToScheme, mendv1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	c := &catalog{plane: plane}
	c.Client, err = client.New(plane.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	c.serveWebhooks()
	c.convert(ctx)
	return c
}

// as returns a stored object in the version of p.
func (c *catalog) as(ctx context.Context, p provider, stored *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	o := p.object(stored.GetKind(), stored.GetNamespace(), stored.GetName())
	Expect(c.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	return o
}

// serveWebhooks serves the program's own webhooks until the specs end. The rig leads webhooks to Cluster API core only, so
// they are served from here.
func (c *catalog) serveWebhooks() {
	GinkgoHelper()
	m, err := ctrl.NewManager(c.plane.Config(), ctrl.Options{Scheme: c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	Expect(admission.SetUp(m)).To(Succeed())
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
	spec := `{"strategy":{"retryLimit":2,"timeout":"5m0s","type":"Reboot"}}`
	for _, object := range []manifest{metal3Old.remediation, metal3Old.madeFrom} {
		Eventually(c.tried).WithArguments(ctx, object, spec).Should(Equal(spec), "without conversion the timeout is lost")
	}
}

// complete registers the generated webhooks, at the address where they are served, and returns when the API server asks them.
func (c *catalog) complete(ctx context.Context) {
	GinkgoHelper()
	content, err := os.ReadFile(webhookManifests)
	Expect(err).NotTo(HaveOccurred())
	hooks := &admissionv1.MutatingWebhookConfiguration{}
	Expect(yaml.UnmarshalStrict(content, hooks)).To(Succeed())
	for i := range hooks.Webhooks {
		to := &hooks.Webhooks[i].ClientConfig
		to.URL, to.CABundle = ptr.To(c.url+*to.Service.Path), c.authority
		to.Service = nil
	}
	Expect(c.Create(ctx, hooks)).To(Succeed())
	for _, p := range ofThisTime {
		Eventually(c.tried).WithArguments(ctx, manifest(p.madeFrom), `{"strategy":{}}`).Should(Equal(complete))
	}
}

// tried is what would become of a spec, or why it is refused.
func (c *catalog) tried(ctx context.Context, object manifest, spec string) string {
	o := object("tried", spec)
	if err := c.Create(ctx, o, client.DryRunAll); err != nil {
		return err.Error()
	}
	return specOf(o)
}

// namespace makes one, if it is not there.
func (c *catalog) namespace(ctx context.Context, name string) {
	GinkgoHelper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(client.IgnoreAlreadyExists(c.Create(ctx, n))).To(Succeed())
}

// testdata reads a manifest of one object.
func testdata(file string) *unstructured.Unstructured {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join("testdata", file))
	Expect(err).NotTo(HaveOccurred())
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(content, &o.Object)).To(Succeed())
	return o
}
