package machines

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
)

const asked = "False/WaitingForRemediation"

// everFailed gives a machine a failed health check of long ago.
func everFailed(m *clusterv1.Machine) {
	m.Status.Conditions = append(m.Status.Conditions,
		condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, long),
		condition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, long))
	v1beta1conditions.MarkFalse(m, clusterv1.MachineHealthCheckSucceededV1Beta1Condition, "Test", clusterv1.ConditionSeverityWarning, "")
}

func TestW4W5RequestsAMissingTemplateIsReportedOnEveryMachineAndOnTheCheckAsLongAsItIsMissing(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "good")
		s.check("check", by("reboot"))
		s.fallsSilent("a", "b")

		for _, m := range []string{"a", "b"} {
			s.Eventually(s.external(m)).Should(Equal("False/RemediationTemplateNotFound"))
			s.Expect(conditions.GetMessage(s.get(m), "ExternallyRemediated")).To(Equal(
				"Error retrieving remediation template Metal3RemediationTemplate " + s.cluster.Namespace + "/reboot"))
			s.Expect(s.health(m)()).To(Equal(silent))
		}
		s.Eventually(s.health("good")).Should(Equal(well))
		s.Eventually(s.both("check", "ExternalRemediationTemplateAvailable")).Should(Equal("- False/ExternalRemediationTemplateNotFound"))
		s.Expect(s.both("check", "RemediationTemplateAvailable")()).To(Equal("False/RemediationTemplateNotFound -"))
		s.Expect(s.message("check", "RemediationTemplateAvailable")()).To(ContainSubstring("Metal3RemediationTemplate " + s.cluster.Namespace + "/reboot"))

		s.template("reboot")

		s.Eventually(s.requested()).Should(ConsistOf("a", "b"))
		s.isRequested("a")
		s.isRequested("b")
		s.Eventually(s.both("check", "ExternalRemediationTemplateAvailable")).Should(Equal(nothing))
		s.Expect(s.both("check", "RemediationTemplateAvailable")()).To(Equal("True/TemplateFound -"))
		s.Expect(s.here.Delete(s.ctx, metal3.object("Metal3RemediationTemplate", s.cluster.Namespace, "reboot"))).To(Succeed())
		s.Eventually(s.both("check", "RemediationTemplateAvailable")).Should(Equal("False/RemediationTemplateNotFound -"))
		s.Expect(s.external("a")()).To(Equal(asked), "what has started needs its template no more")
		s.Expect(s.requested()()).To(ConsistOf("a", "b"))
	})
}

func TestW8RequestsTheNextRequestIsMadeAsSoonAsATerminatingOneIsGone(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.worker("a")
		s.check("check", by("reboot"))
		s.fallsSilent("a")
		s.isRequested("a")
		uid := s.made("a")
		s.keep("a", "test.kubemend.io/keep")

		s.Expect(s.here.Delete(s.ctx, s.request("a"))).To(Succeed())
		s.Consistently(s.uid("a")).Should(Equal(uid))
		s.Expect(s.external("a")()).To(Equal(asked), "it was not tried")

		s.keep("a")
		s.Eventually(s.uid("a")).Should(And(Not(BeEmpty()), Not(Equal(uid))))
	})
}
