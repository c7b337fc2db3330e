// Package recorder sends Kubernetes events.
package recorder

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Event is an event that has not been sent yet: a controller reports a decision only after it has saved the result.
type Event struct {
	// About is the regarding object, with its kind set.
	About client.Object
	// Related is another object that the event concerns; nil if there is none.
	Related client.Object
	// Kind is Normal or Warning.
	Kind   string
	Reason string
	Action string
	Text   string
}

// Normal returns an event of type Normal. text is a format.
func Normal(reason, action, text string, args ...any) Event {
	return Event{Kind: corev1.EventTypeNormal, Reason: reason, Action: action, Text: fmt.Sprintf(text, args...)}
}

// Warning returns an event of type Warning. text is a format.
func Warning(reason, action, text string, args ...any) Event {
	return Event{Kind: corev1.EventTypeWarning, Reason: reason, Action: action, Text: fmt.Sprintf(text, args...)}
}

// longest is the maximum length of the text of an event in bytes. The API server rejects longer texts. (Kubernetes, validation of
// events.k8s.io/v1.)
const longest = 1024

// RBAC: client-go patches an event that is repeated.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Send sends n. It truncates a text that is too long, because texts may quote messages of other programs.
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
