package simulate

import (
	"context"
	"slices"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// assumeManagers has the managers decide that run and stay, each by its settings. If there is none, one without flags is assumed, which
// leaves NodeHealthChecks to the operator that has brought them along.
func (s *simulation) assumeManagers(ctx context.Context) {
	managers := &s.asker.Managers
	managers.All = slices.DeleteFunc(managers.All, func(m managerlease.Manager) bool {
		return !m.Alive || m.Announcement != nil && m.Announcement.Teardown
	})
	if len(managers.All) > 0 {
		return
	}
	settings := &managerlease.Announcement{}
	service := crdgate.NodeHealthChecks(crdgate.Auto)
	definitions := &crdgate.Reconciler{Client: s.snapshot.ReadOnly()}
	if why, because, err := definitions.Why(ctx, service); err == nil && why == crdgate.ForeignReason {
		settings.Kinds = append(settings.Kinds, managerlease.Kind{CRD: service.CRD, Reason: why, Because: because})
	}
	managers.All = []managerlease.Manager{{Alive: true, Announcement: settings}}
	if managers.Unknown != "" {
		s.assume("Which manager runs is not known, one with default settings is assumed: " + managers.Unknown)
		return
	}
	s.assume("No manager of kubemend runs that stays: one with default settings is assumed")
}
