package hosts

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/test/builders"
)

// kind is one of the two kinds of remediations.
type kind struct {
	remediation.Kind
	make func(metav1.ObjectMeta, infrav1.RemediationStrategy) client.Object
}

var kinds = []kind{
	{remediation.Metal3, builders.Metal3Remediation},
	{remediation.Own, builders.HostRemediation},
}

// memoryOf is what a remediation remembers of itself.
func memoryOf(rem client.Object) powercycle.Memory {
	var m powercycle.Memory
	if rem != nil {
		_ = json.Unmarshal([]byte(rem.GetAnnotations()[mendv1.PowerCycleAnnotation]), &m) // what cannot be read is in no state
	}
	return m
}
