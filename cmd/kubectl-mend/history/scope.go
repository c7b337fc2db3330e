package history

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
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

// Scope is what somebody wants to know about: one object, with all that belongs to it, or everything in a namespace.
type Scope struct {
	// Namespace is that of the object, where its kind has one; empty for all.
	Namespace string
	// Kind and Name are those of a Machine, a Node, a BareMetalHost, a check or a Cluster; empty for everything.
	Kind, Name string
	// Since is how far back; zero for as far as is remembered.
	Since time.Time
}

// in reports whether the scope reaches into a namespace. What has none is in all.
func (s Scope) in(namespace string) bool {
	return s.Namespace == "" || namespace == "" || s.Namespace == namespace
}

// named reports whether the user has named an object of any UID.
func (s Scope) named(kind, namespace, name string) bool {
	return kind == s.Kind && name == s.Name && s.in(namespace)
}

// Concerns reports whether a record belongs to the scope. It is cheap: there may be ten thousands.
func (s Scope) Concerns(r *mendv1.RemediationRecord) bool {
	if !s.in(r.Namespace) || r.Status.Ended != nil && r.Status.Ended.Time.Before(s.Since) {
		return false
	}
	target, replacement := &r.Spec.Target, r.Status.Replacement
	if replacement == nil {
		replacement = &mendv1.RecordReplacement{}
	}
	switch s.Kind {
	case "":
		return true
	case clusterKind:
		return target.ClusterName == s.Name
	case machineCheckKind, nodeCheckKind:
		check := r.Spec.Requester.Check
		return check != nil && check.Kind == s.Kind && check.Name == s.Name
	}
	return slices.ContainsFunc([]*mendv1.RecordRef{
		target.Machine, target.Node, target.Host, &replacement.Machine, replacement.Node, replacement.Host,
	}, func(ref *mendv1.RecordRef) bool { return ref != nil && ref.Kind == s.Kind && ref.Name == s.Name })
}

// member is an object of a scope for a time: before and after a remediation a host has other machines.
type member struct {
	// uid tells the object from others of its name; empty if it is not known.
	uid types.UID
	// from and until are when it belongs to the scope; zero if that has no beginning, or no end yet.
	from, until time.Time
}

// members are the objects whose events belong to a scope.
type members struct {
	Scope

	objects map[cliv1.Reference][]member
}

// members are the machines that the user means, and what records name. Nodes and hosts are those of records, which know their UIDs: a node
// of another cluster may have the same name.
func (s Scope) members(o *Objects) *members {
	m := &members{Scope: s, objects: map[cliv1.Reference][]member{}}
	for i := range o.Machines {
		machine := &o.Machines[i]
		if s.named(nodeKind, "", machine.Status.NodeRef.Name) || s.named(clusterKind, machine.Namespace, machine.Spec.ClusterName) {
			ref := cliv1.Reference{Kind: machineKind, Namespace: machine.Namespace, Name: machine.Name}
			m.objects[ref] = append(m.objects[ref], member{uid: machine.UID})
		}
	}
	for _, record := range o.Records {
		m.addRecord(record)
	}
	return m
}

// addRecord adds what a record is about: its machine, requests and check for good, its node and host for the time of the remediation.
func (m *members) addRecord(r *mendv1.RemediationRecord) {
	during := member{from: r.Spec.Decided.Time}
	if since := r.Spec.UnhealthySince; since != nil {
		during.from = since.Time
	}
	if ended := r.Status.Ended; ended != nil {
		during.until = ended.Time
	}
	add := func(ref *mendv1.RecordRef, as member) {
		if ref == nil {
			return
		}
		if !records.Moved(r) {
			as.uid = types.UID(ref.UID)
		}
		object := recordRef(ref, r)
		m.objects[object] = append(m.objects[object], as)
	}
	add(r.Spec.Target.Machine, member{})
	add(r.Spec.Requester.Check, member{})
	add(r.Spec.Target.Node, during)
	add(r.Spec.Target.Host, during)
	for i := range r.Status.Requests {
		add(&r.Status.Requests[i], member{})
	}
}

// have reports whether an event belongs to the scope: by what it is about, or by what it names as related. A check has events about other
// machines too, which they name as related, and is named as related by events of all its machines.
func (m *members) have(e *event) bool {
	switch at := e.Time.Time; {
	case m.named(e.about.Kind, e.about.Namespace, e.about.Name), m.named(e.related.Kind, e.related.Namespace, e.related.Name):
		return true
	case m.has(&e.about, at) && (!e.about.isCheck() || e.related.Kind == ""):
		return true
	default:
		return m.has(&e.related, at) && !e.related.isCheck()
	}
}

// has reports whether an object belongs to the scope at a moment. A request that was deleted before there was a record of it is known by
// the name of its machine.
func (m *members) has(o *object, at time.Time) bool {
	if strings.HasSuffix(o.Kind, requestSuffix) {
		machine := cliv1.Reference{Kind: machineKind, Namespace: o.Namespace, Name: strings.TrimSuffix(o.Name, "-by-hand")}
		if len(m.objects[machine]) > 0 || m.named(machineKind, machine.Namespace, machine.Name) {
			return true
		}
	}
	return slices.ContainsFunc(m.objects[o.Reference], func(known member) bool {
		same := known.uid == "" || o.uid == "" || known.uid == o.uid
		ended := !known.until.IsZero() && at.After(known.until.Add(alike))
		return same && !ended && !at.Before(known.from.Add(-alike))
	})
}
