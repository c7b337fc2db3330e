package history

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// Layout is how entries are printed.
type Layout struct {
	// Now is what ages are counted to. Its zone is that of the times.
	Now time.Time
	// Width is that of the terminal, in columns.
	Width int
	// Wide prints the time of the first occurrence and who has told it as well.
	Wide bool
	// Namespaces prints the namespaces of the objects.
	Namespaces bool
	Paint      text.Painter
}

// roomy is from how many columns on a message stands beside the rest. Below that it is on lines of its own, since there would be no room for it.
const roomy = 140

// below is how far a message is indented that is on lines of its own.
const below = 4

// Print writes entries in the columns of kubectl events: one line for each, or several if its message is long.
func Print(out io.Writer, entries []Entry, l Layout) error {
	rows := append(make([][]string, 0, 1+len(entries)), l.headings())
	for i := range entries {
		rows = append(rows, l.cells(&entries[i]))
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], text.Columns(cell))
		}
	}
	for i, row := range rows {
		message := "MESSAGE"
		if i > 0 {
			message = entries[i-1].Text
		}
		if _, err := fmt.Fprintln(out, l.line(row, widths, message)); err != nil {
			return fmt.Errorf("print the history: %w", err)
		}
	}
	return nil
}

// line is a row with its message beside it, or below if there is no room.
func (l Layout) line(row []string, widths []int, message string) string {
	cells := make([]string, 0, len(row))
	for i, cell := range row {
		cells = append(cells, text.Pad(cell, widths[i]))
	}
	lead := strings.Join(cells, "   ")
	if l.Width >= roomy {
		return text.Hang(lead+"   ", message, text.Columns(lead)+3, l.Width)
	}
	return strings.TrimRight(text.Hang(lead, "", below, l.Width), " ") + "\n" + text.Hang(strings.Repeat(" ", below), message, below, l.Width)
}

func (l Layout) headings() []string {
	all := []string{"LAST SEEN", "TYPE", "REASON", "OBJECT"}
	if l.Namespaces {
		all = append([]string{"NAMESPACE"}, all...)
	}
	if l.Wide {
		all = append(all, "FIRST SEEN", "SOURCE")
	}
	return all
}

func (l Layout) cells(e *Entry) []string {
	kind, reason := corev1.EventTypeNormal, e.Reason
	if e.Warning {
		kind, reason = l.Paint.Bad(corev1.EventTypeWarning), l.Paint.Bad(e.Reason)
	}
	all := []string{l.lastSeen(e), kind, reason, e.Object.Kind + "/" + e.Object.Name}
	if l.Namespaces {
		all = append([]string{e.Object.Namespace}, all...)
	}
	if l.Wide {
		all = append(all, e.At.In(l.Now.Location()).Format(time.DateTime+" MST"), cmp.Or(e.Reporter, "("+string(e.Source)+")"))
	}
	return all
}

// lastSeen is how long ago e happened, and how often within how long, as kubectl events writes it.
func (l Layout) lastSeen(e *Entry) string {
	age := duration.HumanDuration(l.Now.Sub(e.latest()))
	if e.Count < 2 {
		return age
	}
	return fmt.Sprintf("%s (x%d over %s)", age, int(e.Count), duration.HumanDuration(l.Now.Sub(e.At)))
}
