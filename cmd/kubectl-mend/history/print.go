package history

import (
	"fmt"
	"io"
	"time"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Layout is how entries are printed.
type Layout struct {
	// Width is that of the terminal, in columns.
	Width int
	// Zone is that of the times.
	Zone *time.Location
	// Wide prints who has told it as well.
	Wide  bool
	Paint text.Painter
}

// roomy is from how many columns on objects and reasons stand under one another. Below that there would be no room for the text.
const roomy = 140

// Print writes one line for each entry, or several if its text is long.
func Print(out io.Writer, entries []Entry, l Layout) error {
	objects, reasons, reporters := 0, 0, 0
	if l.Width >= roomy {
		for _, e := range entries {
			objects, reasons = max(objects, text.Columns(e.Object.String())), max(reasons, text.Columns(e.Reason))
			reporters = max(reporters, text.Columns(reporter(e)))
		}
	}
	for _, e := range entries {
		at := e.At.In(l.Zone).Format(time.RFC3339)
		line := text.Pad(e.Object.String(), objects)
		reason := l.Paint.Strong(e.Reason)
		if e.Warning {
			reason = l.Paint.Bad(e.Reason)
		}
		lead := l.Paint.Faint(at) + "  " + line + "  " + text.Pad(reason, reasons)
		if l.Wide {
			lead += "  " + text.Pad(reporter(e), reporters)
		}
		indent := text.Columns(at) + 2
		if l.Width >= roomy {
			indent = text.Columns(lead) + 2
		}
		if _, err := fmt.Fprintln(out, text.Hang(lead+"  ", e.Text+repeated(e, l.Zone), indent, l.Width)); err != nil {
			return fmt.Errorf("print the history: %w", err)
		}
	}
	return nil
}

// reporter is who has told an entry, or where it was found.
func reporter(e Entry) string {
	if e.Reporter == "" {
		return "(" + string(e.Source) + ")"
	}
	return e.Reporter
}

// repeated says how often something has happened that has more than once.
func repeated(e Entry, zone *time.Location) string {
	if e.Count < 2 {
		return ""
	}
	return explain.Repeated(int(e.Count), e.Last.In(zone))
}
