// Package history lists what has happened to machines, nodes, hosts and their checks: the steps of RemediationRecords, and events that tell
// what no step does.
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

// Objects are what a history is made of. What is missing is done without.
type Objects struct {
	Events []eventsv1.Event
	// Records are those that concern the scope.
	Records []*mendv1.RemediationRecord
	// Machines are those of the namespace, by which those of a Node or a Cluster are found.
	Machines []clusterv1.Machine
}

// alike is how far apart an event and a step of a record may be that are about the same fact: events are sent in bundles, records are
// written later.
const alike = time.Minute

// Of is what has happened within a scope, oldest first.
func Of(o *Objects, s Scope) *cliv1.History {
	events := eventsWithin(o, s)
	told := map[cliv1.Reference][]*event{}
	for i := range events {
		told[events[i].Object] = append(told[events[i].Object], &events[i])
		if related := events[i].related.Reference; related != events[i].Object { // a power cycle says on the host what is asked of that
			told[related] = append(told[related], &events[i])
		}
	}
	entries := make([]cliv1.HistoryEntry, 0, len(events)+8*len(o.Records))
	for _, record := range o.Records {
		entries = append(entries, ofRecord(record, told)...)
	}
	for i := range events {
		e := &events[i]
		if !slices.ContainsFunc(o.Records, func(record *mendv1.RemediationRecord) bool { return recordTells(record, e) }) {
			entries = append(entries, e.HistoryEntry)
		}
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

// inOrder compares when two things happened. Of one second, records know no more: a machine is marked before its remediation is decided,
// and a remediation ends last.
func inOrder(a, b cliv1.HistoryEntry) int {
	if order := a.Time.Truncate(time.Second).Compare(b.Time.Truncate(time.Second)); order != 0 {
		return order
	}
	if order := rank(&a) - rank(&b); order != 0 {
		return order
	}
	if a.Source == cliv1.SourceRecord {
		return 0 // the steps of a record are in their order
	}
	return a.Time.Compare(b.Time.Time)
}

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

// ours are the names under which kubemend's controllers report.
var ours = []string{"kubemend", "NodeHealthCheck"}

// watched are the kinds of others whose events matter.
var watched = []string{
	machineKind, machineCheckKind, nodeCheckKind, hostKind, clusterKind, "MachineSet", "MachineDeployment", "KubeadmControlPlane",
}

// ofNodes are the reasons of events about nodes that matter; kubelets tell many more.
var ofNodes = []string{"NodeNotReady", "NodeReady", "Rebooted", "DeletingNode", "RemovingNode"}

// object is what an event is about.
type object struct {
	cliv1.Reference
	uid types.UID
}

func (o *object) isCheck() bool { return o.Kind == machineCheckKind || o.Kind == nodeCheckKind }

// event is an entry that is from an event.
type event struct {
	cliv1.HistoryEntry

	about, related object
}

// near reports whether an event may be about what happened at a moment.
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

// Matters reports whether an event may be in a history. The notes of others are theirs.
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

// eventOf is an event as an entry. The prefix of all notes of NodeHealthChecks is left out.
func eventOf(e *eventsv1.Event) event {
	r := event{about: objectOf(&e.Regarding), HistoryEntry: cliv1.HistoryEntry{
		Type: eventType(e.Type == corev1.EventTypeWarning), Reason: e.Reason, Source: cliv1.SourceEvent, Reporter: reporterOf(e),
		Message: strings.TrimPrefix(e.Note, nhcv1.EventPrefix),
	}}
	r.Object = r.about.Reference
	if e.Related != nil {
		r.related = objectOf(e.Related)
	}
	// The events of client-go's older recorder have other fields.
	at := e.EventTime.Time
	if at.IsZero() {
		at = e.DeprecatedFirstTimestamp.Time
	}
	if at.IsZero() {
		at = e.CreationTimestamp.Time
	}
	r.Time = metav1.NewTime(at.UTC())
	switch {
	case e.Series != nil:
		// A series is begun with the second one.
		r.Count, r.LastTime = max(e.Series.Count, 2), cliv1.Moment(e.Series.LastObservedTime.Time)
	case e.DeprecatedCount > 1:
		r.Count, r.LastTime = e.DeprecatedCount, cliv1.Moment(e.DeprecatedLastTimestamp.Time)
	}
	return r
}

func reporterOf(e *eventsv1.Event) string {
	return cmp.Or(e.ReportingController, e.DeprecatedSource.Component)
}

// objectOf names what an event is about. The namespace of what has none is that of the event, and is left out. Kubelets write the name of
// their node as its UID.
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

// together is how far apart events may be that one step has sent.
const together = 5 * time.Second

// once drops events that were sent about several objects at once: about a remediation, and about its host and machine as well.
// The one about the remediation stays.
func once(events []event) []event {
	told := map[cliv1.Reference][]event{}
	for _, e := range events {
		told[e.Object] = append(told[e.Object], e)
	}
	return slices.DeleteFunc(events, func(e event) bool {
		return e.related.Kind != "" && e.related != e.about && slices.ContainsFunc(told[e.related.Reference], func(other event) bool {
			return other.Reason == e.Reason && other.Message == e.Message && other.Time.Sub(e.Time.Time).Abs() <= together
		})
	})
}

func eventType(warning bool) cliv1.EventType {
	if warning {
		return cliv1.Warning
	}
	return cliv1.Normal
}
