package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// Layout is how entries are printed.
type Layout struct {
	// Now is when it is printed: its zone is that of the times, and what happened on another day has a date.
	Now time.Time
	// Width is that of the terminal, in columns.
	Width int
	// UTC prints dates and times in UTC, Wide also who has told it.
	UTC, Wide bool
	// Namespaces prints the namespaces of the objects.
	Namespaces bool
	Paint      text.Painter
}

// roomy is from how many columns on a message stands beside the rest. Below that it is on lines of its own, since there would be no room
// for it.
const roomy = 140

// below is how far a message is indented that is on lines of its own.
const below = 4

// Print writes one line for each entry, or several if its message is long.
func Print(out io.Writer, entries []cliv1.HistoryEntry, l Layout) error {
	rows, messages := append(make([][]string, 0, 1+len(entries)), l.headings()), append(make([]string, 0, 1+len(entries)), "MESSAGE")
	for i := range entries {
		rows, messages = append(rows, l.cells(&entries[i])), append(messages, entries[i].Message)
	}
	leads := text.Table(rows)
	if !l.Wide && text.Widest(leads) > l.Width { // the object stands before the message, with its namespace
		for i, row := range rows {
			object := len(row) - 1
			messages[i] = strings.Join(slices.Concat(row[:object-3], row[object:]), " ") + ": " + messages[i]
			rows[i] = row[object-3 : object]
		}
		leads = text.Table(rows)
	}
	width := text.Widest(leads)
	for i, lead := range leads {
		line := lead + "\n" + text.Hang(strings.Repeat(" ", below), messages[i], below, l.Width)
		if l.Width >= roomy {
			line = text.Hang(text.Pad(lead, width)+"   ", messages[i], width+3, l.Width)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("print the history: %w", err)
		}
	}
	return nil
}

func (l Layout) headings() []string {
	heads := []string{"TIME", "TYPE", "REASON", "OBJECT"}
	if l.UTC || l.Wide {
		heads[0] = "TIME (UTC)"
	}
	if l.Namespaces {
		heads = append([]string{"NAMESPACE"}, heads...)
	}
	if l.Wide {
		heads = append(heads, "SOURCE")
	}
	return heads
}

func (l Layout) cells(e *cliv1.HistoryEntry) []string {
	kind, reason := string(e.Type), e.Reason
	if e.Type == cliv1.Warning {
		kind, reason = l.Paint.Bad(kind), l.Paint.Bad(reason)
	}
	cells := []string{l.when(e), kind, reason, e.Object.Kind + "/" + e.Object.Name}
	if l.Namespaces {
		cells = append([]string{e.Object.Namespace}, cells...)
	}
	if l.Wide {
		cells = append(cells, cmp.Or(e.Reporter, "("+strings.ToLower(string(e.Source))+")"))
	}
	return cells
}

// when is when e happened first, and how often within how long.
func (l Layout) when(e *cliv1.HistoryEntry) string {
	when := text.Clock(e.Time.Time, l.Now)
	if l.UTC || l.Wide {
		when = e.Time.UTC().Format(time.DateTime)
	}
	if e.Count < 2 {
		return when
	}
	return fmt.Sprintf("%s (x%d in %s)", when, e.Count, duration.HumanDuration(latest(e).Sub(e.Time.Time)))
}
