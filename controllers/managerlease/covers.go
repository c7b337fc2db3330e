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
	// Reason is empty if the manager acts on the object.
	Reason string
	// Because explains Reason in a clause.
	Because string
	// Fix is what a user can change so that the manager acts; empty if only another manager would help.
	Fix string
}

// unverified is the Reason if it is not known whether the lease belongs to a manager, or what the manager watches.
const unverified = "Unverified"

// Unknown reports whether the manager may act on the object nevertheless.
func (o Off) Unknown() bool { return o.Reason == unverified }

// StandsOff returns why the manager does not act on an object, by the manager's namespace, watch filter and rights. On an object without a
// namespace it acts only if it has its rights in all namespaces. cluster is the Cluster of the object, for capi.Covers; nil if there is
// none, or if its label does not count.
func (m Manager) StandsOff(obj client.Object, cluster *clusterv1.Cluster) Off {
	startAnother := "start a manager for namespace " + obj.GetNamespace()
	switch a := m.Announcement; {
	case !m.Alive:
		return Off{Reason: "NotRunning", Because: fmt.Sprintf("the one in %s is gone since %s",
			m.Namespace, m.Gone.UTC().Format(time.RFC3339))}
	case m.Unverified != "":
		return Off{Reason: unverified,
			Because: fmt.Sprintf("it is not known whether the lease in %s belongs to a manager (%s)", m.Namespace, m.Unverified)}
	case len(m.Within) > 0 && !slices.Contains(m.Within, obj.GetNamespace()):
		return Off{Reason: "OtherRights", Fix: startAnother,
			Because: fmt.Sprintf("the one in %s has rights in namespace %s alone", m.Namespace, strings.Join(m.Within, ", "))}
	case a.Namespace != "" && a.Namespace != obj.GetNamespace():
		return Off{Reason: "OtherNamespace", Fix: startAnother,
			Because: fmt.Sprintf("the one in %s watches namespace %s alone", m.Namespace, a.Namespace)}
	case !capi.Covers(a.WatchFilter, obj, cluster):
		return m.otherLabel(obj, cluster)
	case a.Teardown:
		return m.InTeardown()
	}
	return Off{}
}

// otherLabel says that the manager watches only objects with another label.
func (m Manager) otherLabel(obj client.Object, cluster *clusterv1.Cluster) Off {
	label, object := clusterv1.WatchLabel+": "+m.Announcement.WatchFilter, "it"
	if _, labelled := obj.GetLabels()[clusterv1.WatchLabel]; cluster != nil && !labelled {
		object = "it, or its Cluster,"
	}
	return Off{Reason: "OtherLabel", Because: fmt.Sprintf("the one in %s watches only objects with the label %s", m.Namespace, label),
		Fix: fmt.Sprintf("give %s the label %s", object, label)}
}

// InTeardown says that the manager is in teardown and starts no remediation.
func (m Manager) InTeardown() Off {
	return Off{Reason: "InTeardown", Because: fmt.Sprintf("the one in %s is in teardown, and starts nothing", m.Namespace)}
}
