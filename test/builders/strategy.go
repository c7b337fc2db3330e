package builders

import (
	"k8s.io/utils/ptr"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// HostStrategy is s as a HostRemediation has it.
func HostStrategy(s infrav1.RemediationStrategy) *mendv1.HostRemediationStrategy {
	return &mendv1.HostRemediationStrategy{Type: s.Type, RetryLimit: ptr.To(s.RetryLimit), TimeoutSeconds: s.TimeoutSeconds}
}
