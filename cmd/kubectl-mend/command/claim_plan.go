package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// way is which way checks are handed.
type way string

const (
	claiming  way = "claim"   // from Cluster API core to kubemend
	releasing way = "release" // back
)

// claimFacts are what is known when checks are to be claimed or released.
type claimFacts struct {
	managers []managerlease.Manager
	// unseen says why not all managers are known; empty if they are.
	unseen string
	core   coreFacts
	checks []checkFacts
}

// coreFacts are what is known of the manager of Cluster API core.
type coreFacts struct {
	// unseen says why it is not known whether it runs; empty if it is.
	unseen string
	alive  bool
	// gone is since when it does not run, if it is not alive.
	gone time.Time
}

// checkFacts are what is known of one check.
type checkFacts struct {
	check *clusterv1.MachineHealthCheck
	// cluster is nil if there is none.
	cluster  *clusterv1.Cluster
	underway []underway
	// trouble is what could not be read, and is done without.
	trouble []string
}

// underway is the remediation of a machine that was begun and has not ended.
type underway struct {
	machine string
	by      remediator
}

// remediator is who remediates a machine, as far as it matters to who acts on the check.
type remediator int

const (
	itsOwner   remediator = iota // of the machine; there is no request
	ofTheCheck                   // a request that kubemend has made for the check, or adopted
	ofCore                       // a request that kubemend would adopt: from the check's template, or of a check of the same name before it
	ofAnother                    // a request that another check has made, or somebody from another template
)

// turn is what becomes of one check.
type turn struct {
	check *clusterv1.MachineHealthCheck
	// changes says that the annotation is written.
	changes bool
	// text is what is to be known: what will be so, or why nothing changes.
	text string
	// refused says that what was asked for would do harm; unseen that it is only not known whether it would.
	refused, unseen bool
}

// planHanding decides what becomes of each check, in the order of their names. With force what is not known holds nothing up.
func planHanding(w way, f claimFacts, force bool) []turn {
	turns := make([]turn, 0, len(f.checks))
	for _, c := range f.checks {
		t := f.turn(w, c)
		if t.unseen && force {
			t = turn{changes: true, text: effect(w, c) + "; " + t.text}
		}
		t.check = c.check
		for _, more := range slices.Concat(asides(c), c.trouble) {
			if t.changes {
				t.text += "; " + more
			}
		}
		turns = append(turns, t)
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.check.Namespace, b.check.Namespace), cmp.Compare(a.check.Name, b.check.Name))
	})
	return turns
}

func (f claimFacts) turn(w way, c checkFacts) turn {
	value, paused := c.check.Annotations[clusterv1.PausedAnnotation]
	claimed := paused && value == mendv1.Claim
	switch {
	case !c.check.DeletionTimestamp.IsZero():
		return turn{refused: true, text: "it is being deleted"}
	case paused && !claimed:
		return turn{refused: true, text: fmt.Sprintf("it is paused: %s is %q%s. Neither Cluster API core nor kubemend acts on it, because somebody asked "+
			"for that; who did has to take it back first", clusterv1.PausedAnnotation, value, pausedBy(c.check))}
	case w == claiming && claimed:
		return turn{text: "is claimed already"}
	case w == releasing && !claimed:
		return turn{text: "is not claimed"}
	}
	why, unseen := f.noController(w, c.check)
	if why != "" {
		return turn{text: why, refused: true, unseen: unseen}
	}
	return turn{changes: true, text: effect(w, c)}
}

// noController is why none, or two controllers would act on a check; empty if one would. Unseen reports that it is not known whether that is so.
func (f claimFacts) noController(w way, check *clusterv1.MachineHealthCheck) (why string, unseen bool) {
	if w == claiming {
		return f.noManagerFor(check)
	}
	reason, unknown := f.managerToo(check)
	switch {
	case reason != "" && !unknown:
		return reason, false
	case f.core.unseen == "" && !f.core.alive:
		return fmt.Sprintf("Cluster API core has not run since %s, so no controller would act on it", stamp(f.core.gone)), false
	case f.core.unseen != "" && reason != "":
		return "it cannot be seen whether Cluster API core is there to take it: " + f.core.unseen + "; and " + reason, true
	case f.core.unseen != "":
		return "it cannot be seen whether Cluster API core is there to take it: " + f.core.unseen, true
	}
	return reason, unknown
}

