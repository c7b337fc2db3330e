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

// roomy is from how many columns on there is room for objects and messages beside the rest. On fewer they are below it.
const roomy = 120

// Print writes when each entry happened, its reason, its object and its message. With Wide all of that is one line.
func Print(out io.Writer, entries []cliv1.HistoryEntry, l text.Layout) error {
	heading := "TIME"
	if l.UTC || l.Wide {
		heading = "TIME (UTC)"
	}
	head := []string{heading, "TYPE", "REASON"}
	if l.Wide {
		head = append(head, "NAMESPACE", "OBJECT", "SOURCE", "MESSAGE")
	}
	rows, below := append(make([][]string, 0, 1+len(entries)), head), append(make([]string, 0, 1+len(entries)), "OBJECT: MESSAGE")
	for i := range entries {
		e := &entries[i]
		row, object := []string{when(e, l), string(e.Type), e.Reason}, e.Object.Kind+"/"+e.Object.Name
		if e.Type == cliv1.Warning {
			row[1], row[2] = l.Paint.Bad(row[1]), l.Paint.Bad(row[2])
		}
		if l.Wide {
			source := cmp.Or(e.Reporter, "("+strings.ToLower(string(e.Source))+")")
			row = append(row, e.Object.Namespace, object, source, strings.Join(strings.Fields(e.Message), " "))
		} else if l.Namespaces {
			object = strings.TrimSpace(e.Object.Namespace + " " + object)
		}
		rows, below = append(rows, row), append(below, object+": "+e.Message)
	}
	p, leads := text.Page{}, text.Table(rows)
	beside := text.Widest(leads) + 3
	for i, line := range leads {
		if !l.Wide && l.Width >= roomy {
			line = text.Hang(text.Pad(line, beside), below[i], beside, l.Width)
		} else if !l.Wide {
			line += "\n" + text.Hang("    ", below[i], 4, l.Width)
		}
		p.Add(line)
	}
	return p.Print(out)
}

// when is when e happened first, and how often within how long.
func when(e *cliv1.HistoryEntry, l text.Layout) string {
	first := text.Clock(e.Time.Time, l.Now)
	if l.UTC || l.Wide {
		first = e.Time.UTC().Format(time.DateTime)
	}
	if e.Count < 2 {
		return first
	}
	return fmt.Sprintf("%s (x%d in %s)", first, e.Count, duration.HumanDuration(latest(e).Sub(e.Time.Time)))
}
