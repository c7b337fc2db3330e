package hosts

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/test/builders"
)

// kind is one of the two kinds of remediations.
type kind struct {
	hostremediation.Kind
	make func(metav1.ObjectMeta, infrav1.RemediationStrategy) client.Object
}

var kinds = []kind{
	{hostremediation.Metal3, func(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
		return &infrav1.Metal3Remediation{ObjectMeta: m, Spec: infrav1.Metal3RemediationSpec{Strategy: &s}}
	}},
	{hostremediation.Own, func(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
		return &mendv1.HostRemediation{ObjectMeta: m, Spec: mendv1.HostRemediationSpec{Strategy: builders.HostStrategy(s)}}
	}},
}

// report is what a remediation reports to users, as far as both kinds have it.
type report struct {
	Phase      infrav1.RemediationPhase
	Retries    int
	Message    string
	Conditions map[string]string // like "True/Done"
}

func reportOf(rem client.Object) report {
	is := report{Conditions: map[string]string{}}
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

// memoryOf is what a remediation remembers of itself.
func memoryOf(rem client.Object) powercycle.Memory {
	var m powercycle.Memory
	if rem != nil {
		_ = json.Unmarshal([]byte(rem.GetAnnotations()[mendv1.PowerCycleAnnotation]), &m) // what cannot be read is in no state
	}
	return m
}
