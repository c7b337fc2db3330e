package history

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// roomy is the width from which objects and messages are printed beside the other columns. On a narrower terminal they are below.
const roomy = 120

// Print writes the time, type, reason, object and message of each entry. With Wide each entry is one line.
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

// lanes are the columns of a drawing: the objects that a remediation acts on.
var lanes = []string{"check", "host", "node", "owner"}

// laneOf returns the index of the lane of an entry, by its reason or by the kind of its object.
func laneOf(e *cliv1.HistoryEntry) int {
	ofCheck := append([]string{decidedReason, mendv1.EventMachineMarkedUnhealthy, mendv1.EventMachineHealthy}, outcomes...)
	ofNode := []string{string(powercycle.FencedReason), string(powercycle.MovingWorkload)}
	lane := "owner" // of a Machine or its owner
	switch kind := e.Object.Kind; {
	case kind == machineCheckKind, kind == nodeCheckKind, slices.Contains(ofCheck, e.Reason):
		lane = "check"
	case kind == nodeKind, kind == "Pod", kind == "VolumeAttachment", slices.Contains(ofNode, e.Reason):
		lane = "node"
	case kind == hostKind, strings.HasSuffix(kind, requestSuffix):
		lane = "host"
	}
	return slices.Index(lanes, lane)
}

// The sizes of a drawing, in pixels, and the number of characters of a sentence that fit. The tooltip has the whole sentence.
const (
	laneStart = 240
	laneWidth = 70
	rowHeight = 26
	mostText  = 90
)

// drawing has a first row with the names of the lanes, and a row for each entry.
var drawing = template.Must(template.New("svg").Funcs(template.FuncMap{"xml": escaped}).Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}">
<style>text{font:13px sans-serif;dominant-baseline:middle}.lane{font-weight:bold;text-anchor:middle}.Warning{fill:#b00020}
line{stroke:#ccc}polyline{fill:none;stroke:#888}</style>
<rect width="100%" height="100%" fill="white"/>
{{range .Lanes}}<text x="{{.X}}" y="{{.Y}}" class="lane">{{.Short}}</text><line x1="{{.X}}" y1="{{.Y}}" x2="{{.X}}" y2="{{$.Height}}"/>
{{end}}<polyline points="{{range .Rows}}{{.X}},{{.Y}} {{end}}"/>
{{range .Rows}}<text x="10" y="{{.Y}}">{{.When}}</text><circle cx="{{.X}}" cy="{{.Y}}" r="5" class="{{.Type}}"/>` +
		`<text x="{{$.TextStart}}" y="{{.Y}}" class="{{.Type}}">{{xml .Short}}<title>{{xml .Sentence}}</title></text>
{{end}}</svg>
`))

func escaped(s string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(s)) // a strings.Builder returns no error
	return out.String()
}

type row struct {
	X, Y                  int
	When, Short, Sentence string
	Type                  cliv1.EventType
}

// SVG draws entries as a picture for a postmortem. Time runs downwards, in UTC, and each entry is a dot in the lane of its object.
func SVG(out io.Writer, entries []cliv1.HistoryEntry) error {
	textStart := laneStart + len(lanes)*laneWidth - laneWidth/2
	picture := struct {
		Width, Height, TextStart int
		Lanes, Rows              []row
	}{Width: textStart + 7*mostText, Height: (len(entries) + 2) * rowHeight, TextStart: textStart}
	for i, name := range lanes {
		picture.Lanes = append(picture.Lanes, row{X: laneStart + i*laneWidth, Y: rowHeight / 2, Short: name})
	}
	for i := range entries {
		e := &entries[i]
		when := e.Time.UTC().Format(time.DateTime)
		if after := e.Time.Unix() - entries[max(i-1, 0)].Time.Unix(); after > 0 {
			when += " +" + (time.Duration(after) * time.Second).String()
		}
		sentence := fmt.Sprintf("%s %s/%s: %s", e.Reason, e.Object.Kind, e.Object.Name, e.Message)
		short := sentence
		if runes := []rune(sentence); len(runes) > mostText {
			short = string(runes[:mostText-1]) + "…"
		}
		x, y := laneStart+laneOf(e)*laneWidth, rowHeight*(i+1)+rowHeight/2
		picture.Rows = append(picture.Rows, row{x, y, when, short, sentence, e.Type})
	}
	return drawing.Execute(out, picture)
}
