// Package history puts together what has happened to machines, nodes, hosts and their checks: from the records of remediations, from events, while they are
// kept, and from what the objects remember themselves.
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
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
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
	// Records are those that concern the scope.
	Records []mendv1.RemediationRecord
	// Now is when all of it was read: until then an open record goes.
	Now time.Time
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
	// FromRecord is what the record of a remediation says, also of what is gone.
	FromRecord Source = "record"
)

// Entry is one thing that has happened.
type Entry struct {
	// At is when; of what has happened several times, when it did first.
	At     time.Time
	Object explain.Ref
	// Reason is a word, that of the event or condition.
	Reason string
	Text   string
	Source Source
	// Reporter is who has told it; empty if it is not from an event.
	Reporter string
	// Warning says that it is not as it should be.
	Warning bool
	// Count is how often it has happened, Last when it did last; both zero if once.
	Count int32
	Last  time.Time
	// Record is the one that it is from; empty if it is from none.
	Record explain.Ref

	related explain.Ref
}

// latest is when it has happened last.
func (e *Entry) latest() time.Time {
	if e.Last.IsZero() {
		return e.At
	}
	return e.Last
}

// Of are the things that have happened within scope, oldest first. What a record, an event and a condition say alike is one entry, of the first of them.
func Of(o Objects, s Scope) []Entry {
	o.Records = slices.DeleteFunc(slices.Clone(o.Records), func(r mendv1.RemediationRecord) bool { return !s.Concerns(&r) })
	w := s.within(o)
	recorded := make([]Entry, 0, len(o.Records))
	for i := range o.Records {
		recorded = append(recorded, ofRecord(&o.Records[i])...)
	}
	records := newMemory(recorded)
	events := slices.DeleteFunc(told(o.Events, w), records.has)
	toldOf := byObject(pointers(events))
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
		return !w.has(e.Object) && !w.has(e.related) && !w.covers(e) || saidBy(toldOf[e.Object], e) || records.has(e)
	})
	all := slices.DeleteFunc(slices.Concat(recorded, events, remembered), func(e Entry) bool { return e.At.IsZero() || e.latest().Before(s.Since) })
	slices.SortStableFunc(all, inOrder)
	return all
}

// inOrder compares when two things happened. The steps of a record stay in their order, and go before what else has happened in that second.
func inOrder(a, b Entry) int {
	if order := a.At.Compare(b.At); order != 0 {
		return order
	}
	switch first, second := a.Source == FromRecord, b.Source == FromRecord; {
	case first && second:
		return cmp.Compare(a.Record.String(), b.Record.String())
	case first:
		return -1
	case second:
		return 1
	}
	return cmp.Or(cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Reason, b.Reason))
}

// alike is how long after one another an event and a condition may be that are about the same change: they are two writes of one reconcile, and events
// are sent in bundles.
const alike = time.Minute

// saidBy reports whether one of the entries, which are about what e is about, says what e does.
func saidBy(all []*Entry, e Entry) bool {
	return slices.ContainsFunc(all, func(told *Entry) bool {
		near := told.At.Sub(e.At).Abs() <= alike || told.latest().Sub(e.At).Abs() <= alike
		return near && (told.Reason == e.Reason || e.Text != "" && mentions(told.Text, e.Text))
	})
}

// mentions reports whether a text has the other one in it, or what is left of it after it was cut to fit into an event.
func mentions(text, other string) bool {
	text = strings.TrimSuffix(text, "...")
	return strings.Contains(text, other) || len(text) > 1000 && strings.HasPrefix(other, text)
}
