package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// decidedReason is the reason of the entry for the decision, which a record has in its spec and not among its steps.
const decidedReason = "RemediationDecided"

// The reasons of the last steps of records: the outcomes.
const (
	healed    = string(mendv1.RecordHealed)
	replaced  = string(mendv1.RecordReplaced)
	gone      = string(mendv1.RecordGone)
	givenUp   = string(mendv1.RecordGivenUp)
	cancelled = string(mendv1.RecordCancelled)
)

var outcomes = []string{healed, replaced, gone, givenUp, cancelled}

// toldOnce maps the reason of an event to the reasons of the steps that say the same.
var toldOnce = map[string][]string{
	mendv1.EventRemediationStarted: {decidedReason},
	nhcv1.EventRemediationCreated:  {decidedReason},
	mendv1.EventMachineHealthy:     {healed},
	mendv1.EventRemediationEnded:   {healed},
	mendv1.EventCapacityBack:       {healed, replaced},
	mendv1.EventCapacityNotComing:  {gone, givenUp, cancelled},
}

// toldBy maps the reason of a step to the reasons of events that say more: the step says what a request waits for, and the event what was
// done.
var toldBy = map[string][]powercycle.Reason{
	records.RemediatorActs:             {powercycle.PowerOffRequestedReason, powercycle.RebootRequestedReason},
	string(powercycle.PoweringOff):     {powercycle.PowerOffRequestedReason},
	string(powercycle.MovingWorkload):  {powercycle.FencedReason, powercycle.PoweredOffReason},
	string(powercycle.PoweringOn):      {powercycle.PowerOnRequestedReason},
	string(powercycle.Rebooting):       {powercycle.RebootRequestedReason},
	string(powercycle.Booting):         {powercycle.PoweredOnReason, powercycle.PoweredOnAgainReason},
	string(powercycle.RequestingOwner): {powercycle.OwnerRequestedReason},
}

// stepsOf returns the decision and the steps of a record.
func stepsOf(r *mendv1.RemediationRecord) []cliv1.HistoryEntry {
	decided := mendv1.RecordStep{Time: metav1.NewMicroTime(r.Spec.Decided.Time), Reason: decidedReason, Message: decidedOf(r)}
	target := cmp.Or(r.Spec.Target.Machine, r.Spec.Target.Node, r.Spec.Target.Host, &mendv1.RecordRef{})
	entries := make([]cliv1.HistoryEntry, 0, len(r.Status.Steps)+1)
	for _, step := range append([]mendv1.RecordStep{decided}, r.Status.Steps...) {
		if step.Reason == records.RemediationInProgress { // the other steps tell how it goes on
			continue
		}
		entries = append(entries, cliv1.HistoryEntry{
			Time: metav1.NewTime(step.Time.UTC()), Type: eventType(step.Reason == givenUp), Reason: step.Reason,
			Object: recordRef(cmp.Or(step.Object, target), r), Message: step.Message, Source: cliv1.SourceRecord,
			Record: &cliv1.Reference{Kind: "RemediationRecord", Namespace: r.Namespace, Name: r.Name},
		})
	}
	return entries
}

func decidedOf(r *mendv1.RemediationRecord) string {
	s, by := "remediation decided", r.Spec.Requester
	switch {
	case by.User != "":
		s += ", requested by " + by.User
	case by.Check != nil:
		s += " for " + by.Check.Kind + " " + by.Check.Name
	}
	if r.Spec.Cause != "" {
		s += ": " + r.Spec.Cause
	}
	return s
}

// isOf reports whether a record may tell the fact of an event. A record does not count for an object in another namespace, because its
// writer may have no rights there.
func (e *event) isOf(r *mendv1.RemediationRecord) bool {
	over := r.Status.Ended != nil && e.Time.After(r.Status.Ended.Add(alike)) // a cheap test first: there may be thousands of records
	tells := func(o *object) bool {
		return !o.isCheck() && (o.Namespace == "" || o.Namespace == r.Namespace) && names(r, o, e.Time.Time)
	}
	return !over && (tells(&e.about) || tells(&e.related))
}

func (e *event) saysMoreThan(step cliv1.HistoryEntry) bool {
	return e.near(step.Time.Time) && slices.Contains(toldBy[step.Reason], powercycle.Reason(e.Reason))
}

