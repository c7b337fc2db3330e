// Package history puts together what has happened to machines, nodes, hosts and their checks: from events, while they are kept, and from what the
// objects remember themselves.
//
// It is pure: objects go in, entries come out. Nothing in it knows where the objects are from.
package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Objects are what history is made of. What is missing is done without.
type Objects struct {
	Events     []eventsv1.Event
	Checks     []clusterv1.MachineHealthCheck
	NodeChecks []nhcv1.NodeHealthCheck
	Machines   []clusterv1.Machine
	Hosts      []bmov1alpha1.BareMetalHost
	// Requests are remediation requests of any kind.
	Requests []unstructured.Unstructured
}

// Source is where an entry is from.
type Source string

const (
	// FromEvent is what somebody has told.
	FromEvent Source = "event"
	// FromCondition is when a condition became what it is. What it was before is not remembered.
	FromCondition Source = "condition"
	// FromObject is what the rest of an object says, such as when it was made.
	FromObject Source = "object"
)

// Entry is one thing that has happened.
type Entry struct {
	// At is when; of what has happened several times, when it did first.
	At     time.Time   `json:"at"`
	Object explain.Ref `json:"object"`
	// Reason is a word, that of the event or condition.
	Reason string `json:"reason"`
	Text   string `json:"text,omitempty"`
	Source Source `json:"source"`
	// Reporter is who has told it; empty if it is not from an event.
	Reporter string `json:"reporter,omitempty"`
	// Warning says that it is not as it should be.
	Warning bool `json:"warning,omitempty"`
	// Count is how often it has happened, Last when it did last; both zero if once.
	Count int32     `json:"count,omitempty"`
	Last  time.Time `json:"last,omitzero"`

	related explain.Ref
}

// latest is when it has happened last.
func (e Entry) latest() time.Time {
	if e.Last.IsZero() {
		return e.At
	}
	return e.Last
}

// Of are the things that have happened within scope, oldest first. What an event and a condition say alike is one entry.
func Of(o Objects, s Scope) []Entry {
	w := s.within(o)
	events := told(o.Events, w)
	var remembered []Entry
	for i := range o.Machines {
		remembered = append(remembered, ofMachine(&o.Machines[i])...)
	}
	for i := range o.Checks {
		remembered = append(remembered, ofCheck(&o.Checks[i])...)
	}
	for i := range o.NodeChecks {
		remembered = append(remembered, ofNodeCheck(&o.NodeChecks[i])...)
	}
	for i := range o.Hosts {
		remembered = append(remembered, ofHost(&o.Hosts[i])...)
	}
	for i := range o.Requests {
		remembered = append(remembered, ofRequest(&o.Requests[i])...)
	}
	remembered = slices.DeleteFunc(remembered, func(e Entry) bool {
		return !w.has(e.Object) && !w.has(e.related) || saidBy(events, e)
	})
	all := slices.DeleteFunc(append(events, remembered...), func(e Entry) bool { return e.At.IsZero() || e.latest().Before(s.Since) })
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

// alike is how long after one another an event and a condition may be that are about the same change: they are two writes of one reconcile, and events
// are sent in bundles.
const alike = time.Minute

// saidBy reports whether one of the events says what e does.
func saidBy(events []Entry, e Entry) bool {
	return slices.ContainsFunc(events, func(told Entry) bool {
		near := told.At.Sub(e.At).Abs() <= alike || told.latest().Sub(e.At).Abs() <= alike
		return near && told.Object == e.Object && (told.Reason == e.Reason || e.Text != "" && mentions(told.Text, e.Text))
	})
}

// mentions reports whether a text has the other one in it, or what is left of it after it was cut to fit into an event.
func mentions(text, other string) bool {
	text = strings.TrimSuffix(text, "...")
	return strings.Contains(text, other) || len(text) > 1000 && strings.HasPrefix(other, text)
}
