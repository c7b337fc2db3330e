package managerlease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
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

// Off is why a manager does not act on an object.
type Off struct {
	// Reason is empty if it does act.
	Reason string
	// Because is the reason as a clause.
	Because string
	// Fix is what a user can do about it; empty if there is nothing but to start a manager.
	Fix string
	// mayAct reports that it is not known what the manager watches.
	mayAct bool
}

// Unknown reports that the manager may act on the object all the same.
func (o Off) Unknown() bool { return o.mayAct }

// StandsOff is why the manager does not act on an object; see Covers for more.
func (m Manager) StandsOff(obj client.Object, cluster *clusterv1.Cluster) Off {
	switch a := m.Announcement; {
	case m.Unbound:
		return Off{Reason: "Unbound", Because: m.NotBelieved(), Fix: "start the manager of kubemend"}
	case !m.Alive && m.Gone.IsZero():
		return Off{Reason: "NotRunning", Because: fmt.Sprintf("the one in %s does not run", m.Namespace)}
	case !m.Alive:
		return Off{Reason: "NotRunning", Because: fmt.Sprintf("the one in %s is gone since %s", m.Namespace, m.Gone.UTC().Format(time.RFC3339))}
	case m.Unverified != "":
		return Off{Reason: "Unverified", mayAct: true,
			Because: fmt.Sprintf("whether the lease in %s is a manager's cannot be seen (%s)", m.Namespace, m.Unverified)}
	case !m.mayActOn(obj):
		return Off{Reason: "OtherRights", Fix: "start a manager for namespace " + obj.GetNamespace(),
			Because: fmt.Sprintf("the one in %s has rights in namespace %s alone", m.Namespace, strings.Join(m.Within, ", "))}
	case m.Trouble != "":
		return Off{Reason: "NotUnderstood", mayAct: true,
			Because: fmt.Sprintf("what the one in %s says cannot be understood (%s)", m.Namespace, m.Trouble)}
	case a == nil:
		return Off{Reason: "NotAnnounced", mayAct: true,
			Because: fmt.Sprintf("the one in %s is of a release that does not say what it watches", m.Namespace)}
	case a.Namespace != "" && a.Namespace != obj.GetNamespace():
		return Off{Reason: "OtherNamespace", Fix: "start a manager for namespace " + obj.GetNamespace(),
			Because: fmt.Sprintf("the one in %s watches namespace %s alone", m.Namespace, a.Namespace)}
	case !m.Covers(obj, cluster):
		return m.otherLabel(obj, cluster)
	case a.Teardown:
		return m.InTeardown()
	}
	return Off{}
}

// otherLabel is that the manager watches objects with another label alone. That of the Cluster counts if the object has none.
func (m Manager) otherLabel(obj client.Object, cluster *clusterv1.Cluster) Off {
	label, object := clusterv1.WatchLabel+": "+m.Announcement.WatchFilter, "it"
	if _, labelled := obj.GetLabels()[clusterv1.WatchLabel]; cluster != nil && !labelled {
		object = "it, or its Cluster,"
	}
	return Off{Reason: "OtherLabel", Because: fmt.Sprintf("the one in %s watches only objects with the label %s", m.Namespace, label),
		Fix: fmt.Sprintf("give %s the label %s", object, label)}
}

// InTeardown is that the manager starts nothing.
func (m Manager) InTeardown() Off {
	return Off{Reason: "InTeardown", Because: fmt.Sprintf("the one in %s is in teardown, and starts nothing", m.Namespace)}
}

// NotBelieved is why the lease in the namespace of the manager proves nothing, as a clause.
func (m Manager) NotBelieved() string {
	return fmt.Sprintf("the lease in %s is not believed, since %s", m.Namespace, NotBound())
}

// NotBound is that no binding gives a manager its rights. A binding without the label is not asked for: that there is none would not be true.
func NotBound() string {
	return fmt.Sprintf("no binding with the label %s binds a ServiceAccount %s of that namespace to the ClusterRole %s",
		labels.Set(OfKubemend.Labelled), OfKubemend.Account, OfKubemend.Roles[0])
}
