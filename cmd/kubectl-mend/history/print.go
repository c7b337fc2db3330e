package history

import (
	"cmp"
	"fmt"
	"io"
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

const (
	// roomy is from how many columns on there is room for messages beside the rest. On fewer they are below it, behind their objects.
	roomy = 140
	// below is how far they are indented there.
	below = 4
	// unbroken is a width at which no line is broken.
	unbroken = 1 << 20
)

// Print writes one line for each entry, or several if its message is long.
func Print(out io.Writer, entries []cliv1.HistoryEntry, l Layout) error {
	heading := "TIME"
	if l.UTC || l.Wide {
		heading = "TIME (UTC)"
	}
	head, message := l.cells("NAMESPACE", heading, "TYPE", "REASON", "OBJECT", "SOURCE", "MESSAGE")
	rows, messages := append(make([][]string, 0, 1+len(entries)), head), append(make([]string, 0, 1+len(entries)), message)
	for i := range entries {
		e := &entries[i]
		kind, reason := string(e.Type), e.Reason
		if e.Type == cliv1.Warning {
			kind, reason = l.Paint.Bad(kind), l.Paint.Bad(reason)
		}
		source := cmp.Or(e.Reporter, "("+strings.ToLower(string(e.Source))+")")
		row, message := l.cells(e.Object.Namespace, l.when(e), kind, reason, e.Object.Kind+"/"+e.Object.Name, source, e.Message)
		rows, messages = append(rows, row), append(messages, message)
	}
	leads := text.Table(rows)
	first := text.Widest(leads) + 3
	for i, lead := range leads {
		line := lead + "\n" + text.Hang(strings.Repeat(" ", below), messages[i], below, l.Width)
		switch {
		case l.Width >= roomy:
			line = text.Hang(text.Pad(lead, first), messages[i], first, l.Width)
		case l.Wide:
			line = text.Hang(text.Pad(lead, first), messages[i], first, unbroken)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("print the history: %w", err)
		}
	}
	return nil
}

// cells are those of one row, and the message beside or below it.
func (l Layout) cells(namespace, when, kind, reason, object, source, message string) (row []string, beside string) {
	row = []string{when, kind, reason}
	if !l.Namespaces {
		namespace = ""
	}
	if !l.Wide && l.Width < roomy {
		return row, strings.TrimSpace(namespace+" "+object) + ": " + message
	}
	row = append(row, object)
	if l.Namespaces {
		row = append([]string{namespace}, row...)
	}
	if l.Wide {
		row = append(row, source)
	}
	return row, message
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
