package history

import (
	"slices"
	"strings"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// memory are the entries of records, to be found by when they are, what they are about and what they say: there are hundreds of thousands, and each event and
// each condition is looked for among them. All lists are oldest first.
type memory struct {
	of   map[explain.Ref][]*Entry
	says map[words][]*Entry
	// ends are how records have ended.
	ends []*Entry
	// quotable are the texts that an event may repeat, with when each was first said; lengths are how long those are that begin with a byte.
	quotable map[string]time.Time
	lengths  map[byte][]int
}

// words are what an entry says.
type words struct{ reason, text string }

func newMemory(recorded []Entry) memory {
	all := pointers(recorded)
	slices.SortStableFunc(all, func(a, b *Entry) int { return a.At.Compare(b.At) })
	m := memory{of: byObject(all), says: map[words][]*Entry{}, quotable: map[string]time.Time{}, lengths: map[byte][]int{}}
	for _, e := range all {
		if slices.Contains(outcomes, e.Reason) {
			m.ends = append(m.ends, e)
		}
		if e.Text != "" {
			m.says[words{e.Reason, e.Text}] = append(m.says[words{e.Reason, e.Text}], e)
		}
		if _, known := m.quotable[e.Text]; known || !telling(e.Text) {
			continue
		}
		m.quotable[e.Text] = e.At
		first := e.Text[0]
		if !slices.Contains(m.lengths[first], len(e.Text)) {
			m.lengths[first] = append(m.lengths[first], len(e.Text))
		}
	}
	return m
}

// pointers are those to all entries, which are large.
func pointers(all []Entry) []*Entry {
	to := make([]*Entry, len(all))
	for i := range all {
		to[i] = &all[i]
	}
	return to
}

// byObject are the same entries by what they are about, in the same order.
func byObject(all []*Entry) map[explain.Ref][]*Entry {
	of := map[explain.Ref][]*Entry{}
	for _, e := range all {
		of[e.Object] = append(of[e.Object], e)
	}
	return of
}

// has reports whether a record says what e does: of the same object, or in the same words of another one, such as the request of a machine.
func (m memory) has(e Entry) bool {
	about := m.of[e.Object]
	if saidBy(around(about, e.At), e) {
		return true
	}
	for _, at := range []time.Time{e.At, e.latest()} {
		switch {
		case slices.ContainsFunc(around(about, at), func(said *Entry) bool { return telling(said.Text) && strings.Contains(e.Text, said.Text) }),
			len(around(m.says[words{e.Reason, e.Text}], at)) > 0,
			slices.Contains(ofEnds, e.Reason) && len(around(m.ends, at)) > 0:
			return true
		}
	}
	return e.Reason == mendv1.EventCapacityAwaited && m.quotedBy(e)
}

// quotedBy reports whether an event repeats what a record waits for, in its words and a while later.
func (m memory) quotedBy(e Entry) bool {
	for i := range len(e.Text) {
		for _, length := range m.lengths[e.Text[i]] {
			if i+length > len(e.Text) {
				continue
			}
			if since, said := m.quotable[e.Text[i:i+length]]; said && !since.After(e.At) {
				return true
			}
		}
	}
	return false
}

// outcomes are the reasons of the last entries of a record.
var outcomes = []string{
	backReason, endedReason, string(mendv1.RecordHealed), string(mendv1.RecordReplaced), string(mendv1.RecordGone), string(mendv1.RecordGivenUp),
}

// around are those of all, which are oldest first, that may be about a change at a moment.
func around(all []*Entry, at time.Time) []*Entry {
	until := func(e *Entry, at time.Time) int { return e.At.Compare(at) }
	from, _ := slices.BinarySearchFunc(all, at.Add(-alike), until)
	n, _ := slices.BinarySearchFunc(all[from:], at.Add(alike+1), until)
	return all[from : from+n]
}

// telling reports whether a text is long enough to tell what happened.
func telling(text string) bool { return strings.Count(text, " ") >= 2 }
