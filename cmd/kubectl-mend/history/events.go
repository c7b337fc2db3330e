package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// ours are the names under which kubemend's controllers report.
var ours = []string{"kubemend", "NodeHealthCheck"}

// watched are the kinds of others whose events matter.
var watched = []string{machineKind, machineCheckKind, nodeCheckKind, hostKind, clusterKind, "MachineSet", "MachineDeployment", "KubeadmControlPlane"}

// ofNodes are the reasons of events about nodes that matter; kubelets tell many more.
var ofNodes = []string{"NodeNotReady", "NodeReady", "Rebooted", "DeletingNode", "RemovingNode"}

// ofSome are reasons of events about a check that concern the machines in their text, and no other.
var ofSome = []string{mendv1.EventRemediationStarted, mendv1.EventRemediationEnded, mendv1.EventRequestReleased, mendv1.EventCapacityAwaited,
	mendv1.EventCapacityLate, mendv1.EventCapacityBack, mendv1.EventCapacityNotComing}

// ofEnds are reasons of events about the end of a record.
var ofEnds = []string{mendv1.EventCapacityBack, mendv1.EventCapacityNotComing}

// told are the events within a scope, in no particular order.
func told(events []eventsv1.Event, w within) []Entry {
	var all []Entry
	for i := range events {
		if e := &events[i]; matters(e) {
			if entry := entryOf(e); concerns(w, entry) {
				all = append(all, entry)
			}
		}
	}
	return once(all)
}

// matters reports whether an event is about what this history is of.
func matters(e *eventsv1.Event) bool {
	kind := e.Regarding.Kind
	switch {
	case slices.Contains(ours, reporterOf(e)):
		return true
	case kind == nodeKind:
		return slices.Contains(ofNodes, e.Reason)
	}
	return slices.Contains(watched, kind) || strings.HasSuffix(kind, requestSuffix)
}

// concerns reports whether an entry belongs to a scope: what it is about does, or what it names.
func concerns(w within, e Entry) bool {
	switch {
	case w.all:
		return w.has(e.Object)
	case w.objects[e.Object], w.objects[e.related], w.requested(e.Object), w.covers(e):
		return true
	case w.checks[e.Object]:
		return !slices.Contains(ofSome, e.Reason) && e.related.Kind != nodeKind || w.named(e.Text)
	}
	return e.Object.Kind != machineKind && e.Object.Kind != nodeKind && e.Object.Kind != hostKind && w.named(e.Text)
}

func entryOf(e *eventsv1.Event) Entry {
	entry := Entry{
		At: e.EventTime.Time, Object: objectOf(&e.Regarding), Reason: e.Reason,
		Text:   strings.TrimPrefix(e.Note, "[remediation] "), // medik8s' mark, which all events of a NodeHealthCheck have
		Source: FromEvent, Reporter: reporterOf(e), Warning: e.Type == corev1.EventTypeWarning,
	}
	if e.Related != nil {
		entry.related = objectOf(e.Related)
	}
	// The events of client-go's older recorder have other fields.
	if entry.At.IsZero() {
		entry.At = e.DeprecatedFirstTimestamp.Time
	}
	if entry.At.IsZero() {
		entry.At = e.CreationTimestamp.Time
	}
	switch {
	case e.Series != nil:
		entry.Count, entry.Last = max(e.Series.Count, 2), e.Series.LastObservedTime.Time // a series is begun with the second one
	case e.DeprecatedCount > 1:
		entry.Count, entry.Last = e.DeprecatedCount, e.DeprecatedLastTimestamp.Time
	}
	return entry
}

func reporterOf(e *eventsv1.Event) string {
	return cmp.Or(e.ReportingController, e.DeprecatedSource.Component)
}

// objectOf names what an event is about. The namespace of what has none is that of the event, and is left out.
func objectOf(o *corev1.ObjectReference) explain.Ref {
	r := explain.Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
	if r.Kind == nodeKind || r.Kind == nodeCheckKind {
		r.Namespace = ""
	}
	return r
}

// once drops events that were sent about several objects at once: about a remediation, and about its host and machine as well.
// The one about the remediation stays.
func once(all []Entry) []Entry {
	of := byObject(pointers(all))
	return slices.DeleteFunc(slices.Clone(all), func(e Entry) bool {
		return e.related.Kind != "" && e.related != e.Object && slices.ContainsFunc(of[e.related], func(other *Entry) bool {
			return other.Reason == e.Reason && other.Text == e.Text && other.At.Sub(e.At).Abs() <= together
		})
	})
}

// together is how far apart events may be that one step has sent.
const together = 5 * time.Second
