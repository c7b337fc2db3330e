package host

import (
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/kubemend/kubemend/controllers/workload"
)

// Model is the manufacturer and the product name of host, as the Bare Metal Operator has inspected them; empty if it has not.
func Model(host *bmov1alpha1.BareMetalHost) string {
	if host == nil || host.Status.HardwareDetails == nil {
		return ""
	}
	vendor := host.Status.HardwareDetails.SystemVendor
	return strings.Join(strings.Fields(vendor.Manufacturer+" "+vendor.ProductName), " ")
}

// slimHardware is what Model reads of what was inspected. There are as many copies of the words as there are models.
func slimHardware(of *bmov1alpha1.HardwareDetails) *bmov1alpha1.HardwareDetails {
	if of == nil {
		return nil
	}
	return &bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{
		Manufacturer: workload.Interned(of.SystemVendor.Manufacturer), ProductName: workload.Interned(of.SystemVendor.ProductName),
	}}
}
