// Package text lays text out for a terminal: lines that are as wide as it is, moments that people can read, colour where it is wanted.
package text

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fatih/color"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
)

// widest is the width of what is no terminal: it is for a file, or for a program, and lines should not be cut short without need.
const widest = 200

// Width is how many columns out has: those of the variable COLUMNS, or of the terminal.
func Width(out io.Writer) int {
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return columns
	}
	if file, is := out.(*os.File); is {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return widest
}

// Interactive reports whether a stream is a terminal.
func Interactive(stream any) bool {
	file, is := stream.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// narrowest is the room that text is given however deep it is indented.
const narrowest = 20

// Wrap breaks the lines of s between words, so that none is longer than width with first in front of the first one and as many spaces in front
// of all others. A word that does not fit is not broken: it may be a name that somebody wants to copy.
func Wrap(s, first string, width int) string {
	indent := strings.Repeat(" ", utf8.RuneCountInString(first))
	room := max(width-len(indent), narrowest)
	var lines []string
	for paragraph := range strings.SplitSeq(s, "\n") {
		own := paragraph[:len(paragraph)-len(strings.TrimLeft(paragraph, " "))]
		line := own
		for i, word := range strings.Fields(paragraph) {
			switch {
			case i == 0:
				line += word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > room:
				lines = append(lines, line)
				line = own + word
			default:
				line += " " + word
			}
		}
		lines = append(lines, line)
	}
	return first + strings.Join(lines, "\n"+indent)
}

// Moment is at as a person reads it at now: the time of day, with the date if it is another day, and how far away it is. It is in the zone of now.
func Moment(at, now time.Time) string {
	at = at.In(now.Location())
	layout := time.TimeOnly
	if at.Format(time.DateOnly) != now.Format(time.DateOnly) {
		layout = time.DateTime
	}
	return at.Format(layout) + " (" + Away(at, now) + ")"
}

// Away is how far at is from now: "in 3m10s", "5m ago", "now".
func Away(at, now time.Time) string {
	switch away := at.Sub(now).Round(time.Second); {
	case away > 0:
		return "in " + duration.HumanDuration(away)
	case away < 0:
		return duration.HumanDuration(-away) + " ago"
	}
	return "now"
}

// Painter colours text. The zero one does not.
type Painter struct{ on bool }

// NewPainter returns one that colours what goes to out if that is a terminal, unless NO_COLOR is set. (https://no-color.org)
func NewPainter(out io.Writer) Painter {
	return Painter{on: Interactive(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Good is what is well.
func (p Painter) Good(s string) string { return p.paint(s, color.FgGreen) }

// Bad is what is wrong.
func (p Painter) Bad(s string) string { return p.paint(s, color.FgRed) }

// Doubtful is what may become wrong, or is not known.
func (p Painter) Doubtful(s string) string { return p.paint(s, color.FgYellow) }

// Strong is what a reader looks for.
func (p Painter) Strong(s string) string { return p.paint(s, color.Bold) }

func (p Painter) paint(s string, as color.Attribute) string {
	if !p.on {
		return s
	}
	c := color.New(as)
	c.EnableColor()
	return c.Sprint(s)
}
