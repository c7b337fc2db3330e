package conformance

import (
	"fmt"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

// checkOf is the check that a recipe shows.
func checkOf(recipe string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	for _, o := range suite.Printed(filepath.Join("..", "..", "docs", "recipes", recipe+".md")) {
		if o.GetKind() == "MachineHealthCheck" {
			check := &clusterv1.MachineHealthCheck{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, check)).To(Succeed())
			return check
		}
	}
	Fail(recipe + " shows no check")
	return nil
}

// likewise makes a check judge and remediate as another one does.
func likewise(printed *clusterv1.MachineHealthCheck) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Annotations, c.Spec.Checks, c.Spec.Remediation = printed.Annotations, printed.Spec.Checks, printed.Spec.Remediation
	}
}

// Conditions that other programs write, under the names that their sources have: a name that is misspelled in a page would match nothing, without a word.
var _ = Describe("The check of a recipe", func() {
	for _, recipe := range []string{"node-problem-detector", "gpu"} {
		It("has a machine marked for each condition of "+recipe+" that lasts, and none for the good state", func(ctx SpecContext) {
			s, printed, others := newEnvironment(ctx), checkOf(recipe), 0
			rules := printed.Spec.Checks.UnhealthyNodeConditions
			for i, rule := range rules {
				bad, good := fmt.Sprintf("bad-%d", i), fmt.Sprintf("good-%d", i)
				s.workers(ctx, bad, good)
				s.nodeReports(ctx, bad, rule.Type, rule.Status, 2*long)
				if rule.Type != corev1.NodeReady {
					Expect(rule.Status).To(Equal(corev1.ConditionTrue), "%s: of these conditions True is the failure", rule.Type)
					s.nodeReports(ctx, good, rule.Type, corev1.ConditionFalse, 2*long)
					others++
				}
			}
			Expect(others).To(BeNumerically(">=", 4))

			s.check(ctx, "check", likewise(printed))

			for i, rule := range rules {
				Eventually(s.health(ctx, fmt.Sprintf("bad-%d", i))).Should(Equal(silent), string(rule.Type))
				Eventually(s.health(ctx, fmt.Sprintf("good-%d", i))).Should(Equal(well), string(rule.Type))
			}
			Eventually(s.allowed(ctx, "check")).Should(Equal("False/TooManyUnhealthy"), "so many at once are not remediated")
		})
	}

	It("beside reboots waits as long as a host boots, and no longer, whatever the Node Maintenance Operator has put on its node", func(ctx SpecContext) {
		s, printed := newEnvironment(ctx), checkOf("maintenance")
		s.workers(ctx, "boots", "hangs", "a", "b", "c", "d")
		Expect(*printed.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds).To(BeNumerically(">=", 900), "a server takes ten minutes to boot")
		s.nodeReports(ctx, "boots", corev1.NodeReady, corev1.ConditionUnknown, long/3)
		s.nodeReports(ctx, "hangs", corev1.NodeReady, corev1.ConditionUnknown, long)
		for _, name := range []string{"boots", "hangs"} {
			node := &corev1.Node{}
			Expect(there.Get(ctx, client.ObjectKey{Name: s.node(name)}, node)).To(Succeed())
			node.Spec.Unschedulable = true
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "medik8s.io/drain", Effect: corev1.TaintEffectNoSchedule})
			metav1.SetMetaDataLabel(&node.ObjectMeta, nhcv1.ExcludeLabel, "true")
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, "weave.works/kured-reboot-in-progress", time.Now().Format(time.RFC3339))
			Expect(there.Update(ctx, node)).To(Succeed())
		}

		s.check(ctx, "check", likewise(printed))

		Eventually(s.owner(ctx, "hangs")).Should(Equal(ownerRequested))
		Consistently(s.health(ctx, "boots")).Should(Equal(nothing))
	})
})
