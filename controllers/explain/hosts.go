package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// OutOfService is what a person has to do about h, which is marked so that no machine is put on it; zero if it is not.
func OutOfService(h *bmov1alpha1.BareMetalHost) Step {
	if !host.Unhealthy(h) {
		return Step{}
	}
	return Step{Reason: HostOutOfService, Manual: true,
		Text: fmt.Sprintf("repair the host, then remove its marks: kubectl mend reset host/%s -n %s", h.Name, h.Namespace)}
}

// PowerHolds are the annotations of a host by which its power is changed, and that are of no remediation that exists.
type PowerHolds struct {
	// Orphaned are of remediations that do not exist, Foreign of others than remediations.
	Orphaned, Foreign []string
}

// HoldsOf are the power holds of h. Unknown are the UIDs of remediations that act on the power and do not exist.
func HoldsOf(h *bmov1alpha1.BareMetalHost, unknown []types.UID) PowerHolds {
	var holds PowerHolds
	marks := host.AllMarks(h)
	for _, name := range slices.Sorted(maps.Keys(h.Annotations)) {
		uid, marked := marks[name]
		switch {
		case !strings.HasPrefix(name, bmov1alpha1.RebootAnnotationPrefix), name == infrav1.RebootAnnotation: // which asks for one reboot
		case !marked:
			holds.Foreign = append(holds.Foreign, name)
		case slices.Contains(unknown, uid):
			holds.Orphaned = append(holds.Orphaned, name)
		}
	}
	return holds
}

// Held adds to a, the answer about h, what the power holds do.
func (p PowerHolds) Held(a Answer, h *bmov1alpha1.BareMetalHost) Answer {
	holds := slices.Concat(p.Foreign, p.Orphaned)
	if len(holds) == 0 || !h.Spec.Online || a.Action != "" {
		return a
	}
	a.Action, a.Reason, a.Implied, a.Detail = KeptPoweredOff, string(powercycle.HostKeptOffReason), true, strings.Join(holds, ", ")
	if h.Status.PoweredOn {
		a.Action = AboutToBePoweredOff
	}
	return a
}

// Next is what happens to h because of the power holds, and what a user has to do; each is zero if there is nothing.
func (p PowerHolds) Next(h *bmov1alpha1.BareMetalHost) (next, todo Step) {
	if !h.Spec.Online || len(p.Foreign)+len(p.Orphaned) == 0 {
		return Step{}, Step{}
	}
	next.Reason = string(powercycle.HostKeptOffReason)
	if next.Text = "the host stays powered off"; h.Status.PoweredOn {
		next.Text = "the Bare Metal Operator powers the host off"
	}
	if len(p.Orphaned) > 0 {
		next.Text += fmt.Sprintf("; a manager of kubemend removes %s when its --orphan-grace-period (5m unless set) is over", strings.Join(p.Orphaned, ", "))
	}
	if len(p.Foreign) > 0 {
		todo = Step{Reason: string(powercycle.HostKeptOffReason), Manual: true,
			Text: fmt.Sprintf("if the host is to be on, remove %s from it", strings.Join(p.Foreign, ", "))}
	}
	return next, todo
}

// OutOfService is a, the answer about a host, where nothing is wrong but that no machine is put on it.
func (a Answer) OutOfService(reason string) Answer {
	switch {
	case a == NoMachineOfHost:
		return Answer{State: IsBlocked, Reason: reason, Detail: a.Detail}
	case a.State == IsHealthy && a.Action == "":
		return Answer{State: IsBlocked, Reason: reason, Detail: "its Machine is healthy"}
	}
	return a
}
