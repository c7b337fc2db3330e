package api

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/schemas"
)

// catalog is a cluster seen by a user who reads the warnings of the API server.
type catalog struct {
	client.Client
	plane *rig.ControlPlane

	// warnings are those since they were last emptied.
	warnings []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (c *catalog) HandleWarningHeader(_ int, _, text string) { c.warnings = append(c.warnings, text) }

func newCatalog(management *cluster) *catalog {
	GinkgoHelper()
	c := &catalog{plane: management.plane}
	config := management.plane.Config()
	config.QPS, config.WarningHandler = -1, c
	var err error
	c.Client, err = client.New(config, client.Options{Scheme: management.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func check(name, spec string) *unstructured.Unstructured {
	return schemas.NodeHealthCheck.Object(name, spec)
}

// requestOf is a request of some kind for node-1, which need not be there.
func requestOf(apiVersion, kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(metav1.NamespaceDefault)
	o.SetName("node-1")
	return o
}

// as returns a stored object in the version of k.
func (c *catalog) as(ctx context.Context, k schemas.Kind, stored *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	o := schemas.Kind{APIVersion: k.APIVersion, Kind: stored.GetKind()}.Object(stored.GetName(), "")
	Expect(c.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	return o
}

// tried is what would become of the spec of an object, or why it is refused.
func (c *catalog) tried(ctx context.Context, o *unstructured.Unstructured) string {
	o = o.DeepCopy()
	if err := c.Create(ctx, o, client.DryRunAll); err != nil {
		return err.Error()
	}
	return schemas.Spec(o)
}

func (c *catalog) namespace(ctx context.Context, name string) {
	GinkgoHelper()
	if name == "" || name == metav1.NamespaceDefault {
		return
	}
	Expect(client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))).To(Succeed())
}

func (c *catalog) grant(ctx context.Context, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "remediator"}, Rules: []rbacv1.PolicyRule{rule}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: rig.Account}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	for _, o := range []client.Object{role, binding} {
		Expect(c.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, o)).To(Succeed()) })
	}
}

func (c *catalog) columns(ctx context.Context, name string) map[string]any {
	GinkgoHelper()
	lists, err := discovery.NewDiscoveryClientForConfig(c.plane.Config())
	Expect(err).NotTo(HaveOccurred())
	content, err := lists.RESTClient().Get().
		AbsPath("/apis", nhcv1.GroupVersion.Group, nhcv1.GroupVersion.Version, "nodehealthchecks", name).
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
func (c *catalog) unruled(ctx context.Context, do func()) {
	GinkgoHelper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	Expect(c.Get(ctx, client.ObjectKey{Name: "nodehealthchecks." + nhcv1.GroupVersion.Group}, crd)).To(Succeed())
	rules := crd.DeepCopy()
	withoutRules(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	Expect(c.Update(ctx, crd)).To(Succeed())
	defer func() {
		Expect(c.Patch(ctx, rules, client.MergeFrom(crd))).To(Succeed())
		Eventually(func() error { return c.Create(ctx, check("new", `{}`), client.DryRunAll) }).ShouldNot(Succeed())
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
func (c *catalog) set(ctx context.Context, name, patch string) error {
	return c.Patch(ctx, check(name, ""), client.RawPatch(client.Merge.Type(), []byte(patch)))
}

// remediate writes into the status of a check that node-1 is remediated by this object.
func (c *catalog) remediate(ctx context.Context, name string, by *unstructured.Unstructured) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"status":{"unhealthyNodes":[{"name":"node-1","remediations":[{"started":"2026-01-01T12:00:00Z",
		"resource":{"apiVersion":%q,"kind":%q,"namespace":%q,"name":%q,"uid":%q}}]}]}}`,
		by.GetAPIVersion(), by.GetKind(), by.GetNamespace(), by.GetName(), by.GetUID())
	Expect(c.Status().Patch(ctx, check(name, ""), client.RawPatch(client.Merge.Type(), []byte(patch)))).To(Succeed())
}

// twoTemplates is a check whose two steps use templates b and c of one kind.
func twoTemplates() *unstructured.Unstructured {
	const template = `{"order":%[2]d,"timeout":"60s",
		"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"default","name":%[1]q}}`
	return check("pair", `{"escalatingRemediations":[`+fmt.Sprintf(template, "b", 1)+","+fmt.Sprintf(template, "c", 2)+"]}")
}

// allowMultiple makes a HostRemediationTemplate that may be used beside others.
func (c *catalog) allowMultiple(ctx context.Context, name string) {
	GinkgoHelper()
	o := schemas.Host.Template().Object(name, `{}`)
	o.SetAnnotations(map[string]string{nhcv1.MultipleTemplatesAnnotation: "true"})
	Expect(c.Create(ctx, o)).To(Succeed())
}
