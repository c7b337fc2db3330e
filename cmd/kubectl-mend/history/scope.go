package history

import (
	"cmp"
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

// members tell which objects belong to a scope: the machines that the user means, by their UIDs, and what records name. Nodes and hosts are
// those of records, which know their UIDs: a node of another cluster may have the same name.
type members struct {
	Scope

	machines map[cliv1.Reference]types.UID
	records  []*mendv1.RemediationRecord
}

func (s Scope) members(o *Objects) *members {
	m := &members{Scope: s, machines: map[cliv1.Reference]types.UID{}, records: o.Records}
	for i := range o.Machines {
		machine := &o.Machines[i]
		if s.named(nodeKind, "", machine.Status.NodeRef.Name) || s.named(clusterKind, machine.Namespace, machine.Spec.ClusterName) {
			m.machines[cliv1.Reference{Kind: machineKind, Namespace: machine.Namespace, Name: machine.Name}] = machine.UID
		}
	}
	return m
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
		machine := object{Reference: cliv1.Reference{Kind: machineKind, Namespace: o.Namespace, Name: strings.TrimSuffix(o.Name, "-by-hand")}}
		if m.has(&machine, at) || m.named(machineKind, machine.Namespace, machine.Name) {
			return true
		}
	}
	if uid, known := m.machines[o.Reference]; known && (o.uid == "" || o.uid == uid) {
		return true
	}
	return slices.ContainsFunc(m.records, func(r *mendv1.RemediationRecord) bool { return names(r, o, at) })
}

// names reports whether a record is about an object at a moment: about its machine, requests and check for good, about its node and host for
// the time of the remediation, since before and after it a host has other machines.
func names(r *mendv1.RemediationRecord, o *object, at time.Time) bool {
	named := func(ref *mendv1.RecordRef) bool {
		return ref != nil && recordRef(ref, r) == o.Reference && (o.uid == "" || o.uid == types.UID(ref.UID) || records.Moved(r))
	}
	target, begins := &r.Spec.Target, cmp.Or(r.Spec.UnhealthySince, &r.Spec.Decided)
	during := !at.Before(begins.Add(-alike)) && (r.Status.Ended == nil || !at.After(r.Status.Ended.Add(alike)))
	return named(target.Machine) || named(r.Spec.Requester.Check) || during && (named(target.Node) || named(target.Host)) ||
		slices.ContainsFunc(r.Status.Requests, func(ref mendv1.RecordRef) bool { return named(&ref) })
}
