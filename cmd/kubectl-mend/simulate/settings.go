package simulate

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// managers are those that are simulated, at least one.
type managers struct {
	all []managerlease.Manager
	// whose is whose settings they have, as a sentence without a full stop.
	whose string
}

// simulatedManagers are the managers that run and stay, each with its settings, or one with defaults if there is none.
func simulatedManagers(ctx context.Context, w *snapshot.Snapshot, known inspect.Managers) managers {
	var p managers
	var namespaces, silent []string
	leaving := ""
	for _, m := range known.All {
		switch a := m.Announcement; {
		case !m.Alive:
		case a == nil:
			m.Announcement, m.Trouble = defaults(ctx, w), ""
			p.all, silent = append(p.all, m), append(silent, m.Namespace)
		case a.Teardown:
			leaving = m.Namespace
		default:
			p.all, namespaces = append(p.all, m), append(namespaces, m.Namespace)
		}
	}
	var whose []string
	switch len(namespaces) {
	case 0:
	case 1:
		whose = append(whose, "The manager has the settings of the one in namespace "+namespaces[0])
	default:
		whose = append(whose, "The managers have the settings of those in the namespaces "+strings.Join(namespaces, ", "))
	}
	if len(silent) > 0 {
		whose = append(whose, fmt.Sprintf("The manager in namespace %s does not announce its settings: default ones are assumed",
			strings.Join(silent, ", ")))
	}
	if len(p.all) == 0 {
		p.all = []managerlease.Manager{{Alive: true, Announcement: defaults(ctx, w)}}
		whose = []string{"No manager of kubemend runs there: one with default settings is assumed"}
		if leaving != "" {
			whose[0] = fmt.Sprintf("The manager in namespace %s is in teardown: another one with default settings is assumed", leaving)
		}
		if known.Unknown != "" {
			whose[0] = "Which manager runs there is not known, one with default settings is assumed: " + known.Unknown
		}
	}
	if known.Unknown != "" && len(known.All) > 0 {
		whose = append(whose, "There may be another one, which is assumed to reconcile all else: "+known.Unknown)
		p.all = append(p.all, managerlease.Manager{Alive: true, Announcement: &managerlease.Announcement{Kinds: p.all[0].Announcement.Kinds}})
	}
	p.whose = strings.Join(whose, ". ")
	return p
}

// defaults are the settings of a manager without flags: it serves what no other operator does.
func defaults(ctx context.Context, w *snapshot.Snapshot) *managerlease.Announcement {
	a := &managerlease.Announcement{}
	definitions := &crdgate.Reconciler{Client: w.ReadOnly()}
	for _, s := range []*crdgate.Service{crdgate.NodeHealthChecks(crdgate.Auto), crdgate.Metal3Remediations(crdgate.Auto)} {
		// Whether a kind is installed the snapshot knows, also if the user may not read definitions.
		if why, because, err := definitions.Why(ctx, s); err == nil && why == crdgate.ForeignReason {
			a.Kinds = append(a.Kinds, managerlease.Kind{CRD: s.CRD, Reason: why, Because: because})
		}
	}
	return a
}

// unserved says why no manager acts on a kind; empty if one does.
func (p managers) unserved(crd string) string {
	because := ""
	for _, m := range p.all {
		not := m.Unserved(crd)
		if not == nil {
			return ""
		}
		because = not.Because
	}
	return because
}
