package packages

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// decoders give an object of a template or an example the Go type of its kind.
var decoders = map[string]func(*testing.T, *object){
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy":         strictly[admissionv1.ValidatingAdmissionPolicy],
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding":  strictly[admissionv1.ValidatingAdmissionPolicyBinding],
	"apiextensions.k8s.io/v1 CustomResourceDefinition":                  strictly[apiextensionsv1.CustomResourceDefinition],
	"cluster.x-k8s.io/v1beta1 MachineHealthCheck":                       strictly[clusterv1beta1.MachineHealthCheck],
	"cluster.x-k8s.io/v1beta2 MachineHealthCheck":                       strictly[clusterv1.MachineHealthCheck],
	"infrastructure.cluster.x-k8s.io/v1beta2 Metal3RemediationTemplate": strictly[infrav1.Metal3RemediationTemplate],
	"kubemend.io/v1alpha1 HostRemediationTemplate":                      strictly[mendv1.HostRemediationTemplate],
	"networking.k8s.io/v1 NetworkPolicy":                                strictly[networkingv1.NetworkPolicy],
	"rbac.authorization.k8s.io/v1 ClusterRole":                          strictly[rbacv1.ClusterRole],
	"remediation.medik8s.io/v1alpha1 NodeHealthCheck":                   strictly[nhcv1.NodeHealthCheck],
}

func strictly[T any](t *testing.T, o *object) {
	t.Helper()
	as[T](t, o)
}

// hasOnlyKnownFields fails the test if an object has a field that its kind does not have: the API server would drop it without a warning.
func hasOnlyKnownFields(t *testing.T, file string, o *object) {
	t.Helper()
	decode, known := decoders[o.GetAPIVersion()+" "+o.GetKind()]
	if !known {
		t.Errorf("%s: %s %s is not in decoders: add it", file, o.GetAPIVersion(), o.GetKind())
		return
	}
	decode(t, o)
}
