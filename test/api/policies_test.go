package api

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// writers makes clients of users who write objects while a policy is in force.
type writers struct {
	client.Client
	management *cluster
}

// underPolicy installs a policy and creates these namespaces for as long as the spec runs. The first namespace belongs to a tenant.
func underPolicy(ctx context.Context, management *cluster, policy []*unstructured.Unstructured, namespaces ...string) writers {
	GinkgoHelper()
	var objects []client.Object
	for i, name := range namespaces {
		namespace := builders.Namespace(name)
		if i == 0 {
			namespace.SetLabels(map[string]string{"kubemend.io/tenant": ""})
		}
		objects = append(objects, namespace)
	}
	for _, o := range policy {
		objects = append(objects, o)
	}
	for _, o := range objects {
		Expect(management.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(management.Delete(ctx, o)).To(Succeed())
			Eventually(func() error { return management.Get(ctx, client.ObjectKeyFromObject(o), o) }).
				Should(MatchError(ContainSubstring("not found")))
		}, NodeTimeout(specPatience))
	}
	return writers{suite.Client(management.plane.Config(), clusterv1.AddToScheme, bmov1alpha1.AddToScheme, mendv1.AddToScheme), management}
}

// user returns a client that impersonates a user who has this rule in a namespace.
func (w writers) user(ctx context.Context, namespace, name string, rule rbacv1.PolicyRule) client.Client {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: []rbacv1.PolicyRule{rule}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}
	Expect(builders.Apply(ctx, w, role, binding)).To(Succeed())
	config := rest.CopyConfig(w.management.plane.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	impersonated := suite.Must(client.New(config, client.Options{Scheme: w.Scheme()}))
	return impersonated
}

