package conformance

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

// docs/security.md recommends it where tenants may write checks of their own.
var _ = Describe("The policy of docs/examples/limits-policy.yaml", Serial, func() {
	It("refuses checks of tenants that could remediate most of their machines, or do so at once", func(ctx SpecContext) {
		tenant := builders.Namespace("policy-tenant")
		tenant.Labels = map[string]string{"kubemend.io/tenant": ""}
		free := builders.Namespace("policy-free")
		Expect(here.Create(ctx, tenant)).To(Succeed())
		Expect(here.Create(ctx, free)).To(Succeed())
		for _, obj := range suite.Manifest("../../docs/examples/limits-policy.yaml") {
			Expect(here.Create(ctx, obj)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, obj)).To(Succeed()) })
		}

		atOnce := "20%"
		asked := func(namespace string, edit func(*clusterv1.MachineHealthCheckSpec)) func() error {
			return func() error {
				check := builders.MachineHealthCheck(builders.Cluster(namespace, "c"), "check", func(c *clusterv1.MachineHealthCheck) {
					for i := range c.Spec.Checks.UnhealthyNodeConditions {
						c.Spec.Checks.UnhealthyNodeConditions[i].TimeoutSeconds = ptr.To[int32](60)
					}
					c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: atOnce}
					edit(&c.Spec)
				})
				return here.Create(ctx, check, client.DryRunAll)
			}
		}
		limit := func(value intstr.IntOrString) func(*clusterv1.MachineHealthCheckSpec) {
			return func(s *clusterv1.MachineHealthCheckSpec) { s.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &value }
		}
		none := func(*clusterv1.MachineHealthCheckSpec) {}
		Eventually(asked(tenant.Name, none)).Should(MatchError(ContainSubstring("has to be a percentage")), "no limit is none")
		for _, high := range []intstr.IntOrString{intstr.FromString("41%"), intstr.FromString("100%"), intstr.FromInt32(2)} {
			Expect(asked(tenant.Name, limit(high))()).To(MatchError(ContainSubstring("has to be a percentage")), high.String())
		}
		Expect(asked(tenant.Name, func(s *clusterv1.MachineHealthCheckSpec) {
			limit(intstr.FromString("40%"))(s)
			s.Remediation.TriggerIf.UnhealthyInRange = "[0-100]"
		})()).To(MatchError(ContainSubstring("unhealthyInRange may not be set")))
		Expect(asked(tenant.Name, func(s *clusterv1.MachineHealthCheckSpec) {
			limit(intstr.FromString("40%"))(s)
			s.Checks.UnhealthyNodeConditions[0].TimeoutSeconds = ptr.To[int32](59)
		})()).To(MatchError(ContainSubstring("has to be 60 at least")))
		Expect(asked(tenant.Name, func(s *clusterv1.MachineHealthCheckSpec) {
			limit(intstr.FromString("40%"))(s)
			s.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
				{Type: "Custom", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](0)},
			}
		})()).To(MatchError(ContainSubstring("unhealthyMachineConditions has to be 60 at least")))
		for field, edit := range map[string]func(*clusterv1.MachineHealthCheckSpec){
			"nodeStartupTimeoutSeconds has to be 300": func(s *clusterv1.MachineHealthCheckSpec) { s.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](299) },
			"unhealthyNodeConditions may not call": func(s *clusterv1.MachineHealthCheckSpec) {
				s.Checks.UnhealthyNodeConditions[0].Status = corev1.ConditionTrue
			},
			"or a pressure that is False": func(s *clusterv1.MachineHealthCheckSpec) {
				s.Checks.UnhealthyNodeConditions[0].Type = corev1.NodeDiskPressure
			},
			"unhealthyMachineConditions may not call": func(s *clusterv1.MachineHealthCheckSpec) {
				s.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
					{Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, TimeoutSeconds: ptr.To[int32](60)},
				}
			},
			"templateRef may name": func(s *clusterv1.MachineHealthCheckSpec) {
				s.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{APIVersion: "example.org/v1", Kind: "WipeTemplate", Name: "w"}
			},
		} {
			Expect(asked(tenant.Name, func(s *clusterv1.MachineHealthCheckSpec) {
				limit(intstr.FromString("40%"))(s)
				edit(s)
			})()).To(MatchError(ContainSubstring(field)))
		}
		for _, many := range []string{"", "0", "2", "21%", "100%", "some"} {
			atOnce = many
			Expect(asked(tenant.Name, limit(intstr.FromString("40%")))()).To(MatchError(ContainSubstring(mendv1.MaxInFlightAnnotation)), many)
		}
		atOnce = "1"
		Expect(asked(tenant.Name, func(s *clusterv1.MachineHealthCheckSpec) {
			limit(intstr.FromString("40%"))(s)
			s.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](0)
			s.Checks.UnhealthyNodeConditions[1].Type, s.Checks.UnhealthyNodeConditions[1].Status = corev1.NodeDiskPressure, corev1.ConditionTrue
			s.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
				APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
			}
		})()).To(Succeed(), "a start-up timeout that is off, a pressure, a power cycle")
		for _, low := range []string{"0%", "9%", "33%", "40%"} {
			Expect(asked(tenant.Name, limit(intstr.FromString(low)))()).To(Succeed(), low)
		}
		Expect(asked(free.Name, none)()).To(Succeed(), "in other namespaces nothing is asked for")
	})

	It("allows only users with the verb remediate to mark a machine of a tenant", func(ctx SpecContext) {
		tenant := builders.Namespace("policy-marks")
		tenant.Labels = map[string]string{"kubemend.io/tenant": ""}
		Expect(here.Create(ctx, tenant)).To(Succeed())
		for _, obj := range suite.Manifest("../../docs/examples/limits-policy.yaml") {
			Expect(here.Create(ctx, obj)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, obj)).To(Succeed()) })
		}
		cluster := builders.Cluster(tenant.Name, "c")
		made := func(by client.Client, name string, annotations map[string]string) func() error {
			return func() error {
				return by.Create(ctx, builders.ControlPlaneMachine(cluster, name, func(m *clusterv1.Machine) { m.Annotations = annotations }), client.DryRunAll)
			}
		}
		mark := map[string]string{clusterv1.RemediateMachineAnnotation: ""}
		refused := MatchError(ContainSubstring("who have the verb remediate"))
		editor, operator := whoMay(ctx, tenant.Name, "editor", "create", "patch"), whoMay(ctx, tenant.Name, "operator", "create", "patch", "remediate")
		Eventually(made(editor, "marked", mark)).Should(refused)
		Expect(made(editor, "plain", nil)()).To(Succeed())
		Expect(made(operator, "marked", mark)()).To(Succeed())

		m := builders.ControlPlaneMachine(cluster, "m")
		Expect(here.Create(ctx, m)).To(Succeed())
		patch := func(by client.Client, text string) error {
			return by.Patch(ctx, m.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":`+text+`}}`)))
		}
		Expect(patch(editor, `{"cluster.x-k8s.io/remediate-machine":""}`)).To(refused)
		Expect(patch(operator, `{"cluster.x-k8s.io/remediate-machine":""}`)).To(Succeed())
		Expect(patch(editor, `{"note":"of a machine that is marked"}`)).To(Succeed())
		Expect(patch(editor, `{"cluster.x-k8s.io/remediate-machine":null}`)).To(Succeed(), "a mark may be removed")
	})
})

// whoMay is a client of a user who may do this with the machines of a namespace.
func whoMay(ctx context.Context, namespace, name string, verbs ...string) client.Client {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"machines"}, Verbs: verbs},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}
	Expect(builders.Apply(ctx, here, role, binding)).To(Succeed())
	config := rest.CopyConfig(management.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	impersonated, err := client.New(config, client.Options{Scheme: here.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return impersonated
}
