package baremetal

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/test/builders"
)

// kind is one of the two kinds of remediations.
type kind struct {
	remediation.Kind
	make     func(metav1.ObjectMeta, infrav1.RemediationStrategy) client.Object
	template func(metav1.ObjectMeta, infrav1.RemediationStrategy) client.Object
}

var kinds = []kind{
	{
		Kind: remediation.Metal3,
		make: builders.Metal3Remediation,
		template: func(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
			t := &infrav1.Metal3RemediationTemplate{ObjectMeta: m}
			t.Spec.Template.Spec.Strategy = &s
			return t
		},
	},
	{
		Kind: remediation.Own,
		make: builders.HostRemediation,
		template: func(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
			t := &mendv1.HostRemediationTemplate{ObjectMeta: m}
			t.Spec.Template.Spec.Strategy = builders.HostStrategy(s)
			return t
		},
	},
}

// memory is the exact state of a remediation: it is stored before any condition reports it.
type memory struct {
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
}

func memoryOf(rem client.Object) memory {
	var m memory
	// What cannot be read is in no state; a spec that waits for another state fails.
	_ = json.Unmarshal([]byte(rem.GetAnnotations()[mendv1.PowerCycleAnnotation]), &m)
	return m
}
