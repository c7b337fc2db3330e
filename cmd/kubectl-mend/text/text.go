// Package text lays out what a person reads: it breaks long lines, and paints words where there is colour. It knows nothing of what the
// words are about.
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
	// unbound is the width of what is no terminal: long enough for one line in a file or a pipe, short enough to be read.
	unbound = 200
	// narrowest is what any text is laid out for, however narrow the terminal says that it is.
	narrowest = 40
)

// Width is for how many columns to write to out: $COLUMNS if that is a number, else what the terminal has, else 200.
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

// IsTerminal reports whether a person is at the other end of a stream.
func IsTerminal(stream any) bool {
	if screen, ok := stream.(*Screen); ok {
		stream = screen.raw
	}
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Wrap breaks s between words into lines of at most width columns. All lines but the first begin with indent spaces, which count. A word
// that is longer than a line stays whole, since it is a name to be copied. Line ends that s has are spaces: who writes a condition's
// message must not write a line like one of ours. The spaces that s begins with are kept.
func Wrap(s string, indent, width int) string {
	rest := strings.TrimLeft(s, " ")
	return Hang(s[:len(s)-len(rest)], rest, indent, width)
}

// Hang writes s behind lead, which is one line and stays as it is, and breaks it as Wrap does.
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

// Columns is how wide s is on a terminal. What paints it takes no room.
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

// Pad fills s with spaces on its right up to n columns.
func Pad(s string, n int) string { return s + strings.Repeat(" ", max(n-Columns(s), 0)) }

// Below is s with all lines but the first indented: what is printed as it came, such as an error, may have several, and none of them must
// look like one of ours.
func Below(s string) string { return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n    ") }

// oneLine is s with its line ends and tabs spelled out: a name or a reason that has some must begin neither a line nor a column like one of
// ours.
func oneLine(s string) string { return spelled.Replace(s) }

var spelled = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// Table lays rows out in columns that are as wide as their widest cell, three spaces apart. A row is one line.
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

// Widest is how wide the widest of lines is.
func Widest(lines []string) int {
	widest := 0
	for _, line := range lines {
		widest = max(widest, Columns(line))
	}
	return widest
}

// shortestName is to how many columns a name may be cut: three of them fit beside the numbers of a report in 80 columns.
const shortestName = 7

// Fit is Table in lines of at most width columns: the names in the first columns are cut in the middle, about as much in
// each, where the table is wider than that.
func Fit(rows [][]string, names, width int) []string {
	lines := Table(rows)
	for cut := 0; cut < 2*names && Widest(lines) > width; cut++ { // again, if one of them was too short to be cut as much
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

// FirstOf are the first names of at most so many, and how many more there are.
func FirstOf(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Capital is s with a capital at its beginning.
func Capital(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[size:]
}

// Clock is at as a person reads it at now: the time of day, with the date if it is another day. It is in the zone of now.
func Clock(at, now time.Time) string {
	at = at.In(now.Location())
	if at.Format(time.DateOnly) != now.Format(time.DateOnly) {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}

// Moment is Clock, and how far away it is.
func Moment(at, now time.Time) string { return Clock(at, now) + " (" + Away(at, now) + ")" }

// Away is how far at is from now, as kubectl writes ages: "in 3m10s", "5m ago", "now".
func Away(at, now time.Time) string {
	switch away := at.Sub(now).Round(time.Second); {
	case away > 0:
		return "in " + duration.HumanDuration(away)
	case away < 0:
		return duration.HumanDuration(-away) + " ago"
	}
	return "now"
}
