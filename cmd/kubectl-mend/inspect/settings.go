package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Managers are those that have announced themselves, and what is not known of them.
type Managers struct {
	All []managerlease.Manager
	// Unknown is why there may be others; empty if there are none.
	Unknown string
}

// ManagersOf are those that w knows of at now, those that run first.
func ManagersOf(ctx context.Context, w *snapshot.Snapshot, now time.Time) Managers {
	all, err := managerlease.Of(ctx, w.ReadOnly(), now)
	if err != nil {
		return Managers{Unknown: err.Error()}
	}
	runs := func(manager managerlease.Manager) bool { return manager.Alive }
	gone := slices.DeleteFunc(slices.Clone(all), runs)
	all = append(slices.DeleteFunc(all, func(manager managerlease.Manager) bool { return !runs(manager) }), gone...)
	m := Managers{All: all}
	var unknown []string
	if err := w.Whole(coordinationv1.SchemeGroupVersion.WithKind("Lease")); err != nil {
		unknown = append(unknown, err.Error())
	}
	for i := range all {
		if is := &all[i]; is.Alive && is.Unverified != "" {
			unknown = append(unknown,
				fmt.Sprintf("whether the lease in namespace %s is a manager's cannot be seen (%s)", is.Namespace, is.Unverified))
		}
	}
	m.Unknown = strings.Join(unknown, "; ")
	return m
}

// Doubt says what is not known of managers; empty if all is.
func (m Managers) Doubt() string {
	if m.Unknown == "" {
		return ""
	}
	others := slices.ContainsFunc(m.All, func(is managerlease.Manager) bool { return is.Alive && is.Unverified == "" })
	return explain.ManagersUnknown(others, m.Unknown)
}

// clockAhead is how far the clock of a manager that runs is ahead of that of the API server: what it judges depends on it.
func (m Managers) clockAhead() time.Duration {
	for _, is := range m.All {
		if is.Alive && is.Announcement != nil && is.Announcement.ClockAheadSeconds != 0 {
			return is.Announcement.ClockAhead()
		}
	}
	return 0
}

// of is the manager that reconciles an object; nil if none is known. One without an announcement may reconcile any.
func (m Managers) of(obj client.Object, cluster *clusterv1.Cluster) *managerlease.Manager {
	for i := range m.All {
		if off := m.All[i].StandsOff(obj, cluster); off.Reason == "" || off.Unknown() {
			return &m.All[i]
		}
	}
	return nil
}

// unclaimed is what the manager of a check does about checks that are not claimed. Where that is not known, it is the default of the flag.
func unclaimed(m *managerlease.Manager) machinehealthcheck.Unclaimed {
	if m == nil || m.Announcement == nil || m.Announcement.Unclaimed == "" {
		return machinehealthcheck.Observe
	}
	return machinehealthcheck.Unclaimed(m.Announcement.Unclaimed)
}

// leaseNamespace is where the manager keeps the leases on nodes.
func (m Managers) leaseNamespace() string {
	for _, is := range m.All {
		if is.Announcement != nil && is.Announcement.NodeLeaseNamespace != "" {
			return is.Announcement.NodeLeaseNamespace
		}
	}
	return nhcv1.DefaultLeaseNamespace
}

// unseen is the mode of what no manager is known to act on: none if there is one that does not run or stands off, and unknown if there
// never was any.
func (m Managers) unseen() explain.Mode {
	if len(m.All) == 0 {
		return explain.Unknown
	}
	return explain.None
}

// serves reports whether a manager acts on a kind, and if those that run do not, what they announce about it; nil if none runs. Where it is
// not known which other managers run, one may serve it.
func (m Managers) serves(crd string) (bool, *managerlease.Kind) {
	var not *managerlease.Kind
	for _, is := range m.All {
		if !is.Alive || is.Announcement != nil && is.Announcement.Teardown || crd == crdgate.NodeCheckCRD && len(is.Within) > 0 {
			continue // what has no namespace is not for one that has rights in some
		}
		if not = is.Unserved(crd); not == nil {
			return true, nil
		}
	}
	return not == nil && m.Unknown != "", not
}

// offs are why managers do not act on an object.
func (m Managers) offs(obj client.Object, cluster *clusterv1.Cluster) []managerlease.Off {
	var offs []managerlease.Off
	for i := range m.All {
		if is := &m.All[i]; is.Alive {
			offs = append(offs, is.StandsOff(obj, cluster))
		}
	}
	return offs
}

// leaving are why managers in teardown start nothing.
func (m Managers) leaving() []managerlease.Off {
	var offs []managerlease.Off
	for i := range m.All {
		if is := &m.All[i]; is.Alive && is.Announcement != nil && is.Announcement.Teardown {
			offs = append(offs, is.InTeardown())
		}
	}
	return offs
}
