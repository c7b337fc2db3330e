package conformance

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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

// checks are NodeHealthChecks as clients write them.
var checks = provider{nhcv1.GroupVersion.String(), "NodeHealthCheck"}

// validator is the user as whom the validation reads.
const validator = "validator"

// Parts of specs of checks.
const (
	oneTemplate  = `"remediationTemplate":{"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"a"}`
	resembling   = `"selector":{"matchExpressions":[{"key":"a","operator":"Resembles","values":["b"]}]}`
	ownTemplate  = `"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"default","name":"a"}`
	bothDefaults = `"unhealthyConditions":[{"duration":"300s","status":"False","type":"Ready"},{"duration":"300s","status":"Unknown","type":"Ready"}]`
)

// ladder is escalatingRemediations of the given steps.
func ladder(steps ...string) string {
	return `"escalatingRemediations":[` + strings.Join(steps, ",") + `]`
}

// rung is one step: a template of that kind.
func rung(kind string, order int, timeout string) string {
	return fmt.Sprintf(`{"remediationTemplate":{"apiVersion":"test.io/v1","kind":%q,"namespace":"default","name":"a"},"order":%d,"timeout":%q}`,
		kind, order, timeout)
}

// rungs are n steps, all of different order.
func rungs(n int) []string {
	steps := make([]string, n)
	for i := range steps {
		steps[i] = rung("RebootTemplate", i, "1m")
	}
	return steps
}

func specWith(fields ...string) string { return "{" + strings.Join(fields, ",") + "}" }

// unwell is a check of one condition that lasts for a duration.
func unwell(status, duration string) string {
	return fmt.Sprintf(`"unhealthyConditions":[{"type":"Ready","status":%q,"duration":%q}]`, status, duration)
}

// templateWith is a reference of these fields.
func templateWith(fields string) string { return `"remediationTemplate":{` + fields + `}` }

var takenChecks = []TableEntry{
	Entry("one template and nothing else", specWith(oneTemplate)),
	Entry("C10: a template with all that can be said beside it", specWith(oneTemplate, `"minHealthy":"51%"`, unwell("False", "1h30m"),
		`"stormCooldownDuration":"5m","healthyDelay":"-1s","pauseRequests":["for the test"]`)),
	Entry("C10, seed 0.8: steps instead of one template", specWith(ladder(rung("RebootTemplate", 1, "60s"), rung("ReplaceTemplate", 2, "1h")))),
	Entry("C13, seed 0.11: neither threshold, which medik8s refuses", specWith(oneTemplate)),
	Entry("C14: maxUnhealthy alone", specWith(oneTemplate, `"maxUnhealthy":2`)),
	Entry("C16, seed 0.9, 0.10, 1.8: an empty selector, which medik8s refuses", specWith(oneTemplate, `"selector":{}`)),
	Entry("C05: a percentage", specWith(oneTemplate, `"minHealthy":"30%"`)),
	Entry("C05: a percentage of unhealthy nodes", specWith(oneTemplate, `"maxUnhealthy":"30%"`)),
	Entry("all of the percentages there are", specWith(oneTemplate, `"minHealthy":"100%"`)),
	Entry("no healthy node at all", specWith(oneTemplate, `"minHealthy":0`)),
	Entry("the largest number", specWith(oneTemplate, `"maxUnhealthy":2147483647`)),
	Entry("steps of negative order", specWith(ladder(rung("RebootTemplate", -1, "60s"), rung("ReplaceTemplate", 0, "60s")))),
	Entry("steps out of order", specWith(ladder(rung("RebootTemplate", 7, "60s"), rung("ReplaceTemplate", 3, "60s")))),
	Entry("as many steps as there may be", specWith(ladder(rungs(20)...))),
	Entry("a template beside an empty list of steps", specWith(oneTemplate, ladder())),
	Entry("minHealthy with a template that deletes machines", specWith(`"minHealthy":1`,
		ladder(rung("MachineDeletionRemediationTemplate", 1, "60s")))),
	Entry("no conditions, which are the default then", specWith(oneTemplate)),
	Entry("a condition that no node can have", specWith(oneTemplate, unwell("Perhaps", "0s"))),
	Entry("the longest duration", specWith(oneTemplate, `"healthyDelay":"2562047h"`)),
	Entry("the longest negative one", specWith(oneTemplate, `"healthyDelay":"-2562047h"`)),
}

