package history

import (
	"regexp"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// The kinds that a history knows.
const (
	machineKind      = "Machine"
	nodeKind         = "Node"
	hostKind         = "BareMetalHost"
	machineCheckKind = "MachineHealthCheck"
	nodeCheckKind    = "NodeHealthCheck"
	clusterKind      = "Cluster"
)

// requestSuffix is how the kinds of remediation requests end.
const requestSuffix = "Remediation"

// Scope is what somebody wants to know about. Of Machine, Host, Cluster and Node at most one is set; if none is, it is everything.
type Scope struct {
	// Namespace is that of the first three; empty for all.
	Namespace                    string
	Machine, Host, Cluster, Node string
	// Since is how far back; zero for as far as is remembered.
	Since time.Time
}

// About is the object that is asked about, or only the namespace.
func (s Scope) About() explain.Ref {
	is := explain.Ref{Namespace: s.Namespace}
	for kind, name := range map[string]string{machineKind: s.Machine, hostKind: s.Host, clusterKind: s.Cluster, nodeKind: s.Node} {
		if name != "" {
			is.Kind, is.Name = kind, name
		}
	}
	return is
}

// within is which objects belong to a scope.
type within struct {
	all       bool
	namespace string
	objects   map[explain.Ref]bool
	// checks are those that watch something in the scope, but others as well.
	checks map[explain.Ref]bool
	// names are of the machines, nodes and hosts of the scope, to be found in the text of events about others.
	names *regexp.Regexp
	// spans are what belongs to the scope for a time, by its records.
	spans map[explain.Ref][]span
}

// within finds what belongs to s. What has been deleted is known by its name alone.
func (s Scope) within(o Objects) within {
	w := within{namespace: s.Namespace, objects: map[explain.Ref]bool{}, checks: map[explain.Ref]bool{}, spans: map[explain.Ref][]span{}}
	if s.Machine == "" && s.Host == "" && s.Cluster == "" && s.Node == "" {
		w.all = true
		return w
	}
	for i := range o.Machines {
		if m := &o.Machines[i]; s.means(m, o) {
			w.add(refOf(machineKind, m))
			w.addAround(m, o)
		}
	}
	s.addNamed(&w, o)
	for i := range o.Records {
		w.addRecorded(&o.Records[i], o.Now)
	}
	w.find()
	return w
}

// addNamed adds what the user has named, which may have no machine, or none any more.
func (s Scope) addNamed(w *within, o Objects) {
	for kind, name := range map[string]string{machineKind: s.Machine, hostKind: s.Host, clusterKind: s.Cluster} {
		for _, namespace := range s.namespacesOf(kind, name, o) {
			w.add(explain.Ref{Kind: kind, Namespace: namespace, Name: name})
		}
	}
	if s.Node != "" {
		w.add(explain.Ref{Kind: nodeKind, Name: s.Node})
	}
	for i := range o.Requests { // its machine may be gone
		if r := &o.Requests[i]; s.Machine != "" && r.GetName() == s.Machine && s.in(r) {
			w.add(refOf(r.GetKind(), r))
		}
	}
	for i := range o.Checks {
		if c := &o.Checks[i]; s.Cluster != "" && c.Spec.ClusterName == s.Cluster && s.in(c) {
			w.add(refOf(machineCheckKind, c))
		}
	}
}

// namespacesOf are those in which there is, or was, an object of a name; none without a name.
func (s Scope) namespacesOf(kind, name string, o Objects) []string {
	switch {
	case name == "":
		return nil
	case s.Namespace != "":
		return []string{s.Namespace}
	}
	var all []string
	for i := range o.Events {
		if about := o.Events[i].Regarding; about.Kind == kind && about.Name == name {
			all = append(all, about.Namespace)
		}
	}
	for i := range o.Hosts {
		if h := &o.Hosts[i]; kind == hostKind && h.Name == name {
			all = append(all, h.Namespace)
		}
	}
	return all
}

// in reports whether o is in a namespace of the scope.
func (s Scope) in(o metav1.Object) bool { return s.Namespace == "" || s.Namespace == o.GetNamespace() }

// means reports whether the user means m, or its host.
func (s Scope) means(m *clusterv1.Machine, o Objects) bool {
	if !s.in(m) {
		return false
	}
	for i := range o.Hosts {
		if h := &o.Hosts[i]; s.Host != "" && h.Name == s.Host && carries(h, m) {
			return true
		}
	}
	return m.Name == s.Machine || s.Cluster != "" && m.Spec.ClusterName == s.Cluster || s.Node != "" && m.Status.NodeRef.Name == s.Node
}

// addAround adds what belongs to a machine.
func (w *within) addAround(m *clusterv1.Machine, o Objects) {
	if node := m.Status.NodeRef.Name; node != "" {
		w.add(explain.Ref{Kind: nodeKind, Name: node})
	}
	for i := range o.Hosts {
		if carries(&o.Hosts[i], m) {
			w.add(refOf(hostKind, &o.Hosts[i]))
		}
	}
	for i := range o.Requests {
		if isFor(&o.Requests[i], m) {
			w.add(refOf(o.Requests[i].GetKind(), &o.Requests[i]))
		}
	}
	for i := range o.Checks {
		if c := &o.Checks[i]; c.Namespace == m.Namespace && machinehealthcheck.Unselected(c, m) == "" {
			w.checks[refOf(machineCheckKind, c)] = true
		}
	}
}

func (w *within) add(r explain.Ref) { w.objects[r] = true }

// has reports whether r belongs to the scope.
func (w *within) has(r explain.Ref) bool {
	if w.all {
		return r.Kind != "" && (w.namespace == "" || r.Namespace == "" || r.Namespace == w.namespace)
	}
	return w.objects[r] || w.checks[r]
}

// requested reports whether r is a request for a machine of the scope. One that has done its work is deleted, and known by its name alone.
func (w *within) requested(r explain.Ref) bool {
	return strings.HasSuffix(r.Kind, requestSuffix) && w.objects[explain.Ref{Kind: machineKind, Namespace: r.Namespace, Name: r.Name}]
}

// find makes the names of the scope be found in texts.
func (w *within) find() {
	pattern := ""
	for r := range w.objects {
		switch r.Kind {
		case machineKind, nodeKind, hostKind:
			if pattern != "" {
				pattern += "|"
			}
			pattern += regexp.QuoteMeta(r.Name)
		}
	}
	if pattern != "" {
		w.names = regexp.MustCompile(`(^|[^-.\w])(` + pattern + `)($|[^-.\w]|\.($|\s))`)
	}
}

// named reports whether a text has a name of the scope in it.
func (w *within) named(text string) bool { return w.names != nil && w.names.MatchString(text) }

// carries reports whether m runs on h: both name the object between them.
func carries(h *bmov1alpha1.BareMetalHost, m *clusterv1.Machine) bool {
	between := h.Spec.ConsumerRef
	return between != nil && between.Name == m.Spec.InfrastructureRef.Name && h.Namespace == m.Namespace
}

// isFor reports whether a request is for m: owned by it, or of its name, as both Cluster API and kubemend make them.
func isFor(r metav1.Object, m *clusterv1.Machine) bool {
	if r.GetNamespace() != m.Namespace {
		return false
	}
	for _, owner := range r.GetOwnerReferences() {
		if owner.Kind == machineKind && owner.Name == m.Name {
			return true
		}
	}
	return r.GetName() == m.Name
}

func refOf(kind string, o metav1.Object) explain.Ref {
	return explain.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}
