package managerlease

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
// known, and it does not. The label of the filter may also be on one of more: of a remediation, that of its Cluster counts as well.
func (m Manager) Covers(obj client.Object, more ...client.Object) bool {
	a := m.Announcement
	if a == nil || !m.mayActOn(obj) || a.Namespace != "" && a.Namespace != obj.GetNamespace() {
		return false
	}
	for _, o := range append([]client.Object{obj}, more...) {
		if a.WatchFilter == "" || o.GetLabels()[clusterv1.WatchLabel] == a.WatchFilter {
			return true
		}
	}
	return false
}

// Off is why a manager does not act on an object.
type Off struct {
	// Because says why, as a clause that begins with the manager: "the one in kubemend-system does not run". Empty if it does act.
	Because string
	// Person is what a person can do for it to act, as an order; empty if there is nothing but to start one.
	Person string
	// Unknown says that this is only not known, and that it may act all the same.
	Unknown bool
}

// StandsOff says why the manager does not act on an object; see Covers for more.
func (m Manager) StandsOff(obj client.Object, more ...client.Object) Off {
	where := "the one in " + m.Namespace
	switch a := m.Announcement; {
	case m.Unbound:
		return Off{
			Because: fmt.Sprintf("the lease in %s is not believed, since %s", m.Namespace, OfKubemend.Disbelief()),
			Person:  "start the manager of kubemend",
		}
	case !m.Alive && m.Gone.IsZero():
		return Off{Because: where + " does not run"}
	case !m.Alive:
		return Off{Because: fmt.Sprintf("%s is gone since %s", where, m.Gone.UTC().Format(time.RFC3339))}
	case m.Unverified != "":
		return Off{Because: fmt.Sprintf("whether the lease in %s is a manager's cannot be seen (%s)", m.Namespace, m.Unverified), Unknown: true}
	case !m.mayActOn(obj):
		return Off{
			Because: fmt.Sprintf("%s has rights in namespace %s alone", where, strings.Join(m.Within, ", ")),
			Person:  "start a manager for namespace " + obj.GetNamespace(),
		}
	case m.Trouble != "":
		return Off{Because: fmt.Sprintf("what %s says cannot be understood (%s)", where, m.Trouble), Unknown: true}
	case a == nil:
		return Off{Because: where + " is of a release that does not say what it watches", Unknown: true}
	case a.Namespace != "" && a.Namespace != obj.GetNamespace():
		return Off{
			Because: fmt.Sprintf("%s watches namespace %s alone", where, a.Namespace),
			Person:  "start a manager for namespace " + obj.GetNamespace(),
		}
	case !m.Covers(obj, more...):
		label, object := clusterv1.WatchLabel+": "+a.WatchFilter, "it"
		if len(more) > 0 {
			object = "it, or its Cluster,"
		}
		return Off{Because: fmt.Sprintf("%s watches only objects with the label %s", where, label), Person: fmt.Sprintf("give %s the label %s", object, label)}
	case a.Teardown:
		return Off{Because: where + " is in teardown: it starts nothing, and releases checks"}
	}
	return Off{}
}
