package simulate

import (
	"context"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
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
	if len(p.all) == 0 {
		p.all = []managerlease.Manager{{Alive: true, Announcement: defaults(ctx, w)}}
	}
	others := known.Unknown != "" && len(known.All) > 0
	p.whose = explain.SimulatedManagers(namespaces, silent, leaving, known.Unknown, others)
	if others {
		p.all = append(p.all, managerlease.Manager{Alive: true, Announcement: &managerlease.Announcement{Kinds: p.all[0].Announcement.Kinds}})
	}
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
