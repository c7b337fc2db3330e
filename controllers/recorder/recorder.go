// Package recorder sends Kubernetes events. An event is a value until what it reports was saved.
package recorder

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Event is an event that has not been sent yet: a decision is reported only after it was carried out and saved.
type Event struct {
	// About is the object that the event is found under, with its kind; objects from a cache do not carry theirs.
	About client.Object
	// Related is another object that it concerns; nil if there is none.
	Related client.Object
	// Kind is Normal or Warning.
	Kind   string
	Reason string
	Action string
	Text   string
}

// Normal is an event of that kind, whose text is formatted.
func Normal(reason, action, text string, args ...any) Event {
	return Event{Kind: corev1.EventTypeNormal, Reason: reason, Action: action, Text: fmt.Sprintf(text, args...)}
}

// Warning is an event of that kind, whose text is formatted.
func Warning(reason, action, text string, args ...any) Event {
	return Event{Kind: corev1.EventTypeWarning, Reason: reason, Action: action, Text: fmt.Sprintf(text, args...)}
}

// longest is how many bytes the text of an event may have. The API server refuses an event whose text is longer. (Kubernetes, validation
// of events.k8s.io/v1.)
const longest = 1024

// RBAC: an event that is repeated is patched.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Send sends n. A text that is too long for an event is cut: it may hold what somebody else said, as long as they liked.
func Send(recorder events.EventRecorder, n Event) {
	recorder.Eventf(n.About, n.Related, n.Kind, n.Reason, n.Action, "%s", cut(n.Text))
}

func cut(text string) string {
	const more = "..."
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest-len(more)], "") + more
}