var refusedChecks = []TableEntry{
	Entry("C12: both thresholds", specWith(oneTemplate, `"minHealthy":"51%","maxUnhealthy":"49%"`),
		"spec: Invalid value: minHealthy and maxUnhealthy cannot be specified at the same time"),
	Entry("C11: a negative minHealthy", specWith(oneTemplate, `"minHealthy":-1`), "spec.minHealthy: Invalid value: -1: minHealthy must not be negative: -1"),
	Entry("C11: a negative maxUnhealthy", specWith(oneTemplate, `"maxUnhealthy":-7`), "spec.maxUnhealthy: Invalid value: -7: maxUnhealthy must not be negative: -7"),
	Entry("C04: more than all healthy", specWith(oneTemplate, `"minHealthy":"150%"`), "spec.minHealthy: Invalid value"),
	Entry("C04: more than all unhealthy", specWith(oneTemplate, `"maxUnhealthy":"150%"`), "spec.maxUnhealthy: Invalid value"),
	Entry("a number that no client could read", specWith(oneTemplate, `"minHealthy":2147483648`), "spec.minHealthy: Invalid value: 2147483648: minHealthy must be at most 2147483647"),
	Entry("another such number", specWith(oneTemplate, `"maxUnhealthy":2147483648`), "spec.maxUnhealthy: Invalid value: 2147483648: maxUnhealthy must be at most 2147483647"),
	Entry("C15: maxUnhealthy with a template that deletes machines",
		specWith(`"maxUnhealthy":1`, templateWith(`"apiVersion":"test.io/v1","kind":"MachineDeletionRemediationTemplate","name":"a"`)),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate"),
	Entry("C15: the same however it is written",
		specWith(`"maxUnhealthy":1`, templateWith(`"apiVersion":"test.io/v1","kind":"machinedeletionREMEDIATIONTemplate","name":"a"`)),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate"),
	Entry("C15: maxUnhealthy with a step that deletes machines",
		specWith(`"maxUnhealthy":1`, ladder(rung("RebootTemplate", 1, "60s"), rung("MachineDeletionremediationTemplate", 2, "60s"))),
		"spec.maxUnhealthy: Invalid value: maxUnhealthy can't be used with MachineDeletionRemediationTemplate escalating remediation"),
	Entry("C17, seed 0.8: neither a template nor steps", specWith(`"minHealthy":1`),
		"spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"),
	Entry("C17: an empty list of steps", specWith(ladder()),
		"spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"),
	Entry("C17: an empty spec", specWith(), "spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"),
	Entry("C17: no spec", ``, "spec: Invalid value: Either RemediationTemplate or at least one EscalatingRemediations must be set"),
	Entry("C17: both a template and steps", specWith(oneTemplate, ladder(rung("RebootTemplate", 1, "60s"))),
		"spec: Invalid value: RemediationTemplate and EscalatingRemediations usage is mutual exclusive"),
	Entry("C18: two steps of one order",
		specWith(ladder(rung("RebootTemplate", 3, "60s"), rung("FenceTemplate", 5, "60s"), rung("ReplaceTemplate", 5, "60s"))),
		"spec.escalatingRemediations: Invalid value: EscalatingRemediation Order must be unique: found duplicate order 5"),
	Entry("C18: a step of less than a minute", specWith(ladder(rung("RebootTemplate", 1, "60s"), rung("FenceTemplate", 2, "59s"))),
		`spec.escalatingRemediations[1].timeout: Invalid value: "59s": EscalatingRemediation Timeout must be at least one minute: found timeout 59s`),
	Entry("C18: a step of almost a minute", specWith(ladder(rung("RebootTemplate", 1, "0.99m"))),
		`spec.escalatingRemediations[0].timeout: Invalid value: "0.99m": EscalatingRemediation Timeout must be at least one minute: found timeout 0.99m`),
	Entry("more steps than there may be", specWith(ladder(rungs(21)...)), "spec.escalatingRemediations: Too many: 21: must have at most 20 items"),
	Entry("W21: a kind that is not one of templates", specWith(templateWith(`"apiVersion":"test.io/v1","kind":"Reboot","name":"a"`)),
		"spec.remediationTemplate.kind: Invalid value: "+
			"kind of the remediation template must be the kind of the remediation followed by Template: found kind Reboot"),
	Entry("W21: a kind that is nothing but Template", specWith(ladder(rung("Template", 1, "60s"))),
		"spec.escalatingRemediations[0].remediationTemplate.kind: Invalid value: "+
			"kind of the remediation template must be the kind of the remediation followed by Template: found kind Template"),
	Entry("W21: a kind that is shorter than Template", specWith(ladder(rung("Foo", 1, "60s"))),
		"kind of the remediation template must be the kind of the remediation followed by Template: found kind Foo"),
	Entry("a template of no kind", specWith(templateWith(`"apiVersion":"test.io/v1","name":"a"`)),
		"spec.remediationTemplate.kind: Invalid value: kind of the remediation template must be set"),
	Entry("a template of an empty kind", specWith(templateWith(`"apiVersion":"test.io/v1","kind":"","name":"a"`)),
		"spec.remediationTemplate.kind: Invalid value: kind of the remediation template must be set"),
	Entry("a template of no version", specWith(templateWith(`"kind":"RebootTemplate","name":"a"`)),
		"spec.remediationTemplate.apiVersion: Invalid value: apiVersion of the remediation template must be set"),
	Entry("a template without a name", specWith(templateWith(`"apiVersion":"test.io/v1","kind":"RebootTemplate","name":""`)),
		"spec.remediationTemplate.name: Invalid value: name of the remediation template must be set"),
	Entry("a step whose template is nothing", specWith(ladder(`{"remediationTemplate":{},"order":1,"timeout":"60s"}`)),
		"spec.escalatingRemediations[0].remediationTemplate.name: Invalid value: name of the remediation template must be set"),
	Entry("a step without a template", specWith(ladder(`{"order":1,"timeout":"60s"}`)), "spec.escalatingRemediations[0].remediationTemplate: Required value"),
	Entry("a step without an order", specWith(ladder(`{"remediationTemplate":{},"timeout":"60s"}`)), "spec.escalatingRemediations[0].order: Required value"),
	Entry("a step without a timeout", specWith(ladder(`{"remediationTemplate":{},"order":1}`)), "spec.escalatingRemediations[0].timeout: Required value"),
	Entry("W34: no unhealthy condition at all", specWith(oneTemplate, `"unhealthyConditions":[]`),
		"spec.unhealthyConditions: Invalid value: unhealthyConditions must not be empty: no node would ever be unhealthy"),
	Entry("one condition twice", specWith(oneTemplate, `"unhealthyConditions":[{"type":"Ready","status":"False","duration":"1s"},{"type":"Ready","status":"False","duration":"2s"}]`),
		"spec.unhealthyConditions[1]: Duplicate value"),
	Entry("a duration without a unit", specWith(oneTemplate, unwell("False", "300")), "spec.unhealthyConditions[0].duration: Invalid value"),
	Entry("a negative duration", specWith(oneTemplate, unwell("False", "-5m")), "spec.unhealthyConditions[0].duration: Invalid value"),
	Entry("a duration that no client could read", specWith(oneTemplate, unwell("False", "9999999h")),
		`spec.unhealthyConditions[0].duration: Invalid value: "string": `+notDuration+" evaluating rule: duration must be at most 2562047h"),
	Entry("a cooldown that no client could read", specWith(oneTemplate, `"stormCooldownDuration":"9999999h"`),
		notDuration+" evaluating rule: stormCooldownDuration must be at most 2562047h"),
	Entry("a delay that no client could read", specWith(oneTemplate, `"healthyDelay":"-9999999h"`),
		notDuration+" evaluating rule: healthyDelay must be at most 2562047h"),
	Entry("a negative cooldown", specWith(oneTemplate, `"stormCooldownDuration":"-1s"`), "spec.stormCooldownDuration: Invalid value"),
	Entry("a condition of a truth value, as YAML reads False without quotation marks",
		specWith(oneTemplate, `"unhealthyConditions":[{"type":"Ready","status":false,"duration":"300s"}]`),
		`spec.unhealthyConditions[0].status: Invalid value: "boolean": spec.unhealthyConditions[0].status in body must be of type string: "boolean"`),
}

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
	Expect(hooks.Webhooks).To(HaveLen(1))
	to := &hooks.Webhooks[0].ClientConfig
	to.URL, to.CABundle = ptr.To(server.URL+*to.Service.Path), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	to.Service = nil
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

var _ = Describe("NodeHealthChecks", Ordered, ContinueOnFailure, func() {
	var ward *clinic

	BeforeAll(func(ctx SpecContext) { ward = newClinic(ctx) })

	Context("by their schema alone", func() {
		DescribeTable("accept", func(ctx SpecContext, spec string) {
			Expect(ward.Create(ctx, check("a", spec), client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())
		}, takenChecks)

		DescribeTable("refuse (seed 2.4)", func(ctx SpecContext, spec, with string) {
			Expect(ward.Create(ctx, check("a", spec), client.DryRunAll)).To(MatchError(ContainSubstring(with)))
		}, refusedChecks)

		DescribeTable("accept the manifests of the documentation as they are", func(ctx SpecContext, file, becomes string) {
			o := testdata(file)
			Expect(ward.Create(ctx, o, client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())
			content, err := json.Marshal(o.Object["spec"])
			Expect(err).NotTo(HaveOccurred())
			Expect(content).To(MatchJSON(becomes))
		},
			Entry("seed 000", "seed-000.yaml", specWith(bothDefaults,
				templateWith(`"apiVersion":"medik8s.io/v1alpha1","kind":"ProviderXRemediationTemplate","name":"group-x","namespace":"default"`))),
			Entry("seed 000 with all options", "seed-000-optional.yaml", specWith(unwell("False", "300s"), `"maxUnhealthy":"49%"`,
				`"selector":{"matchLabels":{"kubernetes.io/os":"linux"},
					"matchExpressions":[{"key":"another-node-label-key","operator":"In","values":["another-node-label-value"]}]}`,
				templateWith(`"apiVersion":"medik8s.io/v1alpha1","kind":"ProviderXRemediationTemplate","name":"group-x","namespace":"default"`))),
			Entry("seed 001", "seed-001.yaml", specWith(bothDefaults, `"minHealthy":"51%","pauseRequests":["<pause-test-cluster>"]`,
				`"selector":{"matchExpressions":[{"key":"node-role.kubernetes.io/worker","operator":"Exists"}]}`,
				templateWith(`"apiVersion":"poison-pill.medik8s.io/v1alpha1","kind":"PoisonPillRemediationTemplate","name":"group-x","namespace":"openshift-operators"`))),
		)

		It("C01, C03, seed 0.14: have default conditions and keep a template that does not exist", func(ctx SpecContext) {
			o := check("defaults", specWith(oneTemplate))
			Expect(ward.Create(ctx, o)).To(Succeed())
			stored := &nhcv1.NodeHealthCheck{}
			Expect(ward.Get(ctx, client.ObjectKeyFromObject(o), stored)).To(Succeed())
			content, err := json.Marshal(stored.Spec)
			Expect(err).NotTo(HaveOccurred())
			Expect(content).To(MatchJSON(specWith(`"selector":{}`, oneTemplate, strings.ReplaceAll(bothDefaults, "300s", "5m0s"))))
		})

		It("C02: take a part of the status", func(ctx SpecContext) {
			o := check("part", specWith(oneTemplate))
			Expect(ward.Create(ctx, o)).To(Succeed())
			Expect(ward.Status().Patch(ctx, o, client.RawPatch(client.Merge.Type(), []byte(`{"status":{"observedNodes":6}}`)))).To(Succeed())
			Expect(ward.Status().Patch(ctx, o, client.RawPatch(client.Merge.Type(),
				[]byte(`{"status":{"unhealthyNodes":[{"name":"a"}]}}`)))).To(Succeed())
			Expect(ward.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			Expect(o.Object["status"]).To(Equal(parsed(`{"observedNodes":6,"unhealthyNodes":[{"name":"a"}]}`)))
		})

		It("show in columns what they do", func(ctx SpecContext) {
			Expect(ward.Create(ctx, check("shown", specWith(oneTemplate)))).To(Succeed())
			Expect(ward.columns(ctx, "shown")).To(Equal(map[string]any{
				"Name": "shown", "Phase": nil, "Observed": nil, "Healthy": nil, "Remediating": nil, "Reason": nil, "Age": "0s",
			}))
			const remediation = `{"resource":{"name":"a"},"started":"2026-01-01T12:00:00Z"}`
			Expect(ward.Status().Patch(ctx, check("shown", ""), client.RawPatch(client.Merge.Type(), []byte(`{"status":{
				"phase":"Remediating","reason":"NHC is remediating 2 nodes","observedNodes":6,"healthyNodes":3,"unhealthyNodes":[
					{"name":"listed"},{"name":"first","remediations":[`+remediation+`]},{"name":"second","remediations":[`+remediation+`]}]}}`)))).To(Succeed())
			Expect(ward.columns(ctx, "shown")).To(SatisfyAll(
				HaveKeyWithValue("Phase", "Remediating"), HaveKeyWithValue("Observed", int64(6)), HaveKeyWithValue("Healthy", int64(3)),
				HaveKeyWithValue("Remediating", "first"), HaveKeyWithValue("Reason", "NHC is remediating 2 nodes"),
			))
		})

		It("leave alone what was stored before it was refused", func(ctx SpecContext) {
			stored := map[string]string{
				"old":     specWith(`"minHealthy":1,"maxUnhealthy":1`, `"unhealthyConditions":[]`, ladder(rung("Reboot", 1, "1s"), rung("Reboot", 1, "1s"))),
				"nothing": "",
			}
			ward.unruled(ctx, func() {
				for name, spec := range stored {
					Eventually(func() error { return ward.Create(ctx, check(name, spec)) }).Should(Succeed())
				}
			})
			for name := range stored {
				Expect(ward.Create(ctx, check("new", stored[name]), client.DryRunAll)).NotTo(Succeed())
				Expect(ward.Status().Patch(ctx, check(name, ""), client.RawPatch(client.Merge.Type(), []byte(`{"status":{"phase":"Disabled"}}`)))).To(Succeed())
				Expect(ward.set(ctx, name, `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
			}
			Expect(ward.set(ctx, "old", `{"spec":{"pauseRequests":["for the test"]}}`)).
				To(MatchError(ContainSubstring("minHealthy and maxUnhealthy cannot")), "what concerns several fields concerns all of the spec")
		})

		It("refuse a change as they refuse a new object (seed 2.4)", func(ctx SpecContext) {
			o := check("changes", specWith(oneTemplate, `"minHealthy":1`))
			Expect(ward.Create(ctx, o)).To(Succeed())
			Expect(ward.Patch(ctx, o, client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"maxUnhealthy":1}}`)))).
				To(MatchError(ContainSubstring("minHealthy and maxUnhealthy cannot be specified at the same time")))
		})
	})

	Context("with the webhook that knows the cluster", func() {
		const storage = `{"spec":{"selector":{"matchLabels":{"role":"storage"}}}}`
		pair := specWith(ladder(
			`{"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"default","name":"b"},"order":1,"timeout":"60s"}`,
			`{"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"default","name":"c"},"order":2,"timeout":"60s"}`))

		BeforeAll(func(ctx SpecContext) { ward.ask(ctx) })

		It("C20, W8, seed 2.4: stay as they are while a request is at work, and no longer", func(ctx SpecContext) {
			Expect(ward.Create(ctx, check("busy", specWith(ownTemplate)))).To(Succeed())
			request := hostsOwn.remediation("node-1", `{}`)
			Expect(ward.Create(ctx, request)).To(Succeed())
			ward.remediate(ctx, "busy", request)

			prohibited := func(what string) types.GomegaMatcher {
				return MatchError(`admission webhook "vnodehealthcheck.kb.io" denied the request: ` + what + " prohibited due to running remediation")
			}
			Expect(ward.set(ctx, "busy", storage)).To(prohibited("selector update"))
			Expect(ward.set(ctx, "busy", `{"spec":{"remediationTemplate":{"namespace":"default","apiVersion":"test.io/v1","kind":"RebootTemplate","name":"b"}}}`)).
				To(prohibited("remediation template update"))
			Expect(ward.Delete(ctx, check("busy", ""))).To(prohibited("deletion"))
			Expect(ward.set(ctx, "busy", `{"spec":{"pauseRequests":["for the test"],"maxUnhealthy":1}}`)).To(Succeed())

			Expect(ward.Delete(ctx, request)).To(Succeed())
			Expect(ward.set(ctx, "busy", storage)).To(Succeed())
			request.SetResourceVersion("")
			request.SetUID("")
			Expect(ward.Create(ctx, request)).To(Succeed(), "another one of the same name")
			Expect(ward.Delete(ctx, check("busy", ""))).To(Succeed())
		})

		It("W8: can be deleted when the kind of the request has gone", func(ctx SpecContext) {
			Expect(ward.Create(ctx, check("forgotten", specWith(ownTemplate)))).To(Succeed())
			ward.remediate(ctx, "forgotten", another.object("Gone", "default", "node-1"))
			Expect(ward.set(ctx, "forgotten", storage)).To(Succeed())
			Expect(ward.Delete(ctx, check("forgotten", ""))).To(Succeed())
		})

		It("stay as they are while nobody knows whether a request is there", func(ctx SpecContext) {
			Expect(ward.Create(ctx, check("unknown", specWith(ownTemplate)))).To(Succeed())
			ward.remediate(ctx, "unknown", provider{"v1", ""}.object("ConfigMap", "default", "node-1")) // of which the program may see none
			cannot := MatchError(SatisfyAll(
				HavePrefix(`admission webhook "vnodehealthcheck.kb.io" denied the request: cannot find out whether a remediation is running: `+
					`list ConfigMap: configmaps is forbidden: User "validator" cannot list resource "configmaps"`),
				HaveSuffix("; try again when kubemend can list ConfigMap (v1)"),
			))
			Expect(ward.set(ctx, "unknown", storage)).To(cannot)
			Expect(ward.Delete(ctx, check("unknown", ""))).To(cannot)
			Expect(ward.set(ctx, "unknown", `{"spec":{"pauseRequests":["for the test"]}}`)).To(Succeed())

			ward.grant(ctx, &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "remediator"},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
			})
			Eventually(ward.set).WithArguments(ctx, "unknown", storage).Should(Succeed())
			Expect(ward.Delete(ctx, check("unknown", ""))).To(Succeed())
		})

		It("C18: may use two templates of a kind if all templates of that kind say so", func(ctx SpecContext) {
			duplicate := MatchError(ContainSubstring(
				"Using multiple templates of same kind is not supported for this template: duplicate template kind: HostRemediationTemplate"))
			Expect(ward.Create(ctx, check("pair", pair), client.DryRunAll)).To(duplicate)
			for _, name := range []string{"b", "c"} {
				o := hostsOwn.madeFrom(name, `{}`)
				o.SetAnnotations(map[string]string{nhcv1.MultipleTemplatesAnnotation: "true"})
				Expect(ward.Create(ctx, o)).To(Succeed())
			}
			Expect(ward.Create(ctx, check("pair", pair), client.DryRunAll)).To(Succeed())
			Expect(ward.Create(ctx, hostsOwn.madeFrom("d", `{}`))).To(Succeed())
			Expect(ward.Create(ctx, check("pair", pair), client.DryRunAll)).To(duplicate)
		})

		It("C18: may not if the kind does not exist", func(ctx SpecContext) {
			Expect(ward.Create(ctx, check("pair", specWith(ladder(rung("RebootTemplate", 1, "60s"), rung("RebootTemplate", 2, "60s")))), client.DryRunAll)).
				To(MatchError(ContainSubstring("duplicate template kind: RebootTemplate")))
		})

		It("are warned about, and accepted (seed 0.9)", func(ctx SpecContext) {
			Expect(ward.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"role": "worker"}}})).To(Succeed())
			Expect(ward.Create(ctx, check("workers", specWith(ownTemplate, `"minHealthy":0,"selector":{"matchLabels":{"role":"worker"}}`)))).To(Succeed())
			ward.said = nil
			Expect(ward.Create(ctx, check("slips", specWith(oneTemplate, `"maxUnhealthy":"0%"`, unwell("unknown", "5m"))))).To(Succeed())
			Expect(ward.said).To(ContainElements(
				"spec.selector is empty: all nodes of the cluster are watched, also those of the control plane",
				`spec.unhealthyConditions[0].status is "unknown", which no node's condition ever is: Unknown is meant`,
				"spec.maxUnhealthy 0% allows no remediation, not even of a single node",
				"remediation template RebootTemplate default/a does not exist: the check will be Disabled until it does",
				"NodeHealthChecks slips and workers select the same nodes, such as node-1: whichever is first remediates, and the other one waits",
			))
			ward.said = nil
			Expect(ward.set(ctx, "slips", `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
			Expect(ward.said).To(BeEmpty(), "nothing has changed that could be a slip")
		})
	})
})
