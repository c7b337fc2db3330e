package simulate

import (
	"cmp"
	"fmt"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/ask"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// settings are those of the manager that is played.
type settings struct {
	unclaimed   machinehealthcheck.Unclaimed
	watchFilter string
	leases      string
	fencing     fence.Mode
	// whose says whose they are, as a sentence without a full stop.
	whose string
}

// settingsOf are those of the manager that runs, or the defaults if none does.
func settingsOf(managers ask.Managers) settings {
	s := settings{unclaimed: machinehealthcheck.Observe, leases: nhcv1.DefaultLeaseNamespace, fencing: fence.Auto}
	for _, m := range managers.All {
		a := m.Announcement
		if !m.Alive || a == nil || a.Leaving {
			continue
		}
		s.unclaimed = cmp.Or(machinehealthcheck.Unclaimed(a.Unclaimed), s.unclaimed)
		s.fencing = cmp.Or(fence.Mode(a.Fencing), s.fencing)
		s.leases = cmp.Or(a.NodeLeaseNamespace, s.leases)
		s.watchFilter = a.WatchFilter
		s.whose = fmt.Sprintf("The manager has the settings of the one in namespace %s", m.Namespace)
		return s
	}
	s.whose = "No manager of kubemend runs there: one with default settings is assumed"
	if managers.Unknown != "" {
		s.whose = "Which manager runs there is not known, one with default settings is assumed: " + managers.Unknown
	}
	return s
}

// assumptions are those about the manager, and about what it sees.
func (s *stage) assumptions() []string {
	all := []string{s.settings.whose}
	for _, cluster := range s.world.Workloads() {
		if why, _, unseen := s.world.Unseen(cluster); unseen {
			all = append(all, fmt.Sprintf("The nodes of cluster %s are out of sight, and stay so: %s", cluster, why))
		}
	}
	return all
}
