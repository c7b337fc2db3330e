// Package text lays out text for a person: it wraps long lines, aligns columns and colours words. It knows nothing about their content.
package text

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
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

// Layout is how a page is printed.
type Layout struct {
	// Now is when the page is printed. Times are printed in its zone, with a date if they are on another day.
	Now time.Time
	// Width is that of the terminal, in columns.
	Width int
	Paint Painter
	// Wide prints all columns, even if lines get longer than Width. UTC prints dates and times in UTC.
	Wide, UTC bool
	// Namespaces prints the namespaces of objects.
	Namespaces bool
	// NotOK prints only the checks that are not OK.
	NotOK bool
}

// Page is a page that is being laid out.
type Page struct {
	Layout

	lines []string
}

// Add adds lines without wrapping them.
func (p *Page) Add(lines ...string) { p.lines = append(p.lines, lines...) }

// Hang adds lead and s, wrapped by the function Hang.
func (p *Page) Hang(lead, s string, indent int) {
	p.Add(strings.Split(Hang(lead, s, indent, p.Width), "\n")...)
}

// Heading adds an empty line and a heading.
func (p *Page) Heading(s string) {
	p.Add("")
	p.Hang("", p.Paint.Strong(s), 0)
}

// Table adds a table. If it is too wide, it cuts the names in the first columns, as many as names says.
func (p *Page) Table(rows [][]string, names int) {
	if p.Wide {
		p.Add(Table(rows)...)
	} else {
		p.Add(Fit(rows, names, p.Width)...)
	}
}

// Print writes the page.
func (p *Page) Print(out io.Writer) error {
	_, err := io.WriteString(out, strings.Join(p.lines, "\n")+"\n")
	return err
}

// Painter colours words by their meaning. Only a Screen turns its output into colours. The zero value colours nothing.
type Painter struct{ on bool }

// Colours are the values of the flag --color. auto colours on a terminal, unless NO_COLOR (https://no-color.org) or TERM=dumb forbids it.
// always also colours in a pipe, such as one to less -R.
var Colours = []string{"auto", "always", "never"}

// PainterFor returns the Painter for out. when is one of Colours.
func PainterFor(out io.Writer, when string) Painter {
	if when == "always" || when == "never" {
		return Painter{on: when == "always"}
	}
	return Painter{on: IsTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Good colours a healthy state.
func (p Painter) Good(s string) string { return p.paint(s, 32) }

// Bad colours an error or an unhealthy state.
func (p Painter) Bad(s string) string { return p.paint(s, 31) }

// Waits colours a state that is blocked or in progress.
func (p Painter) Waits(s string) string { return p.paint(s, 33) }

// Strong makes s bold.
func (p Painter) Strong(s string) string { return p.paint(s, 1) }

// paint puts s between escape sequences SGR (ECMA-48): 1 is bold, 31 red, 32 green and 33 yellow.
func (p Painter) paint(s string, sgr int) string {
	if !p.on || s == "" {
		return s
	}
	return fmt.Sprintf("%s%dm%s%s0m", ink, sgr, visible([]byte(s)), ink)
}

// Screen is a stream that a person reads on a terminal. Except for a Painter's colours, it escapes control characters and characters that
// change the direction of text, as Go does (\x1b). Texts from a cluster may contain anything: for example, a kubelet chooses the reason of
// a condition. Unescaped, they could clear the screen, hide a verdict or fill the clipboard (CVE-2021-25743 of kubectl).
type Screen struct{ raw io.Writer }

// OnScreen returns a Screen that writes to out, or out itself if it is a Screen.
func OnScreen(out io.Writer) *Screen {
	if s, ok := out.(*Screen); ok {
		return s
	}
	return &Screen{raw: out}
}

// Raw returns the stream below a Screen, for JSON, YAML and records, or out itself if it is no Screen.
func Raw(out io.Writer) io.Writer {
	if s, ok := out.(*Screen); ok {
		return s.raw
	}
	return out
}

// Write writes p, escaped. It returns the length of p unless the stream below fails.
func (s *Screen) Write(p []byte) (int, error) {
	if _, err := s.raw.Write(visible(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

const escape = "\x1b["

// ink begins the escape sequences of a Painter, so that a Screen can tell them from others. It is random in each process, so that nobody
// can write it into a cluster beforehand.
var ink = escape + strconv.FormatUint(binary.NativeEndian.Uint64([]byte(rand.Text())), 10) + ";"

// visible returns p with all characters escaped that a terminal would obey, except a Painter's colours, line ends and tabs.
func visible(p []byte) []byte {
	var out bytes.Buffer
	for len(p) > 0 {
		if painted, ok := bytes.CutPrefix(p, []byte(ink)); ok {
			out.WriteString(escape)
			p = painted
			continue
		}
		r, size := utf8.DecodeRune(p)
		switch {
		case r == utf8.RuneError && size == 1:
			_, _ = fmt.Fprintf(&out, `\x%02x`, p[0])
		case obeyed(r):
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		default:
			out.Write(p[:size])
		}
		p = p[size:]
	}
	return out.Bytes()
}

// obeyed reports whether a terminal may obey r instead of showing it: C0 and C1 control characters, line and paragraph separators, and
// characters that change the direction of text (Unicode property Bidi_Control).
func obeyed(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
