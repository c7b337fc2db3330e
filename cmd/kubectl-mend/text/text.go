// Package text lays out text for a person: it wraps long lines, aligns columns and colours words. It knows nothing about their content.
package text

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// unbound is the width of files and pipes: wide enough for most lines, narrow enough to read.
	unbound = 200
	// narrowest is the minimum width, also on a narrower terminal.
	narrowest = 40
)

// Width returns how many columns to write to out: $COLUMNS if that is a number, else the width of the terminal, else 200; but at least 40.
func Width(out io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return max(n, narrowest)
	}
	if file, ok := Raw(out).(*os.File); ok {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return max(n, narrowest)
		}
	}
	return unbound
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	if screen, ok := stream.(*Screen); ok {
		stream = screen.raw
	}
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Wrap breaks s between words into lines of at most width columns, including the indent of all lines but the first. It does not cut a word
// that is longer than a line, because a user may want to copy a name. It replaces line ends in s by spaces, so that the message of a
// condition cannot fake a line of the page. It keeps the spaces at the beginning of s.
func Wrap(s string, indent, width int) string {
	rest := strings.TrimLeft(s, " ")
	return Hang(s[:len(s)-len(rest)], rest, indent, width)
}

// Hang returns lead followed by s, which it breaks like Wrap. It does not break lead.
func Hang(lead, s string, indent, width int) string {
	var lines []string
	line, between := oneLine(lead), ""
	column := Columns(line)
	for word := range strings.FieldsSeq(s) {
		room := Columns(word)
		if column+len(between)+room > width && column > indent {
			lines = append(lines, strings.TrimRight(line, " "))
			line, between, column = strings.Repeat(" ", indent), "", indent
		}
		line += between + word
		column += len(between) + room
		between = " "
	}
	return strings.Join(append(lines, strings.TrimRight(line, " ")), "\n")
}

// Columns returns how wide s is on a terminal, not counting escape sequences for colours.
func Columns(s string) int {
	n := 0
	for {
		before, rest, painted := strings.Cut(s, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !painted {
			return n
		}
		_, s, _ = strings.Cut(rest, "m")
	}
}

// Pad appends spaces to s up to n columns.
func Pad(s string, n int) string { return s + strings.Repeat(" ", max(n-Columns(s), 0)) }

// Below indents all lines of s but the first, so that an error of several lines cannot fake a line of the page.
func Below(s string) string { return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n    ") }

// oneLine escapes line ends and tabs in s, so that a name or a reason cannot fake a line or a column of the page.
func oneLine(s string) string { return spelled.Replace(s) }

var spelled = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// Table returns a line for each row, with columns as wide as their widest cell, three spaces apart.
func Table(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Columns(oneLine(cell)))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = oneLine(cell)
			if i < len(row)-1 {
				cell = Pad(cell, widths[i]+3)
			}
			line.WriteString(cell)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// Widest returns the width of the widest line.
func Widest(lines []string) int {
	widest := 0
	for _, line := range lines {
		widest = max(widest, Columns(line))
	}
	return widest
}

// shortestName is the shortest width to which Fit cuts a name: three such names fit beside the numbers of a report in 80 columns.
const shortestName = 7

// Fit returns a Table of at most width columns. If the table is too wide, Fit cuts the names in the first columns in their middle, by about
// the same length in each column.
func Fit(rows [][]string, names, width int) []string {
	lines := Table(rows)
	for cut := 0; cut < 2*names && Widest(lines) > width; cut++ { // twice, because a column may be too short for its part of the cut
		column, longest := cut%names, 0
		for _, row := range rows {
			longest = max(longest, Columns(oneLine(row[column])))
		}
		room := max(longest-(Widest(lines)-width)/max(names-cut, 1), shortestName)
		shorter := make([][]string, 0, len(rows))
		for _, row := range rows {
			if name := []rune(oneLine(row[column])); len(name) > room {
				row = slices.Clone(row)
				row[column] = string(name[:room/2]) + "…" + string(name[len(name)-(room-1)/2:])
			}
			shorter = append(shorter, row)
		}
		rows, lines = shorter, Table(shorter)
	}
	return lines
}

// FirstOf joins at most `most` names, and says how many more there are.
func FirstOf(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Capital returns s with a capital first letter.
func Capital(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[size:]
}

// Clock formats at in the zone of now: the time of day, with the date if that is another day than now.
func Clock(at, now time.Time) string {
	at = at.In(now.Location())
	if at.Format(time.DateOnly) != now.Format(time.DateOnly) {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}

// Moment returns Clock followed by Away in parentheses.
func Moment(at, now time.Time) string { return Clock(at, now) + " (" + Away(at, now) + ")" }

// Away returns how far at is from now, in kubectl's format of ages: "in 3m10s", "5m ago", "now".
func Away(at, now time.Time) string {
	switch away := at.Sub(now).Round(time.Second); {
	case away > 0:
		return "in " + duration.HumanDuration(away)
	case away < 0:
		return duration.HumanDuration(-away) + " ago"
	}
	return "now"
}
