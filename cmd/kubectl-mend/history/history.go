// Package history lists what has happened to machines, nodes, hosts and their checks: the steps of RemediationRecords, and events that tell
// what no step does.
package history

import (
	"slices"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
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

// near reports whether an event may be about what happened at a moment.
func (e *event) near(at time.Time) bool {
	return e.Time.Sub(at).Abs() <= alike || latest(&e.HistoryEntry).Sub(at).Abs() <= alike
}

// Of is what has happened within a scope, oldest first.
func Of(o *Objects, s Scope) *cliv1.History {
	events := eventsWithin(o, s)
	told := map[cliv1.Reference][]*event{}
	for i := range events {
		told[events[i].Object] = append(told[events[i].Object], &events[i])
	}
	entries := make([]cliv1.HistoryEntry, 0, len(events)+8*len(o.Records))
	recordsOf := map[cliv1.Reference][]*mendv1.RemediationRecord{}
	for _, record := range o.Records {
		entries = append(entries, ofRecord(record, told)...)
		for _, object := range reportedOn(record) {
			recordsOf[object] = append(recordsOf[object], record)
		}
	}
	for i := range events {
		e := &events[i]
		tells := func(record *mendv1.RemediationRecord) bool { return recordTells(record, e) }
		if !slices.ContainsFunc(recordsOf[e.Object], tells) && !slices.ContainsFunc(recordsOf[e.related.Reference], tells) {
			entries = append(entries, e.HistoryEntry)
		}
	}
	entries = slices.DeleteFunc(entries, func(e cliv1.HistoryEntry) bool { return e.Time.IsZero() || latest(&e).Before(s.Since) })
	slices.SortStableFunc(entries, inOrder)
	return &cliv1.History{TypeMeta: cliv1.TypeOf("History"), Items: entries}
}

// latest is when it has happened last.
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
