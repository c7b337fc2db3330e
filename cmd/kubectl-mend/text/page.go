package text

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
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

// Colour is whether to colour.
type Colour string

// The values of a Colour.
const (
	// ColourAuto colours what a terminal shows that can, unless the user has something against it (https://no-color.org).
	ColourAuto Colour = "auto"
	// ColourAlways colours also for a pipe, such as one to less -R.
	ColourAlways Colour = "always"
	// ColourNever colours nothing.
	ColourNever Colour = "never"
)

// PainterFor paints what is written to out.
func PainterFor(out io.Writer, when Colour) Painter {
	if when == ColourAlways || when == ColourNever {
		return Painter{on: when == ColourAlways}
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
