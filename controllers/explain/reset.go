package explain

import (
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// ResetReason is why the marks of an object are removed for a person, or are not.
type ResetReason string

// The reasons.
const (
	Resets         ResetReason = "Resets"
	NothingToReset ResetReason = "NothingToReset"
	ResetUnderWay  ResetReason = "RemediationUnderWay"
	StillReplaced  ResetReason = "MachineBeingReplaced"
	ResetDeleting  ResetReason = "Deleting"
)

// Reset is what becomes of the marks of a host, or of a Machine, that a person resets.
type Reset struct {
	Reason ResetReason
	// Removes are the annotations that are removed.
	Removes []RemovedMark
	// Theirs reports that it was not kubemend that marked the host unhealthy.
	Theirs bool
	// Stays are what keeps the host from being used, and is not removed.
	Stays []string
	// Machine is the name of the host's machine, Remediation that of the one that is under way.
	Machine, Remediation string
}

// RemovedMark is an annotation, and what it does; By is the UID of the remediation that wrote it, if one did.
type RemovedMark struct {
	Annotation string
	By         types.UID
}

// Changes reports whether anything is removed.
func (r *Reset) Changes() bool { return r.Reason == Resets }

// Refused reports whether it would do harm.
func (r *Reset) Refused() bool { return !r.Changes() && r.Reason != NothingToReset }

// Text is how many annotations are removed and why that is safe, or why none is.
func (r *Reset) Text() string {
	switch r.Reason {
	case NothingToReset:
		return "it has no mark that could be removed" + r.stays()
	case ResetUnderWay:
		return r.Remediation + " is under way, and removes by itself what it has written. To end it, delete it"
	case StillReplaced:
		return fmt.Sprintf("Machine %s, for which the host is marked, is still to be replaced by its owner: without the mark its replacement may be put on "+
			"this host. Reset it when that machine is gone, or when kubemend removes the mark because it is healthy", r.Machine)
	case ResetDeleting:
		return "it is being deleted"
	case Resets:
	}
	are := "annotations are"
	if len(r.Removes) == 1 {
		are = "annotation is"
	}
	safe := "no remediation of it is under way"
	if r.Theirs {
		safe += "; kubemend did not mark the host unhealthy, so ask first who did"
	}
	return fmt.Sprintf("%d %s removed; %s%s", len(r.Removes), are, safe, r.stays())
}

func (r *Reset) stays() string {
	if len(r.Stays) == 0 {
		return ""
	}
	return "; not removed: " + strings.Join(r.Stays, ", ")
}

// Text is the annotation, and what its removal does.
func (m RemovedMark) Text() string { return m.Annotation + ": " + m.does() }

func (m RemovedMark) does() string {
	gone := fmt.Sprintf("remediation %s, which does not exist any more", m.By)
	switch m.Annotation {
	case infrav1.UnhealthyAnnotation, infrav1.LegacyUnhealthyAnnotation:
		return "keeps CAPM3 from putting a machine on the host"
	case mendv1.PowerOffDisprovedAnnotation:
		return "keeps kubemend from power-cycling the host, whose reported power was wrong"
	case mendv1.MarkedForAnnotation:
		return "says for which machine kubemend marked the host"
	case mendv1.RebootedForAnnotation:
		return "says that the host was asked to reboot for " + gone
	case mendv1.ReceiptForAnnotation:
		return "asks the Bare Metal Operator for a receipt for " + gone
	case infrav1.RebootAnnotation:
		return "asks the Bare Metal Operator to reboot the host, for the same remediation"
	case clusterv1.RemediateMachineAnnotation:
		return "marks the machine unhealthy"
	case mendv1.RequestedAnnotation:
		return "says who marked it"
	}
	return "keeps the host powered off for " + gone
}

// StaysWith are what keeps a host from being used although its marks are removed: keptOffBy is the annotation of somebody else that keeps it powered off.
func StaysWith(h *bmov1alpha1.BareMetalHost, keptOffBy string) []string {
	var all []string
	if !h.Spec.Online {
		all = append(all, "spec.online: false, which keeps it powered off")
	}
	if keptOffBy != "" {
		all = append(all, keptOffBy+", which another client wrote and which keeps it powered off")
	}
	if _, paused := h.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		all = append(all, bmov1alpha1.PausedAnnotation+", which pauses the Bare Metal Operator")
	}
	if _, detached := h.Annotations[bmov1alpha1.DetachedAnnotation]; detached {
		all = append(all, bmov1alpha1.DetachedAnnotation+", which detaches it from the Bare Metal Operator")
	}
	return all
}