// patched sends a merge patch and returns its error.
func patched(ctx context.Context, by client.Client, o client.Object, patch string) error {
	return by.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// obeyPolicies has the specs of the policies that docs/security.md recommends where tenants may write.
func obeyPolicies(management *cluster) {
	limits := func() []*unstructured.Unstructured { return suite.Manifest("../../docs/examples/limits-policy.yaml") }

	It("under the policy of limits refuse checks of tenants that could remediate most machines", func(ctx SpecContext) {
		const tenant, free = "policy-tenant", "policy-free"
		here := underPolicy(ctx, management, limits(), tenant, free)
		asked := func(namespace string, edit func(*clusterv1.MachineHealthCheckSpec)) func() error {
			return func() error {
				check := builders.MachineHealthCheck(builders.Cluster(namespace, "c"), "check", func(c *clusterv1.MachineHealthCheck) {
					for i := range c.Spec.Checks.UnhealthyNodeConditions {
						c.Spec.Checks.UnhealthyNodeConditions[i].TimeoutSeconds = ptr.To[int32](60)
					}
					edit(&c.Spec)
				})
				return here.Create(ctx, check, client.DryRunAll)
			}
		}
		limit := func(value intstr.IntOrString) func(*clusterv1.MachineHealthCheckSpec) {
			return func(s *clusterv1.MachineHealthCheckSpec) { s.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &value }
		}
		none := func(*clusterv1.MachineHealthCheckSpec) {}
		Eventually(asked(tenant, none)).Should(MatchError(ContainSubstring("has to be a percentage")), "no limit is none")
		for _, high := range []intstr.IntOrString{intstr.FromString("41%"), intstr.FromString("100%"), intstr.FromInt32(2)} {
			Expect(asked(tenant, limit(high))()).To(MatchError(ContainSubstring("has to be a percentage")), high.String())
		}
		Expect(asked(tenant, func(s *clusterv1.MachineHealthCheckSpec) {
			limit(intstr.FromString("40%"))(s)
			s.Remediation.TriggerIf.UnhealthyInRange = "[0-100]"
		})()).To(MatchError(ContainSubstring("unhealthyInRange may not be set")))
		Expect(asked(tenant, func(s *clusterv1.MachineHealthCheckSpec) {
			limit(intstr.FromString("40%"))(s)
			s.Checks.UnhealthyNodeConditions[0].TimeoutSeconds = ptr.To[int32](59)
		})()).To(MatchError(ContainSubstring("has to be 60 at least")))
		Expect(asked(tenant, func(s *clusterv1.MachineHealthCheckSpec) {
			limit(intstr.FromString("40%"))(s)
			s.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
				{Type: "Custom", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](0)},
			}
		})()).To(MatchError(ContainSubstring("unhealthyMachineConditions has to be 60 at least")))
		for field, edit := range map[string]func(*clusterv1.MachineHealthCheckSpec){
			"nodeStartupTimeoutSeconds has to be 300": func(s *clusterv1.MachineHealthCheckSpec) {
				s.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](299)
			},
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
				s.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{APIVersion: "example.org/v1",
					Kind: "WipeTemplate", Name: "w"}
			},
		} {
			Expect(asked(tenant, func(s *clusterv1.MachineHealthCheckSpec) {
				limit(intstr.FromString("40%"))(s)
				edit(s)
			})()).To(MatchError(ContainSubstring(field)))
		}
		Expect(asked(tenant, func(s *clusterv1.MachineHealthCheckSpec) {
			limit(intstr.FromString("40%"))(s)
			s.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](0)
			s.Checks.UnhealthyNodeConditions[1].Type, s.Checks.UnhealthyNodeConditions[1].Status = corev1.NodeDiskPressure,
				corev1.ConditionTrue
			s.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
				APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
			}
		})()).To(Succeed(), "a disabled start-up timeout, a pressure, a power cycle")
		for _, low := range []string{"0%", "9%", "33%", "40%"} {
			Expect(asked(tenant, limit(intstr.FromString(low)))()).To(Succeed(), low)
		}
		Expect(asked(free, none)()).To(Succeed(), "the policy does not apply to other namespaces")
	}, SpecTimeout(specPatience))

	It("under the policy of limits allow only users with the verb remediate to mark a machine of a tenant", func(ctx SpecContext) {
		const tenant = "policy-marks"
		here := underPolicy(ctx, management, limits(), tenant)
		cluster := builders.Cluster(tenant, "c")
		made := func(by client.Client, name string, annotations map[string]string) func() error {
			return func() error {
				return by.Create(ctx, builders.ControlPlaneMachine(cluster, name,
					func(m *clusterv1.Machine) { m.Annotations = annotations }), client.DryRunAll)
			}
		}
		mark := map[string]string{clusterv1.RemediateMachineAnnotation: ""}
		refused := MatchError(ContainSubstring("who have the verb remediate"))
		may := func(name string, verbs ...string) client.Client {
			return here.user(ctx, tenant, name,
				rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"machines"}, Verbs: verbs})
		}
		editor, operator := may("editor", "create", "patch"), may("operator", "create", "patch", "remediate")
		Eventually(made(editor, "marked", mark)).Should(refused)
		Expect(made(editor, "plain", nil)()).To(Succeed())
		Expect(made(operator, "marked", mark)()).To(Succeed())

		m := builders.ControlPlaneMachine(cluster, "m")
		Expect(here.Create(ctx, m)).To(Succeed())
		Expect(patched(ctx, editor, m, `{"metadata":{"annotations":{"cluster.x-k8s.io/remediate-machine":""}}}`)).To(refused)
		Expect(patched(ctx, operator, m, `{"metadata":{"annotations":{"cluster.x-k8s.io/remediate-machine":""}}}`)).To(Succeed())
		Expect(patched(ctx, editor, m, `{"metadata":{"annotations":{"note":"of a machine that is marked"}}}`)).To(Succeed())
		Expect(patched(ctx, editor, m, `{"metadata":{"annotations":{"cluster.x-k8s.io/remediate-machine":null}}}`)).
			To(Succeed(), "a mark may be removed")
		Expect(here.Delete(ctx, m)).To(Succeed())
	}, SpecTimeout(specPatience))

	// kubemend acts on what it has stored in annotations, so users who can change them can cause remediations. The policy ships with the
	// CRDs.
	It("under the policy of the memory let only users who may write statuses change what kubemend stores", func(ctx SpecContext) {
		const namespace = "policy-memory"
		here := underPolicy(ctx, management, nil, namespace)
		may := func(name string, resources ...string) client.Client {
			return here.user(ctx, namespace, name, rbacv1.PolicyRule{
				APIGroups: []string{mendv1.GroupVersion.Group, "metal3.io"}, Resources: resources, Verbs: []string{"create", "patch"},
			})
		}
		tenant := may("tenant", "hostremediations", "baremetalhosts")
		controller := may("controller", "hostremediations", "hostremediations/status", "baremetalhosts")
		made := func(by client.Client, name string, annotations map[string]string) func() error {
			return func() error {
				rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
				return by.Create(ctx, rem, client.DryRunAll)
			}
		}
		remembers := map[string]string{mendv1.PowerCycleAnnotation: "{}"}
		refused := MatchError(And(ContainSubstring("only users who may patch the status of hostremediations"),
			ContainSubstring(mendv1.PowerCycleAnnotation)))
		Eventually(made(tenant, "forged", remembers)).Should(refused)
		Expect(made(tenant, "honest", map[string]string{"note": "of a tenant"})()).To(Succeed())
		Expect(made(controller, "moved", remembers)()).To(Succeed(), "like clusterctl move, or a restore from a backup")
		Expect(made(here.Client, "administrated", remembers)()).To(Succeed())

		rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "real", Annotations: remembers}}
		Expect(here.Create(ctx, rem)).To(Succeed())
		Expect(patched(ctx, tenant, rem, `{"metadata":{"annotations":{"kubemend.io/power-cycle":"{\"state\":\"Ended\"}"}}}`)).To(refused)
		Expect(patched(ctx, tenant, rem, `{"metadata":{"annotations":{"kubemend.io/power-cycle":null}}}`)).To(refused)
		Expect(patched(ctx, tenant, rem, `{"metadata":{"annotations":{"note":"of a tenant"},"finalizers":[]}}`)).
			To(Succeed(), "they may change other annotations")

		host := builders.BareMetalHost(namespace, "host")
		Expect(here.Create(ctx, host)).To(Succeed())
		Expect(patched(ctx, tenant, host, `{"metadata":{"annotations":{"kubemend.io/marked-unhealthy-for":"a"}}}`)).
			To(MatchError(ContainSubstring("marked-unhealthy-for")))
		Expect(patched(ctx, controller, host, `{"metadata":{"annotations":{"kubemend.io/marked-unhealthy-for":"a"}}}`)).To(Succeed())
		Expect(patched(ctx, tenant, host, `{"spec":{"online":true}}`)).To(Succeed())
	}, SpecTimeout(specPatience))
}