// managerToo says why a manager of kubemend would act on a check as well as Cluster API core, once it is given back; empty if none would.
// Unseen says that this is only not known.
func (f claimFacts) managerToo(check *clusterv1.MachineHealthCheck) (why string, unseen bool) {
	const acts = "acts on checks that are not claimed as well (--unclaimed-machine-health-checks=act): both it and Cluster API core would act on this one"
	var reasons []string
	seen := false
	for _, m := range f.managers {
		switch off := m.StandsOff(check); {
		case off.Unknown:
			reasons = append(reasons, off.Because)
		case off.Because == "" && m.Announcement.Unclaimed == "act":
			return fmt.Sprintf("kubemend's manager in %s %s", m.Namespace, acts), false
		case off.Because == "":
			seen = true // it is the one of this check
		}
	}
	if f.unseen != "" && !seen {
		reasons = append(reasons, f.unseen)
	}
	if len(reasons) == 0 {
		return "", false
	}
	return "it cannot be seen whether a manager of kubemend acts on checks that are not claimed as well: " + strings.Join(reasons, "; "), true
}

func (f claimFacts) noManagerFor(check *clusterv1.MachineHealthCheck) (why string, unseen bool) {
	var reasons []string
	for _, m := range f.managers {
		off := m.StandsOff(check)
		if off.Because == "" {
			return "", false
		}
		reasons = append(reasons, off.Because)
		unseen = unseen || off.Unknown
	}
	if f.unseen != "" {
		return "it cannot be seen whether a manager of kubemend is there to take it: " + strings.Join(append(reasons, f.unseen), "; "), true
	}
	if len(reasons) == 0 {
		reasons = []string{"no manager has announced itself"}
	}
	if unseen {
		return "it cannot be seen whether a manager of kubemend would take it: " + strings.Join(reasons, "; "), true
	}
	return "no manager of kubemend would act on it: " + strings.Join(reasons, "; "), false
}

// effect is what will be so.
func effect(w way, c checkFacts) string {
	parts := []string{"kubemend will act on it in place of Cluster API core"}
	if w == releasing {
		parts[0] = "Cluster API core will act on it in place of kubemend"
	}
	machines := map[remediator][]string{}
	for _, u := range c.underway {
		machines[u.by] = append(machines[u.by], u.machine)
	}
	for by := itsOwner; by <= ofAnother; by++ {
		if names := machines[by]; len(names) > 0 {
			slices.Sort(names)
			parts = append(parts, "under way: "+strings.Join(names, ", ")+", "+becomes(w, by, len(names)))
		}
	}
	return strings.Join(parts, "; ")
}

// becomes says what happens to remediations of n machines. (docs/coexistence.md)
func becomes(w way, by remediator, n int) string {
	request, goes, it, machine := "whose request", "goes", "it", "the machine is"
	if n > 1 {
		request, goes, it, machine = "whose requests", "go", "them", "the machines are"
	}
	switch {
	case by == itsOwner && n == 1:
		return "whose owner remediates it, and goes on"
	case by == itsOwner:
		return "whose owners remediate them, and go on"
	case by == ofAnother && n == 1:
		return "whose request is not this check's, and is left alone"
	case by == ofAnother:
		return "whose requests are not this check's, and are left alone"
	case w == releasing:
		return fmt.Sprintf("%s %s on, and core deletes %s when %s healthy", request, goes, it, machine)
	case by == ofCore:
		return fmt.Sprintf("%s %s on, and kubemend adopts %s", request, goes, it)
	default:
		return fmt.Sprintf("%s %s on as kubemend's own", request, goes)
	}
}

// asides are what else is to be known of a check.
func asides(c checkFacts) []string {
	switch {
	case c.cluster == nil:
		return []string{fmt.Sprintf("there is no Cluster %s: no controller acts on the check before there is", c.check.Spec.ClusterName)}
	case ptr.Deref(c.cluster.Spec.Paused, false):
		return []string{fmt.Sprintf("Cluster %s is paused: no controller acts on the check while it is", c.cluster.Name)}
	case !c.cluster.DeletionTimestamp.IsZero():
		return []string{fmt.Sprintf("Cluster %s is being deleted: no controller acts on the check any more", c.cluster.Name)}
	}
	return nil
}

// pausedBy says who wrote the annotation, as far as the API server knows; empty if it does not.
func pausedBy(o client.Object) string {
	for _, entry := range o.GetManagedFields() {
		var fields struct {
			Metadata struct {
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, wrote := fields.Metadata.Annotations["f:"+clusterv1.PausedAnnotation]; !wrote {
			continue
		}
		if entry.Time == nil {
			return ", written by " + entry.Manager
		}
		return fmt.Sprintf(", written by %s, whose last change of the check was at %s", entry.Manager, stamp(entry.Time.Time))
	}
	return ""
}

// stamp is a moment as users read it.
func stamp(at time.Time) string {
	if at.IsZero() {
		return "a time that is not known"
	}
	return at.UTC().Format(time.RFC3339)
}
