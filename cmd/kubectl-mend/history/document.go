package history

import (
	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/document"
)

// sources are where entries are from.
var sources = map[Source]cliv1.Source{
	FromEvent: cliv1.SourceEvent, FromCondition: cliv1.SourceCondition, FromObject: cliv1.SourceObject, FromRecord: cliv1.SourceRecord,
}

// Document are entries for programs, with what could not be read.
func Document(entries []Entry, readErrors []string) *cliv1.History {
	d := &cliv1.History{TypeMeta: cliv1.TypeOf("History"), Items: make([]cliv1.HistoryEntry, 0, len(entries)), ReadErrors: readErrors}
	for i := range entries {
		e := &entries[i]
		d.Items = append(d.Items, cliv1.HistoryEntry{
			Time: document.Time(e.At), LastTime: document.Moment(e.Last), Count: e.Count, Type: document.EventType(e.Warning), Reason: e.Reason,
			Object: document.Reference(e.Object), Source: sources[e.Source], Reporter: e.Reporter, Message: e.Text, Record: document.Optional(e.Record),
		})
	}
	return d
}
