package baremetal

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/test/builders"
)

// kind is one of the two kinds of remediations.
type kind struct {
	hostremediation.Kind
	make     func(metav1.ObjectMeta, infrav1.RemediationStrategy) client.Object
	template func(metav1.ObjectMeta, infrav1.RemediationStrategy) client.Object
}

var kinds = []kind{
	{
		Kind: hostremediation.Metal3,
		make: func(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
			return &infrav1.Metal3Remediation{ObjectMeta: m, Spec: infrav1.Metal3RemediationSpec{Strategy: &s}}
		},
		template: func(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
			t := &infrav1.Metal3RemediationTemplate{ObjectMeta: m}
			t.Spec.Template.Spec.Strategy = &s
			return t
		},
	},
	{
		Kind: hostremediation.Own,
		make: func(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
			return &mendv1.HostRemediation{ObjectMeta: m, Spec: mendv1.HostRemediationSpec{Strategy: builders.HostStrategy(s)}}
		},
		template: func(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
			t := &mendv1.HostRemediationTemplate{ObjectMeta: m}
			t.Spec.Template.Spec.Strategy = builders.HostStrategy(s)
			return t
		},
	},
}

// said is what a remediation says to users, as far as both kinds have it.
type said struct {
	Phase      infrav1.RemediationPhase
	Retries    int
	Message    string
	Conditions map[string]string // like "True/Done"
}

func saidBy(rem client.Object) said {
	is := said{Conditions: map[string]string{}}
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

// memory is the exact state of a remediation: it is stored before any condition reports it.
type memory struct {
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
}

func memoryOf(rem client.Object) memory {
	var m memory
	// What cannot be read is nowhere; the spec that waits for something better tells.
	_ = json.Unmarshal([]byte(rem.GetAnnotations()[mendv1.PowerCycleAnnotation]), &m)
	return m
}
