package builders

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BareMetalHost is a host without a consumer: off, and available as soon as it was inspected.
func BareMetalHost(namespace, name string, edits ...func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
	return edited(&bmov1alpha1.BareMetalHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: bmov1alpha1.GroupVersion.String(), Kind: "BareMetalHost"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: bmov1alpha1.BareMetalHostSpec{
			BMC: bmov1alpha1.BMCDetails{Address: "simulated://" + name, CredentialsName: name + "-bmc"},
		},
	}, edits)
}

// BareMetalHosts are a number of hosts without consumers, named <prefix>-0 and so on.
func BareMetalHosts(namespace, prefix string, number int, edits ...func(*bmov1alpha1.BareMetalHost)) []client.Object {
	hosts := make([]client.Object, 0, number)
	for n := range number {
		hosts = append(hosts, BareMetalHost(namespace, fmt.Sprintf("%s-%d", prefix, n), edits...))
	}
	return hosts
}

// Deployed asks for the host to be provisioned and switched on.
func Deployed(host *bmov1alpha1.BareMetalHost) {
	host.Spec.Online = true
	host.Spec.Image = &bmov1alpha1.Image{URL: "http://simulated/image.qcow2", Checksum: "0", ChecksumType: bmov1alpha1.SHA256}
}

// ExternallyDeployed says that another system has provisioned the host, which shall be on.
func ExternallyDeployed(host *bmov1alpha1.BareMetalHost) {
	host.Spec.Online, host.Spec.ExternallyProvisioned = true, true
}

// NeverOff forbids to switch the host off: it can be rebooted only.
func NeverOff(host *bmov1alpha1.BareMetalHost) { host.Spec.DisablePowerOff = true }

// ConsumedBy gives the host to the Metal3Machine of that name in its namespace.
func ConsumedBy(metal3Machine string) func(*bmov1alpha1.BareMetalHost) {
	return func(host *bmov1alpha1.BareMetalHost) {
		host.Spec.ConsumerRef = &corev1.ObjectReference{
			APIVersion: infrastructure.String(), Kind: "Metal3Machine", Namespace: host.Namespace, Name: metal3Machine,
		}
	}
}

// Annotated adds an annotation to any object.
func Annotated[T client.Object](key, value string) func(T) {
	return func(object T) {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		object.SetAnnotations(annotations)
	}
}
