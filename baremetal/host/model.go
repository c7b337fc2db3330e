package host

import (
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// Model is the manufacturer and the product name of host, as the Bare Metal Operator has inspected them; empty if it has not. Hosts from a cache do not carry
// what was inspected.
func Model(host *bmov1alpha1.BareMetalHost) string {
	if host == nil || host.Status.HardwareDetails == nil {
		return ""
	}
	vendor := host.Status.HardwareDetails.SystemVendor
	return strings.Join(strings.Fields(vendor.Manufacturer+" "+vendor.ProductName), " ")
}
