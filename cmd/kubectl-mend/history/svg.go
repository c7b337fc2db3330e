package history

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// lanes are the columns of a drawing: what the steps of a remediation happen to.
var lanes = []string{"check", "host", "node", "owner"}

// laneOf is the index of the lane of an entry: by its reason where a check decides it, else by the kind of its object.
func laneOf(e *cliv1.HistoryEntry) int {
	ofCheck := append([]string{decidedReason, mendv1.EventMachineMarkedUnhealthy, mendv1.EventMachineHealthy}, outcomes...)
	ofNode := []string{string(powercycle.FencedReason), string(powercycle.MovingWorkload)}
	lane := "owner" // of a Machine, or of what makes it
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

// The sizes of a drawing, in pixels, and how many characters of a sentence fit: its whole is the tooltip.
const (
	laneStart = 240
	laneWidth = 70
	rowHeight = 26
	mostText  = 90
)

// drawing has the names of the lanes in its first row, and each entry in a row of its own.
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
	_ = xml.EscapeText(&out, []byte(s)) // a strings.Builder takes all
	return out.String()
}

type row struct {
	X, Y                  int
	When, Short, Sentence string
	Type                  cliv1.EventType
}

// SVG draws entries as a picture for a postmortem: time runs downwards, in UTC, and each fact is a dot in the lane of what it happened to.
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
		picture.Rows = append(picture.Rows, row{laneStart + laneOf(e)*laneWidth, rowHeight*(i+1) + rowHeight/2, when, short, sentence, e.Type})
	}
	return drawing.Execute(out, picture)
}
