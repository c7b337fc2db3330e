package managerlease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/capi"
)

// Off is why a manager does not act on an object.
type Off struct {
	// Reason is empty if it does act.
	Reason string
	// Because is the reason as a clause.
	Because string
	// Fix is what a user can do about it; empty if there is nothing but to start a manager.
	Fix string
}

// unverified is the reason of a manager of which it is not known whether it is one, or what it watches.
const unverified = "Unverified"

// Unknown reports that the manager may act on the object all the same.
func (o Off) Unknown() bool { return o.Reason == unverified }

// StandsOff is why the manager does not act on an object, by what it says of its namespace and its filter, and by its rights: on what has
// no namespace it acts only if it has them everywhere. The cluster is that of the object, whose label counts if the object has none; nil if
// there is none, or if it does not count.
func (m Manager) StandsOff(obj client.Object, cluster *clusterv1.Cluster) Off {
	startAnother := "start a manager for namespace " + obj.GetNamespace()
	switch a := m.Announcement; {
	case !m.Alive:
		return Off{Reason: "NotRunning", Because: fmt.Sprintf("the one in %s is gone since %s", m.Namespace, m.Gone.UTC().Format(time.RFC3339))}
	case m.Unverified != "":
		return Off{Reason: unverified, Because: fmt.Sprintf("whether the lease in %s is a manager's cannot be seen (%s)", m.Namespace, m.Unverified)}
	case len(m.Within) > 0 && !slices.Contains(m.Within, obj.GetNamespace()):
		return Off{Reason: "OtherRights", Fix: startAnother,
			Because: fmt.Sprintf("the one in %s has rights in namespace %s alone", m.Namespace, strings.Join(m.Within, ", "))}
	case a.Namespace != "" && a.Namespace != obj.GetNamespace():
		return Off{Reason: "OtherNamespace", Fix: startAnother, Because: fmt.Sprintf("the one in %s watches namespace %s alone", m.Namespace, a.Namespace)}
	case !capi.Covers(a.WatchFilter, obj, cluster):
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
