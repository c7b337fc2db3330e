package conformance

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/crd"
	"github.com/kubemend/kubemend/test/schemas"
)

// Specs of NodeHealthChecks.
const (
	withTemplate    = `{"remediationTemplate":{"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"a"}}`
	withOwnTemplate = `{"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"default","name":"a"}}`
)

func check(name, spec string) *unstructured.Unstructured {
	return schemas.NodeHealthCheck.Object(name, spec)
}

// What the definitions answer is in the tables of test/schemas, and asked in process. Here an API server answers some of the same requests, and
// those for which there has to be one.
var _ = Describe("Kinds of kubemend", Ordered, ContinueOnFailure, func() {
	var kinds *catalog

	BeforeAll(func(ctx SpecContext) { kinds = newCatalog(ctx) })

	Context("with their conversion", func() {
		It("get the same answers as in process", func(ctx SpecContext) {
			inProcess, err := schemas.Serve(crdManifests)
			Expect(err).NotTo(HaveOccurred())
			kinds.answersLike(ctx, inProcess, someOf(slices.Concat(schemas.Remediations(), schemas.NodeHealthChecks(), schemas.DocumentedChecks()), 20))
		})

		It("keep what was stored before a rule refused it, and have a change refused like a new object (seed 2.4)", func(ctx SpecContext) {
			const older = `{"minHealthy":1,"maxUnhealthy":1,"unhealthyConditions":[]}`
			kinds.unruled(ctx, func() {
				Eventually(func() error { return kinds.Create(ctx, check("old", older)) }).Should(Succeed())
			})
			Expect(kinds.Create(ctx, check("new", older), client.DryRunAll)).NotTo(Succeed())
			Expect(kinds.Status().Patch(ctx, check("old", ""), client.RawPatch(client.Merge.Type(), []byte(`{"status":{"phase":"Disabled"}}`)))).To(Succeed())
			Expect(kinds.set(ctx, "old", `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
			Expect(kinds.set(ctx, "old", `{"spec":{"pauseRequests":["for the test"]}}`)).
				To(MatchError(ContainSubstring("minHealthy and maxUnhealthy cannot")), "what concerns several fields concerns all of the spec")
		})
	})

	Context("with all webhooks", func() {
		const storage = `{"spec":{"selector":{"matchLabels":{"role":"storage"}}}}`

		BeforeAll(func(ctx SpecContext) {
			kinds.complete(ctx)
			kinds.validate(ctx)
		})

		It("get the same answers as in process", func(ctx SpecContext) {
			inProcess, err := schemas.ServeCompleted(crdManifests)
			Expect(err).NotTo(HaveOccurred())
			kinds.answersLike(ctx, inProcess, slices.Concat(someOf(schemas.CompletedTemplates(), 4), schemas.DocumentedTemplates()))
		})

		It("C9: are converted from v1beta1 and back, with their status", func(ctx SpecContext) {
			row := schemas.Conversions[0]
			for _, stored := range []*unstructured.Unstructured{
				schemas.Metal3V1Beta1.Object("converted", row.Old), schemas.Metal3V1Beta1.Template().Object("converted", row.Old),
			} {
				Expect(kinds.Create(ctx, stored)).To(Succeed())
				Expect(schemas.Spec(kinds.as(ctx, schemas.Metal3V1Beta2, stored))).To(Equal(row.New))
				Expect(schemas.Spec(kinds.as(ctx, schemas.Metal3V1Beta1, stored))).To(Equal(row.Back))
			}
			remediation := kinds.as(ctx, schemas.Metal3V1Beta2, schemas.Metal3V1Beta1.Object("converted", ""))
			status := schemas.JSON(`{"phase":"Deleting machine","retryCount":2,"lastRemediated":"2026-01-01T12:00:00Z","message":"Handed to its owner",
				"conditions":[{"type":"` + v1beta2.PoweredOffCondition + `","status":"False","reason":"TimedOut","message":"",
					"lastTransitionTime":"2026-01-01T12:00:00Z"}]}`)
			remediation.Object["status"] = status
			Expect(kinds.Status().Update(ctx, remediation)).To(Succeed())
			for _, k := range []schemas.Kind{schemas.Metal3V1Beta1, schemas.Metal3V1Beta2} {
				Expect(kinds.as(ctx, k, remediation).Object["status"]).To(Equal(any(status)), k.String())
			}
		})

		It("C02: take a part of the status of a NodeHealthCheck, and show it in columns", func(ctx SpecContext) {
			Expect(kinds.Create(ctx, check("shown", withTemplate))).To(Succeed())
			Expect(kinds.columns(ctx, "shown")).To(MatchAllKeys(Keys{
				"Name": Equal("shown"), "Phase": BeNil(), "Observed": BeNil(), "Healthy": BeNil(), "Remediating": BeNil(), "Reason": BeNil(),
				"Age": MatchRegexp(`^\d+s$`),
			}))
			const remediation = `{"resource":{"name":"a"},"started":"2026-01-01T12:00:00Z"}`
			for _, part := range []string{
				`{"status":{"observedNodes":6}}`,
				`{"status":{"unhealthyNodes":[{"name":"a"}]}}`,
				`{"status":{"phase":"Remediating","reason":"NHC is remediating 2 nodes","healthyNodes":3,"unhealthyNodes":[
					{"name":"listed"},{"name":"first","remediations":[` + remediation + `]},{"name":"second","remediations":[` + remediation + `]}]}}`,
			} {
				o := check("shown", "")
				Expect(kinds.Status().Patch(ctx, o, client.RawPatch(client.Merge.Type(), []byte(part)))).To(Succeed())
				Expect(o.Object["status"]).To(SatisfyAll(HaveKeyWithValue("observedNodes", int64(6)), Not(HaveKey("inFlightRemediations"))))
			}
			Expect(kinds.columns(ctx, "shown")).To(SatisfyAll(
				HaveKeyWithValue("Phase", "Remediating"), HaveKeyWithValue("Observed", int64(6)), HaveKeyWithValue("Healthy", int64(3)),
				HaveKeyWithValue("Remediating", "first"), HaveKeyWithValue("Reason", "NHC is remediating 2 nodes"),
			))
		})

		It("C20, W8, seed 2.4: cannot be changed while a request exists, and can afterwards", func(ctx SpecContext) {
			Expect(kinds.Create(ctx, check("busy", withOwnTemplate))).To(Succeed())
			request := schemas.Host.Object("node-1", `{}`)
			Expect(kinds.Create(ctx, request)).To(Succeed())
			kinds.remediate(ctx, "busy", request)

			Expect(kinds.set(ctx, "busy", storage)).To(deniedBy(onWrite, "selector update"))
			Expect(kinds.set(ctx, "busy", `{"spec":{"remediationTemplate":{"namespace":"default","apiVersion":"test.io/v1","kind":"RebootTemplate","name":"b"}}}`)).
				To(deniedBy(onWrite, "remediation template update"))
			Expect(kinds.Delete(ctx, check("busy", ""))).To(deniedBy(onDelete, "deletion"))
			Expect(kinds.set(ctx, "busy", `{"spec":{"pauseRequests":["for the test"],"maxUnhealthy":1}}`)).To(Succeed())

			Expect(kinds.Delete(ctx, request)).To(Succeed())
			Expect(kinds.set(ctx, "busy", storage)).To(Succeed())
			request.SetResourceVersion("")
			request.SetUID("")
			Expect(kinds.Create(ctx, request)).To(Succeed(), "another one of the same name")
			kinds.remediate(ctx, "busy", another.object("Gone", "default", "node-1"))
			Expect(kinds.Delete(ctx, check("busy", ""))).To(Succeed(), "the kind of the request has gone")
		})

		It("cannot be changed while the webhook cannot find out whether a request exists", func(ctx SpecContext) {
			Expect(kinds.Create(ctx, check("unknown", withOwnTemplate))).To(Succeed())
			kinds.remediate(ctx, "unknown", provider{"v1", ""}.object("ConfigMap", "default", "node-1")) // of which the program may see none
			cannot := func(webhook string) types.GomegaMatcher {
				return MatchError(SatisfyAll(
					HavePrefix(`admission webhook "`+webhook+`" denied the request: cannot find out whether a remediation is running: `+
						`list ConfigMap: configmaps is forbidden: User "validator" cannot list resource "configmaps"`),
					HaveSuffix("; try again when kubemend can list ConfigMap (v1)"),
				))
			}
			Expect(kinds.set(ctx, "unknown", storage)).To(cannot(onWrite))
			Expect(kinds.Delete(ctx, check("unknown", ""))).To(cannot(onDelete))
			Expect(kinds.set(ctx, "unknown", `{"spec":{"pauseRequests":["for the test"]}}`)).To(Succeed())

			kinds.grant(ctx, &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "remediator"},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
			})
			Eventually(kinds.set).WithArguments(ctx, "unknown", storage).Should(Succeed())
			Expect(kinds.Delete(ctx, check("unknown", ""))).To(Succeed())
		})

		It("C18: may use two templates of a kind if all templates of that kind say so", func(ctx SpecContext) {
			pair := kinds.twoTemplates()
			duplicate := MatchError(ContainSubstring(
				"Using multiple templates of same kind is not supported for this template: duplicate template kind: HostRemediationTemplate"))
			Expect(kinds.Create(ctx, pair, client.DryRunAll)).To(duplicate)
			for _, name := range []string{"b", "c"} {
				kinds.allowMultiple(ctx, name)
			}
			Expect(kinds.Create(ctx, pair, client.DryRunAll)).To(Succeed())
		})

		It("are warned about, and accepted (seed 0.9)", func(ctx SpecContext) {
			Expect(kinds.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"role": "worker"}}})).To(Succeed())
			Expect(kinds.Create(ctx, check("workers", `{"minHealthy":0,"selector":{"matchLabels":{"role":"worker"}},`+withOwnTemplate[1:]))).To(Succeed())
			kinds.warnings = nil
			slips := `{"maxUnhealthy":"0%","unhealthyConditions":[{"type":"Ready","status":"unknown","duration":"5m"}],` + withTemplate[1:]
			Expect(kinds.Create(ctx, check("slips", slips))).To(Succeed())
			Expect(kinds.warnings).To(ContainElements(
				"spec.selector is empty: all nodes of the cluster are watched, also those of the control plane",
				`spec.unhealthyConditions[0].status is "unknown", which no node's condition ever is: Unknown is meant`,
				"spec.maxUnhealthy 0% allows no remediation, not even of a single node",
				"remediation template RebootTemplate default/a does not exist: the check will be Disabled until it does",
				"NodeHealthChecks slips and workers select the same nodes, such as node-1: whichever is first remediates, and the other one waits",
			))
			kinds.warnings = nil
			Expect(kinds.set(ctx, "slips", `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
			Expect(kinds.warnings).To(BeEmpty(), "nothing has changed that could be a slip")
		})
	})
})

// The validating webhooks.
const onWrite, onDelete = "vnodehealthcheck.kb.io", "delete.nodehealthcheck.remediation.medik8s.io"

func deniedBy(webhook, change string) types.GomegaMatcher {
	return MatchError(`admission webhook "` + webhook + `" denied the request: ` + change +
		" prohibited due to running remediation: node-1 (HostRemediation default/node-1)")
}

// someOf is every nth of the rows.
func someOf(rows []schemas.Row, n int) []schemas.Row {
	var some []schemas.Row
	for i := 0; i < len(rows); i += n {
		some = append(some, rows[i])
	}
	return some
}

// answersLike compares the answers of the API server with those that are computed in process.
func (c *catalog) answersLike(ctx context.Context, inProcess *crd.Server, rows []schemas.Row) {
	GinkgoHelper()
	for _, row := range rows {
		want := answer(inProcess.Create(ctx, row.Object))
		options := []client.CreateOption{client.DryRunAll}
		if row.Strict {
			want = answer(inProcess.CreateStrictly(ctx, row.Object))
			options = append(options, client.FieldValidation("Strict"))
		}
		o := row.Object.DeepCopy()
		c.namespace(ctx, o.GetNamespace())
		err := c.Create(ctx, o, options...)
		Expect(row.Check(o, err)).To(BeEmpty(), row.Name)
		Expect(answer(o, err)).To(Equal(want), row.Name)
	}
}

// answer is why an object is refused, or the spec with which it is accepted.
func answer(o *unstructured.Unstructured, err error) string {
	if err != nil {
		return err.Error()
	}
	return schemas.Spec(o)
}
