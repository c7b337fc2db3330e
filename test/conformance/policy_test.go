package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/spec"
)

// docs/security.md recommends it to whoever lets tenants write checks of their own.
var _ = Describe("The policy of docs/examples/limits-policy.yaml", Serial, func() {
	It("refuses checks of tenants that could take away most of their machines, or do so at once", func(ctx SpecContext) {
		tenant := builders.Namespace("policy-tenant")
		tenant.Labels = map[string]string{"kubemend.io/tenant": ""}
		free := builders.Namespace("policy-free")
		Expect(here.Create(ctx, tenant)).To(Succeed())
		Expect(here.Create(ctx, free)).To(Succeed())
		for _, obj := range spec.Manifest("../../docs/examples/limits-policy.yaml") {
			Expect(here.Create(ctx, obj)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, obj)).To(Succeed()) })
		}

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
		for _, low := range []string{"0%", "9%", "33%", "40%"} {
			Expect(asked(tenant.Name, limit(intstr.FromString(low)))()).To(Succeed(), low)
		}
		Expect(asked(free.Name, none)()).To(Succeed(), "in other namespaces nothing is asked for")
	})
})
