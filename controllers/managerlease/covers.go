package managerlease

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/shard"
)

// Where things usually are, for those who may not look everywhere.
const (
	// UsualNamespace is where the manifests put the manager.
	UsualNamespace = "kubemend-system"
	// CoreLeaseName is the name of the lease by which the replicas of Cluster API core agree who acts. (Cluster API, core/main.go)
	CoreLeaseName = "controller-leader-election-capi"
	// CoreNamespace is where clusterctl puts Cluster API core.
	CoreNamespace = "capi-system"
)

// Covers reports whether the manager looks at an object, by what it says of its namespace and its filter. Of one that says nothing this is not
// known, and it does not. The cluster is that of the object, whose label counts if the object has none; nil if there is none, or if it does not count.
func (m Manager) Covers(obj client.Object, cluster *clusterv1.Cluster) bool {
	a := m.Announcement
	return a != nil && m.mayActOn(obj) && (a.Namespace == "" || a.Namespace == obj.GetNamespace()) && shard.Covers(a.WatchFilter, obj, cluster)
}

// NoneSeen reports that no manager has ever announced itself by a lease that is believed. One that could not may run all the same.
func NoneSeen(all []Manager) bool {
	return !slices.ContainsFunc(all, func(m Manager) bool { return !m.Unbound })
}

// OffReason is a reason why a manager does not act on an object.
type OffReason string

// The reasons, in the order in which StandsOff looks for them.
const (
	Unbound        OffReason = "Unbound"        // its lease is not trusted
	NotRunning     OffReason = "NotRunning"     // since Manager.Gone, if that is known
	Unverified     OffReason = "Unverified"     // whether the lease is a manager's is unknown, for Manager.Unverified
	OtherRights    OffReason = "OtherRights"    // it has rights in the namespaces Manager.Within alone
	NotUnderstood  OffReason = "NotUnderstood"  // its announcement cannot be parsed, for Manager.Trouble
	NotAnnounced   OffReason = "NotAnnounced"   // it announces nothing
	OtherNamespace OffReason = "OtherNamespace" // it watches another namespace alone
	OtherLabel     OffReason = "OtherLabel"     // it watches objects with another label alone
	InTeardown     OffReason = "InTeardown"
)

// Off is why a manager does not act on an object.
type Off struct {
	// Reason is empty if it does act.
	Reason  OffReason
	Manager Manager
	// Namespace is the object's. OrCluster reports that the label of its Cluster counts, since it has none of its own.
	Namespace string
	OrCluster bool
}

// Unknown reports that the manager may act on the object all the same.
func (o Off) Unknown() bool {
	return o.Reason == Unverified || o.Reason == NotUnderstood || o.Reason == NotAnnounced
}

// StandsOff is why the manager does not act on an object; see Covers for more.
func (m Manager) StandsOff(obj client.Object, cluster *clusterv1.Cluster) Off {
	_, labelled := obj.GetLabels()[clusterv1.WatchLabel]
	return Off{Reason: m.offReason(obj, cluster), Manager: m, Namespace: obj.GetNamespace(), OrCluster: cluster != nil && !labelled}
}

func (m Manager) offReason(obj client.Object, cluster *clusterv1.Cluster) OffReason {
	switch a := m.Announcement; {
	case m.Unbound:
		return Unbound
	case !m.Alive:
		return NotRunning
	case m.Unverified != "":
		return Unverified
	case !m.mayActOn(obj):
		return OtherRights
	case m.Trouble != "":
		return NotUnderstood
	case a == nil:
		return NotAnnounced
	case a.Namespace != "" && a.Namespace != obj.GetNamespace():
		return OtherNamespace
	case !m.Covers(obj, cluster):
		return OtherLabel
	case a.Teardown:
		return InTeardown
	}
	return ""
}
