package simulate

import (
	"context"
	"fmt"
	"slices"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// assumeManagers has the managers decide that run and stay, each by its settings. If there is none, or if it does not announce its
// settings, default ones are assumed.
func (s *simulation) assumeManagers(ctx context.Context) {
	managers := &s.asker.Managers
	managers.All = slices.DeleteFunc(managers.All, func(m managerlease.Manager) bool {
		return !m.Alive || m.Announcement != nil && m.Announcement.Teardown
	})
	for i := range managers.All {
		if m := &managers.All[i]; m.Announcement == nil {
			m.Announcement, m.Trouble = s.defaults(ctx), ""
			s.assume(fmt.Sprintf("The manager in namespace %s does not announce its settings: default ones are assumed", m.Namespace))
		}
	}
	if len(managers.All) > 0 {
		return
	}
	managers.All = []managerlease.Manager{{Alive: true, Announcement: s.defaults(ctx)}}
	if managers.Unknown != "" {
		s.assume("Which manager runs is not known, one with default settings is assumed: " + managers.Unknown)
		return
	}
	s.assume("No manager of kubemend runs that stays: one with default settings is assumed")
}

// defaults are the settings of a manager without flags: it leaves NodeHealthChecks to the operator that has brought them along.
func (s *simulation) defaults(ctx context.Context) *managerlease.Announcement {
	settings := &managerlease.Announcement{}
	service := crdgate.NodeHealthChecks(crdgate.Auto)
	definitions := &crdgate.Reconciler{Client: s.snapshot.ReadOnly()}
	if why, because, err := definitions.Why(ctx, service); err == nil && why == crdgate.ForeignReason {
		settings.Kinds = append(settings.Kinds, managerlease.Kind{CRD: service.CRD, Reason: why, Because: because})
	}
	return settings
}
