package command

import (
	"maps"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/explain"
)

// resetFacts are all that the plan of a reset is made from.
type resetFacts struct {
	host *bmov1alpha1.BareMetalHost
	// orphans are the annotations that act on its power for remediations that do not exist.
	orphans map[string]types.UID
	// remediations are those that act on its power, and those of its machine.
	remediations []remediation.OfKind
	// markedFor is the machine for which kubemend marked it; nil if there is none any more.
	markedFor *clusterv1.Machine
}

// planResetHost returns whether the marks of a host are removed.
func planResetHost(f resetFacts) explain.Reset {
	r := explain.Reset{Stays: explain.StaysWith(f.host, host.PowerOf(f.host).KeptOffBy)}
	for _, key := range slices.Sorted(maps.Keys(host.Cleared(f.host, f.orphans))) {
		r.Removes = append(r.Removes, explain.RemovedMark{Annotation: key, By: f.orphans[key]})
	}
	r.Theirs = host.Unhealthy(f.host) && host.MarkedFor(f.host) == ""
	for _, rem := range f.remediations {
		state := remediation.Remembered(rem).State
		ended := state.Final() && len(rem.GetFinalizers()) == 0
		waits := host.Disproved(f.host) && state == powercycle.Pending // for this very reset
		if !ended && !waits {
			r.Remediation = rem.Kind.Kind + " " + rem.GetName()
		}
	}
	switch {
	case !f.host.DeletionTimestamp.IsZero():
		r.Reason = explain.ResetDeleting
	case r.Remediation != "":
		r.Reason = explain.ResetUnderWay
	case f.markedFor != nil:
		r.Reason, r.Machine = explain.StillReplaced, f.markedFor.Name
	case len(r.Removes) == 0:
		r.Reason = explain.NothingToReset
	default:
		r.Reason = explain.Resets
	}
	return r
}

// planResetMachine returns whether the mark of a machine is removed.
func planResetMachine(m *clusterv1.Machine) explain.Reset {
	var r explain.Reset
	for _, key := range []string{clusterv1.RemediateMachineAnnotation, mendv1.RequestedAnnotation} {
		if _, has := m.Annotations[key]; has {
			r.Removes = append(r.Removes, explain.RemovedMark{Annotation: key})
		}
	}
	switch {
	case !m.DeletionTimestamp.IsZero():
		r.Reason = explain.ResetDeleting
	case len(r.Removes) == 0:
		r.Reason = explain.NothingToReset
	default:
		r.Reason = explain.Resets
	}
	return r
}
