// Package history lists what has happened to machines, nodes, hosts and their checks, from the steps of RemediationRecords and from events.
package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Objects are the input of a history. Any of them may be missing.
type Objects struct {
	Events []eventsv1.Event
	// Records are the records that concern the scope.
	Records []*mendv1.RemediationRecord
	// Machines are the Machines of the namespace. They show which Machines belong to a Node or a Cluster.
	Machines []clusterv1.Machine
}

// alike is how far apart an event and a step of a record about the same fact may be. Events are sent in batches, and records are written
// later.
const alike = time.Minute

// Of returns what has happened within a scope, oldest first. Of an event and a step of a record that tell the same fact, it has the one
// that says more.
func Of(o *Objects, s Scope) *cliv1.History {
	events := eventsWithin(o, s)
	entries := make([]cliv1.HistoryEntry, 0, len(events)+8*len(o.Records))
	for _, record := range o.Records {
		steps := stepsOf(record)
		all := slices.Clone(steps)
		events = slices.DeleteFunc(events, func(e event) bool {
			if !e.isOf(record) {
				return false
			}
			steps = slices.DeleteFunc(steps, e.saysMoreThan)
			return slices.ContainsFunc(all, e.saysTheSameAs)
		})
		entries = append(entries, steps...)
	}
	for i := range events {
		entries = append(entries, events[i].HistoryEntry)
	}
	entries = slices.DeleteFunc(entries, func(e cliv1.HistoryEntry) bool { return e.Time.IsZero() || latest(&e).Before(s.Since) })
	slices.SortStableFunc(entries, inOrder)
	return &cliv1.History{TypeMeta: cliv1.TypeOf("History"), Items: entries}
}

func latest(e *cliv1.HistoryEntry) time.Time {
	if e.LastTime == nil {
		return e.Time.Time
	}
	return e.LastTime.Time
}

// inOrder compares two entries by second, and within a second by rank, because some times, such as that of a decision, have no fractions.
func inOrder(a, b cliv1.HistoryEntry) int {
	if order := a.Time.Truncate(time.Second).Compare(b.Time.Truncate(time.Second)); order != 0 {
		return order
	}
	if order := rank(&a) - rank(&b); order != 0 {
		return order
	}
	if a.Source == cliv1.SourceRecord {
		return 0 // a record lists its steps in order
	}
	return a.Time.Compare(b.Time.Time)
}

// rank orders entries of one second: a machine is marked unhealthy before its remediation is decided, and a remediation ends last.
func rank(e *cliv1.HistoryEntry) int {
	switch {
	case e.Reason == mendv1.EventMachineMarkedUnhealthy:
		return 0
	case e.Source == cliv1.SourceEvent:
		return 2
	case slices.Contains(outcomes, e.Reason):
		return 3
	}
	return 1
}

// ours are the reporters of events from kubemend's controllers.
var ours = []string{"kubemend", "NodeHealthCheck"}

// watched are the kinds whose events matter also if other controllers report them.
var watched = []string{
	machineKind, machineCheckKind, nodeCheckKind, hostKind, clusterKind, "MachineSet", "MachineDeployment", "KubeadmControlPlane",
}

// ofNodes are the reasons of events about nodes that matter. Kubelets report many others.
var ofNodes = []string{"NodeNotReady", "NodeReady", "Rebooted", "DeletingNode", "RemovingNode"}

// object is an object that an event regards or relates to.
type object struct {
	cliv1.Reference
	uid types.UID
}

func (o *object) isCheck() bool { return o.Kind == machineCheckKind || o.Kind == nodeCheckKind }

// event is an entry that is made from an event.
type event struct {
	cliv1.HistoryEntry

	about, related object
}

// near reports whether an event was first or last reported about the time at.
func (e *event) near(at time.Time) bool {
	return e.Time.Sub(at).Abs() <= alike || latest(&e.HistoryEntry).Sub(at).Abs() <= alike
}

func eventsWithin(o *Objects, s Scope) []event {
	in := s.members(o)
	var events []event
	for i := range o.Events {
		if !Matters(&o.Events[i]) {
			continue
		}
		if e := eventOf(&o.Events[i]); s.Kind == "" && s.in(e.Object.Namespace) || in.have(&e) {
			events = append(events, e)
		}
	}
	return once(events)
}

// Matters reports whether an event may be in a history.
func Matters(e *eventsv1.Event) bool {
	kind := e.Regarding.Kind
	switch {
	case slices.Contains(ours, reporterOf(e)):
		return true
	case kind == nodeKind:
		return slices.Contains(ofNodes, e.Reason)
	}
	return slices.Contains(watched, kind) || strings.HasSuffix(kind, requestSuffix)
}

// eventOf returns an event as an entry, without the prefix that all notes of NodeHealthChecks have.
func eventOf(e *eventsv1.Event) event {
	r := event{about: objectOf(&e.Regarding), HistoryEntry: cliv1.HistoryEntry{
		Type: eventType(e.Type == corev1.EventTypeWarning), Reason: e.Reason, Source: cliv1.SourceEvent, Reporter: reporterOf(e),
		Message: strings.TrimPrefix(e.Note, nhcv1.EventPrefix),
	}}
	r.Object = r.about.Reference
	if e.Related != nil {
		r.related = objectOf(e.Related)
	}
	at := e.EventTime.Time // client-go's older recorder sets the deprecated fields instead
	if at.IsZero() {
		at = e.DeprecatedFirstTimestamp.Time
	}
	if at.IsZero() {
		at = e.CreationTimestamp.Time
	}
	r.Time = metav1.NewTime(at.UTC())
	switch {
	case e.Series != nil:
		// client-go begins a series with the second event.
		r.Count, r.LastTime = max(e.Series.Count, 2), cliv1.Moment(e.Series.LastObservedTime.Time)
	case e.DeprecatedCount > 1:
		r.Count, r.LastTime = e.DeprecatedCount, cliv1.Moment(e.DeprecatedLastTimestamp.Time)
	}
	return r
}

func reporterOf(e *eventsv1.Event) string {
	return cmp.Or(e.ReportingController, e.DeprecatedSource.Component)
}

// objectOf returns an object of an event. It drops the namespace of cluster-scoped kinds, which is that of the event, and the UID if it is
// the name of the node, which kubelets write there.
func objectOf(ref *corev1.ObjectReference) object {
	o := object{cliv1.Reference{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}, ref.UID}
	if o.Kind == nodeKind || o.Kind == nodeCheckKind {
		o.Namespace = ""
	}
	if string(o.uid) == o.Name {
		o.uid = ""
	}
	return o
}

// once drops the copies of an event that a controller sends for several objects: it keeps the event of the remediation, and drops those of
// its host and machine.
func once(events []event) []event {
	type fact struct {
		cliv1.Reference
		reason, message string
	}
	told := map[fact]bool{}
	for _, e := range events {
		told[fact{e.Object, e.Reason, e.Message}] = true
	}
	return slices.DeleteFunc(events, func(e event) bool {
		return e.related.Kind != "" && e.related != e.about && told[fact{e.related.Reference, e.Reason, e.Message}]
	})
}

func eventType(warning bool) cliv1.EventType {
	if warning {
		return cliv1.Warning
	}
	return cliv1.Normal
}
