package host

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Kind is that of hosts.
var Kind = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")

// Host is a BareMetalHost as far as a remediation of its machine goes by it. Its maps are shared with the cache: read only.
type Host struct {
	// ObjectMeta has its name, UID, version and annotations.
	metav1.ObjectMeta
	powercycle.Power
	// Consumer is what it says it belongs to, by its spec.consumerRef; nil if it does not say.
	Consumer *corev1.ObjectReference
	// Model is its manufacturer and product name, as the Bare Metal Operator has inspected them; empty if it has not.
	Model string
}

// From is the Host of a BareMetalHost.
func From(bmh *bmov1alpha1.BareMetalHost) *Host {
	return &Host{ObjectMeta: bmh.ObjectMeta, Power: PowerOf(bmh), Consumer: bmh.Spec.ConsumerRef, Model: modelOf(bmh.Status.HardwareDetails)}
}

// List returns the hosts that reader lists.
func List(ctx context.Context, reader client.Reader, options ...client.ListOption) ([]*Host, error) {
	list := &bmov1alpha1.BareMetalHostList{}
	if err := reader.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list BareMetalHosts: %w", err)
	}
	hosts := make([]*Host, 0, len(list.Items))
	for i := range list.Items {
		hosts = append(hosts, From(&list.Items[i]))
	}
	return hosts, nil
}

// Reference is host with its kind, as the object of an event or a patch.
func Reference(host metav1.Object) *metav1.PartialObjectMetadata {
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(Kind)
	about.Name, about.Namespace, about.UID = host.GetName(), host.GetNamespace(), host.GetUID()
	return about
}

// Watched is an object of the kind, for watches.
func Watched() client.Object { return &bmov1alpha1.BareMetalHost{} }

// Changes passes the changes of a host that a remediation may depend on.
func Changes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !SameToUs(e.ObjectOld.(*bmov1alpha1.BareMetalHost), e.ObjectNew.(*bmov1alpha1.BareMetalHost))
	}}
}

func modelOf(hardware *bmov1alpha1.HardwareDetails) string {
	if hardware == nil {
		return ""
	}
	return strings.Join(strings.Fields(hardware.SystemVendor.Manufacturer+" "+hardware.SystemVendor.ProductName), " ")
}

// slimHardware is what modelOf reads of what was inspected. There are as many copies of the words as there are models.
func slimHardware(hardware *bmov1alpha1.HardwareDetails) *bmov1alpha1.HardwareDetails {
	if hardware == nil {
		return nil
	}
	return &bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{
		Manufacturer: workload.Interned(hardware.SystemVendor.Manufacturer), ProductName: workload.Interned(hardware.SystemVendor.ProductName),
	}}
}
