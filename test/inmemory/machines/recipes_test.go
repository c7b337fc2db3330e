package machines

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// printed makes a check judge and remediate as the one does that a recipe shows.
func (s *environment) printed(recipe string) *clusterv1.MachineHealthCheck {
	page, err := os.ReadFile("../../../docs/recipes/" + recipe + ".md")
	s.Expect(err).NotTo(HaveOccurred())
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		manifests, _, _ := strings.Cut(block, "```")
		for manifest := range strings.SplitSeq(manifests, "---\n") {
			check := &clusterv1.MachineHealthCheck{}
			s.Expect(yaml.Unmarshal([]byte(manifest), &check.TypeMeta)).To(Succeed())
			if check.Kind == "MachineHealthCheck" {
				s.Expect(yaml.Unmarshal([]byte(manifest), check)).To(Succeed())
				return s.check("check", func(c *clusterv1.MachineHealthCheck) {
					c.Annotations, c.Spec.Checks, c.Spec.Remediation = check.Annotations, check.Spec.Checks, check.Spec.Remediation
				})
			}
		}
	}
	s.t.Fatal(recipe + " shows no check")
	return nil
}

// Conditions that other programs write, under the names that their sources have: a name that is misspelled in a page would match nothing,
// without a word.
func TestTheCheckOfARecipeMarksAMachineForEachConditionThatLastsAndNoneForTheGoodState(t *testing.T) {
	for _, recipe := range []string{"node-problem-detector", "gpu"} {
		run(t, func(s *environment) {
			check, others := s.printed(recipe), 0
			rules := check.Spec.Checks.UnhealthyNodeConditions
			for i, rule := range rules {
				bad, good := fmt.Sprintf("bad-%d", i), fmt.Sprintf("good-%d", i)
				s.workers(bad, good)
				s.nodeReports(bad, rule.Type, rule.Status, 0)
				if rule.Type != corev1.NodeReady {
					s.Expect(rule.Status).To(Equal(corev1.ConditionTrue), "%s: of these conditions True is the failure", rule.Type)
					s.nodeReports(good, rule.Type, corev1.ConditionFalse, 2*long)
					others++
				}
			}
			s.Expect(others).To(BeNumerically(">=", 4))
			time.Sleep(2 * long)
			for i, rule := range rules {
				s.Eventually(s.health(fmt.Sprintf("bad-%d", i))).Should(Equal(silent), string(rule.Type))
				s.Eventually(s.health(fmt.Sprintf("good-%d", i))).Should(Equal(well), string(rule.Type))
			}
			s.Eventually(s.allowed("check")).Should(Equal(restricted), "so many at once are not remediated")
		})
	}
}

func TestTheCheckOfARecipeBesideRebootsWaitsAsLongAsAHostBootsWhateverTheNodeMaintenanceOperatorPutsOnItsNode(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("boots", "hangs", "a", "b", "c", "d")
		s.nodeReports("hangs", corev1.NodeReady, corev1.ConditionUnknown, 0)
		time.Sleep(long - long/3)
		s.nodeReports("boots", corev1.NodeReady, corev1.ConditionUnknown, 0)
		time.Sleep(long / 3)
		for _, name := range []string{"boots", "hangs"} {
			node := &corev1.Node{}
			s.Expect(s.there.Get(s.ctx, client.ObjectKey{Name: s.node(name)}, node)).To(Succeed())
			node.Spec.Unschedulable = true
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "medik8s.io/drain", Effect: corev1.TaintEffectNoSchedule})
			metav1.SetMetaDataLabel(&node.ObjectMeta, nhcv1.ExcludeLabel, "true")
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, "weave.works/kured-reboot-in-progress", time.Now().Format(time.RFC3339))
			s.Expect(s.there.Update(s.ctx, node)).To(Succeed())
		}
		check := s.printed("maintenance")
		s.Expect(*check.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds).To(BeNumerically(">=", 900), "a server takes ten minutes to boot")
		s.Eventually(s.owner("hangs")).Should(Equal(ownerRequested))
		s.Consistently(s.health("boots")).Should(Equal(nothing))
	})
}
