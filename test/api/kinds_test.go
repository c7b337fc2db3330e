package api

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	"github.com/onsi/gomega/types"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/schemas"
	"github.com/kubemend/kubemend/test/suite"
)

// Specs of NodeHealthChecks, as JSON.
const (
	withTemplate    = `{"remediationTemplate":{"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"a"}}`
	withOwnTemplate = `{"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate",
		"namespace":"default","name":"a"}}`
)

// answersRequests has the specs of kubemend's kinds in config/standalone. The manager serves webhooks but does not lead.
func answersRequests(management *cluster) {
	const storage = `{"spec":{"selector":{"matchLabels":{"role":"storage"}}}}`
	var (
		kinds            *catalog
		installed, hooks []*unstructured.Unstructured
	)

	BeforeAll(func(ctx SpecContext) {
		kinds = newCatalog(management)
		installed = management.install(ctx, read(released(this, "kubemend-standalone.yaml")))
		for _, o := range installed {
			if isWebhook(o) {
				hooks = append(hooks, again(o))
				Expect(management.Delete(ctx, o)).To(Succeed())
			}
		}
		lead := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: managerlease.LeaderLeaseName}}
		lead.Spec.HolderIdentity, lead.Spec.LeaseDurationSeconds = ptr.To("somebody else"), ptr.To[int32](24*60*60)
		lead.Spec.AcquireTime, lead.Spec.RenewTime = ptr.To(metav1.NowMicro()), ptr.To(metav1.NowMicro())
		Expect(management.Create(ctx, lead)).To(Succeed())
		manager := management.start(ctx, "standby", "--leader-elect")
		DeferCleanup(manager.Kill)
		Eventually(func() string { return kinds.tried(ctx, schemas.Host.Template().Object("a", `{"strategy":{}}`)) }).
			ShouldNot(Equal(schemas.Complete), "the API server calls no webhook any more")
	}, NodeTimeout(specPatience))

	AfterAll(func(ctx SpecContext) { management.remove(ctx, installed) }, NodeTimeout(specPatience))

	It("answer without a webhook but their conversion as test/schemas says", func(ctx SpecContext) {
		kinds.answer(ctx, slices.Concat(schemas.Remediations(), schemas.NodeHealthChecks(), schemas.DocumentedChecks()))
	}, SpecTimeout(specPatience))

	It("refuse the values in docs/reference/bad-input.md with the name of the field, and accept corrected ones", func(ctx SpecContext) {
		for _, row := range schemas.Manifests {
			bad, good := row.Objects()
			err := kinds.Create(ctx, bad, client.DryRunAll)
			Expect(row.Refuses(err)).To(BeTrue(), "%+v: %v", row, err)
			Expect(kinds.Create(ctx, good, client.DryRunAll)).To(Succeed(), row.Kind)
		}
	}, SpecTimeout(specPatience))

	It("seed 2.4: keep what was stored before a rule refused it, and have a change of it refused", func(ctx SpecContext) {
		const older = `{"minHealthy":1,"maxUnhealthy":1,"unhealthyConditions":[]}`
		kinds.unruled(ctx, func() {
			Eventually(func() error { return kinds.Create(ctx, check("old", older)) }).Should(Succeed())
			Expect(kinds.Create(ctx, check("empty", ""))).To(Succeed())
		})
		for _, spec := range []string{older, ""} {
			Expect(kinds.Create(ctx, check("new", spec), client.DryRunAll)).NotTo(Succeed())
		}
		disabled := client.RawPatch(client.Merge.Type(), []byte(`{"status":{"phase":"Disabled"}}`))
		Expect(kinds.Status().Patch(ctx, check("old", ""), disabled)).To(Succeed())
		for _, name := range []string{"old", "empty"} {
			Expect(kinds.set(ctx, name, `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
		}
		Expect(kinds.set(ctx, "old", `{"spec":{"pauseRequests":["for the test"]}}`)).
			To(MatchError(ContainSubstring("minHealthy and maxUnhealthy cannot")), "an error about several fields names only the spec")
		for _, name := range []string{"old", "empty"} {
			Expect(kinds.Delete(ctx, check(name, ""))).To(Succeed())
		}
	}, SpecTimeout(specPatience))

	recordsAreTaken(management)
	obeyPolicies(management)

	Context("with all webhooks", func() {
		BeforeAll(func(ctx SpecContext) {
			for _, o := range hooks {
				management.apply(ctx, o, installer)
			}
			for _, k := range schemas.Current {
				Eventually(kinds.tried).WithArguments(ctx, k.Template().Object("a", `{"strategy":{}}`)).Should(Equal(schemas.Complete))
			}
			resembling := `{"selector":{"matchExpressions":[{"key":"a","operator":"Resembles","values":["b"]}]},` + withTemplate[1:]
			Eventually(kinds.tried).WithArguments(ctx, check("asked", resembling)).Should(ContainSubstring("Invalid selector"))
		}, NodeTimeout(specPatience))

		It("answer as test/schemas says", func(ctx SpecContext) {
			kinds.answer(ctx, slices.Concat(schemas.CompletedTemplates(), schemas.DocumentedTemplates()))
		}, SpecTimeout(specPatience))

		It("C9: are converted from v1beta1 and back, with their status", func(ctx SpecContext) {
			for _, row := range schemas.Conversions {
				for _, k := range []schemas.Kind{schemas.Metal3V1Beta1, schemas.Metal3V1Beta1.Template()} {
					stored := k.Object("converted", row.Old)
					Expect(kinds.Create(ctx, stored)).To(Succeed())
					Expect(schemas.Spec(kinds.as(ctx, schemas.Metal3V1Beta2, stored))).To(Equal(row.New), row.Name)
					Expect(schemas.Spec(kinds.as(ctx, schemas.Metal3V1Beta1, stored))).To(Equal(row.Back), row.Name)
					Expect(kinds.Delete(ctx, stored)).To(Succeed())
				}
			}
			remediation := schemas.Metal3V1Beta2.Object("converted", schemas.Complete)
			Expect(kinds.Create(ctx, remediation)).To(Succeed())
			status := schemas.JSON(`{"phase":"Deleting machine","retryCount":2,"lastRemediated":"2026-01-01T12:00:00Z",
				"message":"Handed to its owner","conditions":[{"type":"` + v1beta2.PoweredOffCondition + `","status":"False",
					"reason":"TimedOut","message":"","lastTransitionTime":"2026-01-01T12:00:00Z"}]}`)
			remediation.Object["status"] = status
			Expect(kinds.Status().Update(ctx, remediation)).To(Succeed())
			for _, k := range []schemas.Kind{schemas.Metal3V1Beta1, schemas.Metal3V1Beta2} {
				Expect(kinds.as(ctx, k, remediation).Object["status"]).To(Equal(any(status)), k.String())
			}
			Expect(kinds.Delete(ctx, remediation)).To(Succeed())
		}, SpecTimeout(specPatience))

		It("C02: accept a partial status of a NodeHealthCheck, and show it in columns", func(ctx SpecContext) {
			Expect(kinds.Create(ctx, check("shown", withTemplate))).To(Succeed())
			Expect(kinds.columns(ctx, "shown")).To(MatchAllKeys(Keys{
				"Name": Equal("shown"), "Phase": BeNil(), "Observed": BeNil(), "Healthy": BeNil(), "Remediating": BeNil(),
				"Reason": BeNil(),
				"Age":    MatchRegexp(`^\d+s$`),
			}))
			const remediation = `{"resource":{"name":"a"},"started":"2026-01-01T12:00:00Z"}`
			for _, part := range []string{
				`{"status":{"observedNodes":6}}`,
				`{"status":{"unhealthyNodes":[{"name":"a"}]}}`,
				`{"status":{"phase":"Remediating","reason":"NHC is remediating 2 nodes","healthyNodes":3,"unhealthyNodes":[
					{"name":"listed"},{"name":"first","remediations":[` + remediation + `]},
					{"name":"second","remediations":[` + remediation + `]}]}}`,
			} {
				o := check("shown", "")
				Expect(kinds.Status().Patch(ctx, o, client.RawPatch(client.Merge.Type(), []byte(part)))).To(Succeed())
				Expect(o.Object["status"]).To(SatisfyAll(HaveKeyWithValue("observedNodes", int64(6)), Not(HaveKey("inFlightRemediations"))))
			}
			Expect(kinds.columns(ctx, "shown")).To(SatisfyAll(
				HaveKeyWithValue("Phase", "Remediating"), HaveKeyWithValue("Observed", int64(6)), HaveKeyWithValue("Healthy", int64(3)),
				HaveKeyWithValue("Remediating", "first"), HaveKeyWithValue("Reason", "NHC is remediating 2 nodes"),
			))
		}, SpecTimeout(specPatience))

		It("cannot be changed while the webhook cannot find out whether a request exists", func(ctx SpecContext) {
			Expect(kinds.Create(ctx, check("unknown", withOwnTemplate))).To(Succeed())
			kinds.remediate(ctx, "unknown", requestOf("v1", "ConfigMap")) // a kind that the manager may not read
			cannot := func(webhook string) types.GomegaMatcher {
				return MatchError(SatisfyAll(
					HavePrefix(`admission webhook "`+webhook+`" denied the request: cannot find out whether a remediation is running: `+
						`list ConfigMap: configmaps is forbidden: User "`+rig.Account+`" cannot list resource "configmaps"`),
					HaveSuffix("; try again when kubemend can list ConfigMap (v1)"),
				))
			}
			Expect(kinds.set(ctx, "unknown", storage)).To(cannot(onWrite))
			Expect(kinds.Delete(ctx, check("unknown", ""))).To(cannot(onDelete))
			Expect(kinds.set(ctx, "unknown", `{"spec":{"pauseRequests":["for the test"]}}`)).To(Succeed())

			kinds.grant(ctx, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
			Eventually(kinds.set).WithArguments(ctx, "unknown", storage).Should(Succeed())
			Expect(kinds.Delete(ctx, check("unknown", ""))).To(Succeed())
		}, SpecTimeout(specPatience))

		It("seed 0.9: are warned about, and accepted", func(ctx SpecContext) {
			workers := `{"minHealthy":0,"selector":{"matchLabels":{"role":"worker"}},` + withOwnTemplate[1:]
			Expect(kinds.Create(ctx, check("workers", workers))).To(Succeed())
			kinds.warnings = nil
			slips := `{"maxUnhealthy":"0%",` + withTemplate[1:]
			Expect(kinds.Create(ctx, check("slips", slips))).To(Succeed())
			Expect(kinds.warnings).To(ContainElements(
				"spec.selector is empty: all nodes of the cluster are watched, also those of the control plane",
				"spec.maxUnhealthy 0% allows no remediation, not even of a single node",
			))
			kinds.warnings = nil
			Expect(kinds.set(ctx, "slips", `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
			Expect(kinds.warnings).To(BeEmpty(), "only a change of the value causes a warning")
		}, SpecTimeout(specPatience))
	})
}

// The validating webhooks.
const onWrite, onDelete = "vnodehealthcheck.kb.io", "delete.nodehealthcheck.remediation.medik8s.io"

// catalog is a client that collects the warnings of the API server.
type catalog struct {
	client.Client
	plane *rig.ControlPlane

	// warnings are the warnings since the field was last emptied.
	warnings []string
}

// answer sends dry-run requests that create the objects of rows, and checks the answers.
func (c *catalog) answer(ctx context.Context, rows []schemas.Row) {
	GinkgoHelper()
	for _, row := range rows {
		o := row.Object.DeepCopy()
		c.namespace(ctx, o.GetNamespace())
		options := []client.CreateOption{client.DryRunAll}
		if row.Strict {
			options = append(options, client.FieldValidation("Strict"))
		}
		Expect(row.Check(o, c.Create(ctx, o, options...))).To(BeEmpty(), row.Name)
	}
}

// HandleWarningHeader implements rest.WarningHandler.
func (c *catalog) HandleWarningHeader(_ int, _, text string) { c.warnings = append(c.warnings, text) }

func newCatalog(management *cluster) *catalog {
	GinkgoHelper()
	c := &catalog{plane: management.plane}
	config := management.plane.Config()
	config.QPS, config.WarningHandler = -1, c
	c.Client = suite.Must(client.New(config, client.Options{Scheme: management.Scheme()}))
	return c
}

func check(name, spec string) *unstructured.Unstructured {
	return schemas.NodeHealthCheck.Object(name, spec)
}

// requestOf returns a remediation request of some kind for node-1, which need not exist.
func requestOf(apiVersion, kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(metav1.NamespaceDefault)
	o.SetName("node-1")
	return o
}

// as reads a stored object in the version of k.
func (c *catalog) as(ctx context.Context, k schemas.Kind, stored *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	o := schemas.Kind{APIVersion: k.APIVersion, Kind: stored.GetKind()}.Object(stored.GetName(), "")
	Expect(c.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	return o
}

// tried returns the spec that a dry-run creation of an object returns, or the error.
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
	lists := suite.Must(discovery.NewDiscoveryClientForConfig(c.plane.Config()))
	content := suite.Must(lists.RESTClient().Get().
		AbsPath("/apis", nhcv1.GroupVersion.Group, nhcv1.GroupVersion.Version, "nodehealthchecks", name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw())
	table := &metav1.Table{}
	Expect(utiljson.Unmarshal(content, table)).To(Succeed())
	Expect(table.Rows).To(HaveLen(1))
	cells := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		cells[column.Name] = table.Rows[0].Cells[i]
	}
	return cells
}

// unruled calls do while the CRD has no validation rules, as in an older release. It returns when the rules are enforced again.
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

// set changes a stored check with a merge patch.
func (c *catalog) set(ctx context.Context, name, patch string) error {
	return c.Patch(ctx, check(name, ""), client.RawPatch(client.Merge.Type(), []byte(patch)))
}

// remediate writes into the status of a check that the object remediates node-1.
func (c *catalog) remediate(ctx context.Context, name string, by *unstructured.Unstructured) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"status":{"unhealthyNodes":[{"name":"node-1","remediations":[{"started":"2026-01-01T12:00:00Z",
		"resource":{"apiVersion":%q,"kind":%q,"namespace":%q,"name":%q,"uid":%q}}]}]}}`,
		by.GetAPIVersion(), by.GetKind(), by.GetNamespace(), by.GetName(), by.GetUID())
	Expect(c.Status().Patch(ctx, check(name, ""), client.RawPatch(client.Merge.Type(), []byte(patch)))).To(Succeed())
}
