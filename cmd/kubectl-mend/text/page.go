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
