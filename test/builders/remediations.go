package builders

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Metal3Remediation is a remediation of Metal3's kind with a strategy.
func Metal3Remediation(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
	return &infrav1.Metal3Remediation{ObjectMeta: m, Spec: infrav1.Metal3RemediationSpec{Strategy: &s}}
}

// HostRemediation is a remediation of kubemend's own kind with a strategy.
func HostRemediation(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
	return &mendv1.HostRemediation{ObjectMeta: m, Spec: mendv1.HostRemediationSpec{Strategy: HostStrategy(s)}}
}

// HostStrategy is s as a HostRemediation has it, with the same time for a boot.
func HostStrategy(s infrav1.RemediationStrategy) *mendv1.HostRemediationStrategy {
	return &mendv1.HostRemediationStrategy{
		Type: s.Type, RetryLimit: ptr.To(s.RetryLimit), TimeoutSeconds: s.TimeoutSeconds, BootTimeoutSeconds: s.TimeoutSeconds,
	}
}

// RemediationReport is the status of a remediation, as far as both kinds have it.
type RemediationReport struct {
	Phase      infrav1.RemediationPhase
	Retries    int
	Message    string
	Conditions map[string]string // like "True/Done"
}

// ReportOf reads the status of a remediation of either kind; it is empty without one.
func ReportOf(rem client.Object) RemediationReport {
	is := RemediationReport{Conditions: map[string]string{}}
	var conditions []metav1.Condition
	switch o := rem.(type) {
	case *infrav1.Metal3Remediation:
		is.Phase, is.Retries, is.Message = o.Status.Phase, int(o.Status.RetryCount), o.Status.Message
		conditions = o.Status.Conditions
	case *mendv1.HostRemediation:
		is.Phase, is.Retries, is.Message = o.Status.Phase, max(int(o.Status.Attempt)-1, 0), o.Status.Message
		conditions = o.Status.Conditions
	}
	for _, c := range conditions {
		is.Conditions[c.Type] = string(c.Status) + "/" + c.Reason
	}
	return is
}
