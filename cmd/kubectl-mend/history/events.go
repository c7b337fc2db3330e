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

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

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

// eventsWithin are the events of a scope, in no particular order.
func eventsWithin(o *Objects, s Scope) []event {
	in := s.members(o)
	var events []event
	for i := range o.Events {
		if !matters(&o.Events[i]) {
			continue
		}
		if e := eventOf(&o.Events[i]); s.Kind == "" && s.in(e.Object.Namespace) || in.have(&e) {
			events = append(events, e)
		}
	}
	return once(events)
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

// eventType is that of a warning, or of what is none.
func eventType(warning bool) cliv1.EventType {
	if warning {
		return cliv1.Warning
	}
	return cliv1.Normal
}