func (e *event) saysTheSameAs(step cliv1.HistoryEntry) bool {
	quoted := strings.Count(step.Message, " ") >= 2 && strings.Contains(e.Message, step.Message) // fewer words may match by chance
	same := quoted || step.Reason == e.Reason
	if reasons, known := toldOnce[e.Reason]; known {
		same = slices.Contains(reasons, step.Reason)
	}
	return e.near(step.Time.Time) && same
}

// recordRef returns an object that a record names. A reference without a namespace is in the namespace of the record.
func recordRef(ref *mendv1.RecordRef, r *mendv1.RemediationRecord) cliv1.Reference {
	switch ref.Kind {
	case nodeKind, nodeCheckKind, "VolumeAttachment": // cluster-scoped kinds
		return cliv1.Reference{Kind: ref.Kind, Name: ref.Name}
	}
	return cliv1.Reference{Kind: ref.Kind, Namespace: cmp.Or(ref.Namespace, r.Namespace), Name: ref.Name}
}

const (
	machineKind      = "Machine"
	nodeKind         = "Node"
	hostKind         = "BareMetalHost"
	machineCheckKind = "MachineHealthCheck"
	nodeCheckKind    = "NodeHealthCheck"
	clusterKind      = "Cluster"
)

// requestSuffix ends the kinds of remediation requests.
const requestSuffix = "Remediation"

// Scope selects what a history is about: one object with all that belongs to it, or everything in a namespace.
type Scope struct {
	// Namespace is the namespace of the object; empty for all.
	Namespace string
	// Kind and Name are those of a Machine, a Node, a BareMetalHost, a check or a Cluster; empty for everything.
	Kind, Name string
	// Since is the earliest time; zero for no limit.
	Since time.Time
}

// in reports whether a namespace is in the scope. Objects without a namespace always are.
func (s Scope) in(namespace string) bool {
	return s.Namespace == "" || namespace == "" || s.Namespace == namespace
}

// named reports whether the user has named an object. The UID does not count.
func (s Scope) named(kind, namespace, name string) bool {
	return kind == s.Kind && name == s.Name && s.in(namespace)
}

// Concerns reports whether a record belongs to the scope. It has to be fast, because there may be ten thousands of records.
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

// members are the objects that belong to a scope: the machines of the named Node or Cluster, by their UIDs, and the objects that records
// name. Nodes and hosts come only from records, which have their UIDs, because a node of another cluster may have the same name.
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

// have reports whether an event belongs to the scope, by the objects that it regards and relates to. A check counts only if the user named
// it, or if the event is about nothing else: events of a check relate to any of its machines, and events of machines to their check.
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

// has reports whether an object belongs to the scope at a time. It finds a request that was deleted before it had a record by its name,
// which is that of its machine.
func (m *members) has(o *object, at time.Time) bool {
	if strings.HasSuffix(o.Kind, requestSuffix) {
		machine := object{Reference: o.Reference}
		machine.Kind, machine.Name = machineKind, strings.TrimSuffix(o.Name, "-by-hand")
		if m.has(&machine, at) || m.named(machineKind, machine.Namespace, machine.Name) {
			return true
		}
	}
	if uid, known := m.machines[o.Reference]; known && (o.uid == "" || o.uid == uid) {
		return true
	}
	return slices.ContainsFunc(m.records, func(r *mendv1.RemediationRecord) bool { return names(r, o, at) })
}

// names reports whether a record is about an object at a time. It is always about its machine, requests and check, but about its node and
// host only during the remediation, because a host has other machines before and after.
func names(r *mendv1.RemediationRecord, o *object, at time.Time) bool {
	named := func(ref *mendv1.RecordRef) bool {
		same := ref != nil && recordRef(ref, r) == o.Reference
		return same && (ref.UID == "" || o.uid == "" || o.uid == types.UID(ref.UID) || records.Moved(r))
	}
	target, begins := &r.Spec.Target, cmp.Or(r.Spec.UnhealthySince, &r.Spec.Decided)
	during := !at.Before(begins.Add(-alike)) && (r.Status.Ended == nil || !at.After(r.Status.Ended.Add(alike)))
	return named(target.Machine) || named(r.Spec.Requester.Check) || during && (named(target.Node) || named(target.Host)) ||
		slices.ContainsFunc(r.Status.Requests, func(ref mendv1.RecordRef) bool { return named(&ref) })
}
