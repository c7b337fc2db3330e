// Package managerlease writes and reads the manager lease, a Lease that says that a manager runs, its settings, and which kinds it serves.
// The manager lease is only for reports: the leader lease decides which replica acts.
package managerlease

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LeaseName is the name of the manager lease. It is in the namespace of the leader lease.
	LeaseName = "manager.kubemend.io"
	// LeaderLeaseName is the name of the leader lease.
	LeaderLeaseName = "leader.kubemend.io"
)

// Announcement has the settings of a manager and the kinds that it serves. It is JSON in the annotation kubemend.io/manager of the lease. A
// reader ignores fields that its release does not know.
type Announcement struct {
	// Version is the release of the manager.
	Version string `json:"version"`
	// Started is when the process started, in whole seconds.
	Started metav1.Time `json:"started"`
	// Unclaimed is the flag --unclaimed-machine-health-checks: observe, act or ignore.
	Unclaimed string `json:"unclaimed"`
	// Namespace is the only namespace whose Cluster API objects the manager watches; empty for all.
	Namespace string `json:"namespace,omitempty"`
	// WatchFilter is the value of --watch-filter; empty if the manager watches objects with any label.
	WatchFilter string `json:"watchFilter,omitempty"`
	// NodeLeaseNamespace is the namespace of the leases on nodes.
	NodeLeaseNamespace string `json:"nodeLeaseNamespace"`
	// PolicyNamespace is the namespace whose RemediationPolicies apply to all namespaces.
	PolicyNamespace string `json:"policyNamespace,omitempty"`
	// Outside says that the manager does not run in a pod of the cluster, and has the rights of a user.
	Outside bool `json:"outside,omitempty"`
	// Teardown says that the manager runs with --teardown: it removes what kubemend wrote, and starts no remediation.
	Teardown bool `json:"teardown,omitempty"`
	// ClockAheadSeconds is by how many seconds the clock of the manager is ahead of the clock of the API server: negative if it is behind,
	// 0 if the error is at most 30 s.
	ClockAheadSeconds int64 `json:"clockAheadSeconds,omitempty"`
	// Kinds are the kinds that the manager can serve, without those that it has not reconciled yet.
	Kinds []Kind `json:"kinds,omitempty"`
}

// ClockAhead returns ClockAheadSeconds as a duration.
func (a *Announcement) ClockAhead() time.Duration {
	return time.Duration(a.ClockAheadSeconds) * time.Second
}

// Kind says whether the manager serves a kind, and if not, why.
type Kind struct {
	// CRD is the name of the CustomResourceDefinition.
	CRD string `json:"crd"`
	// Reason is why the kind is not served, as in the metric kubemend_kind_served; empty if it is served.
	Reason string `json:"reason,omitempty"`
	// Because explains Reason in a clause without a full stop.
	Because string `json:"because,omitempty"`
}

// Unserved returns why the manager does not serve the kind of a CustomResourceDefinition; nil if the manager serves it, or the lease does
// not mention it.
func (m Manager) Unserved(crd string) *Kind {
	if m.Announcement == nil {
		return nil
	}
	i := slices.IndexFunc(m.Announcement.Kinds, func(k Kind) bool { return k.CRD == crd && k.Reason != "" })
	if i < 0 {
		return nil
	}
	return &m.Announcement.Kinds[i]
}
