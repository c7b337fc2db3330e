package text

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Layout is how a page is printed.
type Layout struct {
	// Now is when it is printed: its zone is that of the times, and what happens on another day has a date.
	Now time.Time
	// Width is that of the terminal, in columns.
	Width int
	Paint Painter
	// Wide prints all that is known, also if the lines get longer than Width. UTC prints dates and times in UTC.
	Wide, UTC bool
	// Namespaces prints the namespaces of objects.
	Namespaces bool
	// NotOK prints only the checks that are not OK.
	NotOK bool
}

// Page is a page being laid out.
type Page struct {
	Layout

	lines []string
}

// Add adds lines as they are.
func (p *Page) Add(lines ...string) { p.lines = append(p.lines, lines...) }

// Hang adds s behind lead, broken as Hang does.
func (p *Page) Hang(lead, s string, indent int) {
	p.Add(strings.Split(Hang(lead, s, indent, p.Width), "\n")...)
}

// Heading adds an empty line and a heading.
func (p *Page) Heading(s string) {
	p.Add("")
	p.Hang("", p.Paint.Strong(s), 0)
}

// Table adds rows, of which the first columns are names, which are cut where the rows are too wide.
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

// Painter colours words by what they mean, for a Screen, which alone shows the colours. The zero value colours nothing.
type Painter struct{ on bool }

// Colours are the values of the flag --color: auto colours what a terminal shows that can, unless the user has something against it
// (https://no-color.org), and always colours also for a pipe, such as one to less -R.
var Colours = []string{"auto", "always", "never"}

// PainterFor paints what is written to out, when one of Colours says so.
func PainterFor(out io.Writer, when string) Painter {
	if when == "always" || when == "never" {
		return Painter{on: when == "always"}
	}
	return Painter{on: IsTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Good is for what is as it should be.
func (p Painter) Good(s string) string { return p.paint(s, 32) }

// Bad is for what is wrong.
func (p Painter) Bad(s string) string { return p.paint(s, 31) }

// Waits is for what is blocked or in progress.
func (p Painter) Waits(s string) string { return p.paint(s, 33) }

// Strong is for what is to be found first.
func (p Painter) Strong(s string) string { return p.paint(s, 1) }

// paint puts s into a rendition of the escape sequence SGR (ECMA-48): 1 is bold, 31 red, 32 green and 33 yellow.
func (p Painter) paint(s string, sgr int) string {
	if !p.on || s == "" {
		return s
	}
	return fmt.Sprintf("%s%dm%s%s0m", ink, sgr, visible([]byte(s)), ink)
}

// Screen is a stream that a person reads on a terminal. Much of what is written to it comes out of clusters, files and errors, where
// anybody may have put anything: a kubelet chooses the reason of a condition. A Screen writes control characters, and those that turn the
// direction of text, as Go would spell them, such as \x1b, so that no text can clear a screen, hide a verdict or fill a clipboard (as in
// CVE-2021-25743 of kubectl). Of escape sequences it lets through what a Painter has made.
type Screen struct{ raw io.Writer }

// OnScreen returns a Screen over out, or out itself if it is one.
func OnScreen(out io.Writer) *Screen {
	if s, ok := out.(*Screen); ok {
		return s
	}
	return &Screen{raw: out}
}

// Raw is the stream below a Screen, for JSON, YAML and records; any other stream is returned as it is.
func Raw(out io.Writer) io.Writer {
	if s, ok := out.(*Screen); ok {
		return s.raw
	}
	return out
}

// Write writes p as a person may see it. It returns the length of p unless the stream below fails.
func (s *Screen) Write(p []byte) (int, error) {
	if _, err := s.raw.Write(visible(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

const escape = "\x1b["

// ink is the parameter by which a Screen knows the sequences of a Painter from those of others. It is another one in each process, so that
// it cannot be written into a cluster beforehand. A terminal that saw it would pass over it.
var ink = escape + strconv.FormatUint(binary.NativeEndian.Uint64([]byte(rand.Text())), 10) + ";"

// visible is p without anything that a terminal would obey, but for colours of a Painter, line ends and tabs.
func visible(p []byte) []byte {
	if !bytes.ContainsFunc(p, func(r rune) bool { return r >= utf8.RuneSelf || obeyed(r) }) {
		return p
	}
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

// obeyed reports whether a terminal may do something else with r than show it: C0 and C1 control characters, line and paragraph separators,
// and the characters that turn the direction of text (Unicode's property Bidi_Control).
func obeyed(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
