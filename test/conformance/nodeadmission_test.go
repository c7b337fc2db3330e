package conformance

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

var _ = Describe("NodeHealthChecks", Ordered, ContinueOnFailure, func() {
	var ward *clinic

	BeforeAll(func(ctx SpecContext) { ward = newClinic(ctx) })

	Context("by their schema alone", func() {
		DescribeTable("accept", func(ctx SpecContext, spec string) {
			Expect(ward.Create(ctx, check("a", spec), client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())
		}, takenChecks, takenSteps)

		DescribeTable("refuse (seed 2.4)", func(ctx SpecContext, spec, with string) {
			Expect(ward.Create(ctx, check("a", spec), client.DryRunAll)).To(MatchError(ContainSubstring(with)))
		}, refusedChecks, refusedSteps)

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
		const (
			storage           = `{"spec":{"selector":{"matchLabels":{"role":"storage"}}}}`
			onWrite, onDelete = "vnodehealthcheck.kb.io", "delete.nodehealthcheck.remediation.medik8s.io"
		)
		pair := specWith(ladder(
			`{"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"default","name":"b"},"order":1,"timeout":"60s"}`,
			`{"remediationTemplate":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","namespace":"default","name":"c"},"order":2,"timeout":"60s"}`))

		BeforeAll(func(ctx SpecContext) { ward.ask(ctx) })

		It("C20, W8, seed 2.4: stay as they are while a request is at work, and no longer", func(ctx SpecContext) {
			Expect(ward.Create(ctx, check("busy", specWith(ownTemplate)))).To(Succeed())
			request := hostsOwn.remediation("node-1", `{}`)
			Expect(ward.Create(ctx, request)).To(Succeed())
			ward.remediate(ctx, "busy", request)

			prohibited := func(webhook, what string) types.GomegaMatcher {
				return MatchError(`admission webhook "` + webhook + `" denied the request: ` + what +
					" prohibited due to running remediation: node-1 (HostRemediation default/node-1)")
			}
			Expect(ward.set(ctx, "busy", storage)).To(prohibited(onWrite, "selector update"))
			Expect(ward.set(ctx, "busy", `{"spec":{"remediationTemplate":{"namespace":"default","apiVersion":"test.io/v1","kind":"RebootTemplate","name":"b"}}}`)).
				To(prohibited(onWrite, "remediation template update"))
			Expect(ward.Delete(ctx, check("busy", ""))).To(prohibited(onDelete, "deletion"))
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
			cannot := func(webhook string) types.GomegaMatcher {
				return MatchError(SatisfyAll(
					HavePrefix(`admission webhook "`+webhook+`" denied the request: cannot find out whether a remediation is running: `+
						`list ConfigMap: configmaps is forbidden: User "validator" cannot list resource "configmaps"`),
					HaveSuffix("; try again when kubemend can list ConfigMap (v1)"),
				))
			}
			Expect(ward.set(ctx, "unknown", storage)).To(cannot(onWrite))
			Expect(ward.Delete(ctx, check("unknown", ""))).To(cannot(onDelete))
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
			Expect(ward.Create(ctx, check("pair", specWith(ladder(rung("RebootTemplate", 1, "60s"),
				stepOf(`"apiVersion":"test.io/v1","kind":"RebootTemplate","namespace":"default","name":"b"`, 2)))), client.DryRunAll)).
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
