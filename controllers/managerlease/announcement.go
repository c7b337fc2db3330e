// Package managerlease writes and reads the Lease that shows that a manager runs, with which settings, and which kinds it serves.
//
// The leader lease decides which replica acts; this one only reports it, and may decide nothing.
package managerlease

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LeaseName is the name of the lease of a manager, in the namespace in which its replicas elect a leader.
	LeaseName = "manager.kubemend.io"
	// LeaderLeaseName is that of the lease by which the replicas elect a leader.
	LeaderLeaseName = "leader.kubemend.io"
)

// Announcement has the settings of a manager and the kinds that it serves, as JSON in the annotation kubemend.io/manager. A reader ignores
// fields that its release does not know.
type Announcement struct {
	// Version is that of the program.
	Version string `json:"version"`
	// Started is when the process was started, in whole seconds.
	Started metav1.Time `json:"started"`
	// Unclaimed is the flag --unclaimed-machine-health-checks: observe, act or ignore.
	Unclaimed string `json:"unclaimed"`
	// Namespace is the only one whose objects of Cluster API are read; empty for all.
	Namespace string `json:"namespace,omitempty"`
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that they need; empty if they need none.
	WatchFilter string `json:"watchFilter,omitempty"`
	// NodeLeaseNamespace is where the leases on nodes are.
	NodeLeaseNamespace string `json:"nodeLeaseNamespace"`
	// PolicyNamespace is where the RemediationPolicies are that reach all namespaces.
	PolicyNamespace string `json:"policyNamespace,omitempty"`
	// Outside says that the manager runs in no pod of the cluster, with the rights of a user.
	Outside bool `json:"outside,omitempty"`
	// Teardown says that the manager removes all that kubemend made, and begins nothing.
	Teardown bool `json:"teardown,omitempty"`
	// ClockAheadSeconds is by how many seconds the clock of the manager is ahead of that of the API server; less than 0 if it is behind, 0
	// up to 30.
	ClockAheadSeconds int64 `json:"clockAheadSeconds,omitempty"`
	// Kinds are those that it could serve. One that is missing was not reconciled yet.
	Kinds []Kind `json:"kinds,omitempty"`
}

// ClockAhead is ClockAheadSeconds as a duration.
func (a *Announcement) ClockAhead() time.Duration {
	return time.Duration(a.ClockAheadSeconds) * time.Second
}

// Kind is whether a kind is served, and why not.
type Kind struct {
	// CRD is the name of the CustomResourceDefinition.
	CRD string `json:"crd"`
	// Reason is why it is not served, as in the metric kubemend_kind_served: Off, NotInstalled, Foreign, Waiting or Failed. Empty if it is.
	Reason string `json:"reason,omitempty"`
	// Because is the same in a sentence, without a full stop at its end.
	Because string `json:"because,omitempty"`
}

// Unserved returns why the manager does not serve a kind, by the name of the CustomResourceDefinition; nil if it serves the kind,
// or the lease does not mention it.
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
