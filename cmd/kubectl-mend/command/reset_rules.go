package command

import (
	"cmp"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

type resetFacts struct {
	host *bmov1alpha1.BareMetalHost
	// orphans are the annotations that act on its power for remediations that do not exist.
	orphans map[string]types.UID
	// remediations are those that act on its power, and those of its machine.
	remediations []remediation.OfKind
	// markedFor is the machine for which kubemend marked it; nil if there is none any more.
	markedFor *clusterv1.Machine
}

// resetPlan is what becomes of the marks of an object.
type resetPlan struct {
	plan
	// marks are the annotations that are removed, and what each does.
	marks map[string]string
}

func planResetHost(facts resetFacts) resetPlan {
	decided := resetPlan{marks: map[string]string{}}
	for key := range host.Cleared(facts.host, facts.orphans) {
		decided.marks[key] = meaning(key, facts.orphans[key])
	}
	underway := underwayOf(facts)
	stays := ""
	if reasons := unavailable(facts.host); len(reasons) > 0 {
		stays = "; not removed: " + strings.Join(reasons, ", ")
	}
	switch {
	case !facts.host.DeletionTimestamp.IsZero():
		decided.plan = plan{refuses, "it is being deleted"}
	case underway != "":
		decided.plan = plan{refuses, underway + " is under way, and removes by itself what it has written. To end it, delete it"}
	case facts.markedFor != nil:
		decided.plan = plan{refuses, fmt.Sprintf("Machine %s, for which the host is marked, is still to be replaced by its owner: "+
			"without the mark its replacement may be put on this host. "+
			"Reset it when that machine is gone, or when kubemend removes the mark because it is healthy", facts.markedFor.Name)}
	case len(decided.marks) == 0:
		decided.plan = plan{staysSo, "it has no mark that could be removed" + stays}
	default:
		decided.text = removed(len(decided.marks)) + "; no remediation of it is under way"
		if host.Unhealthy(facts.host) && host.MarkedFor(facts.host) == "" {
			decided.text += "; kubemend did not mark the host unhealthy, so ask first who did"
		}
		decided.text += stays
	}
	return decided
}

// underwayOf is the remediation of the host that has not ended; empty if there is none. One that waits for this very reset does not count.
func underwayOf(facts resetFacts) string {
	underway := ""
	for _, rem := range facts.remediations {
		state := remediation.Remembered(rem).State
		ended := state.Final() && len(rem.GetFinalizers()) == 0
		begins := state == powercycle.Pending || state == powercycle.Preparing
		if waits := host.Disproved(facts.host) && begins; !ended && !waits {
			underway = rem.Kind.Kind + " " + rem.GetName()
		}
	}
	return underway
}

func planResetMachine(machine *clusterv1.Machine) resetPlan {
	decided := resetPlan{marks: map[string]string{}}
	for _, key := range []string{clusterv1.RemediateMachineAnnotation, mendv1.RequestedAnnotation} {
		if _, has := machine.Annotations[key]; has {
			decided.marks[key] = meaning(key, "")
		}
	}
	switch {
	case !machine.DeletionTimestamp.IsZero():
		decided.plan = plan{refuses, "it is being deleted"}
	case len(decided.marks) == 0:
		decided.plan = plan{staysSo, "it has no mark that could be removed"}
	default:
		decided.text = removed(len(decided.marks))
	}
	return decided
}

func removed(n int) string {
	if n == 1 {
		return "1 annotation is removed"
	}
	return fmt.Sprintf("%d annotations are removed", n)
}

// meanings are what annotations do; %s stands for the UID of the remediation that wrote one.
var meanings = map[string]string{
	infrav1.UnhealthyAnnotation:          "keeps CAPM3 from putting a machine on the host",
	infrav1.LegacyUnhealthyAnnotation:    "keeps CAPM3 from putting a machine on the host",
	mendv1.PowerOffDisprovedAnnotation:   "keeps kubemend from power-cycling the host, whose reported power was wrong",
	mendv1.MarkedForAnnotation:           "says for which machine kubemend marked the host",
	mendv1.RebootedForAnnotation:         "says that the host was asked to reboot for remediation %s, which does not exist any more",
	mendv1.ReceiptForAnnotation:          "asks the Bare Metal Operator for a receipt for remediation %s, which does not exist any more",
	infrav1.RebootAnnotation:             "asks the Bare Metal Operator to reboot the host, for the same remediation",
	clusterv1.RemediateMachineAnnotation: "marks the machine unhealthy",
	mendv1.RequestedAnnotation:           "says who marked it",
}

// meaning is what an annotation does, which the remediation with that UID wrote.
func meaning(annotation string, by types.UID) string {
	says := cmp.Or(meanings[annotation], "keeps the host powered off for remediation %s, which does not exist any more")
	return strings.ReplaceAll(says, "%s", string(by))
}

// unavailable are the reasons why a host cannot be used although its marks are removed.
func unavailable(h *bmov1alpha1.BareMetalHost) []string {
	var reasons []string
	if !h.Spec.Online {
		reasons = append(reasons, "spec.online: false, which keeps it powered off")
	}
	if keptOffBy := host.PowerOf(h).KeptOffBy; keptOffBy != "" {
		reasons = append(reasons, keptOffBy+", which another client wrote and which keeps it powered off")
	}
	if _, paused := h.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		reasons = append(reasons, bmov1alpha1.PausedAnnotation+", which pauses the Bare Metal Operator")
	}
	if _, detached := h.Annotations[bmov1alpha1.DetachedAnnotation]; detached {
		reasons = append(reasons, bmov1alpha1.DetachedAnnotation+", which detaches it from the Bare Metal Operator")
	}
	return reasons
}
