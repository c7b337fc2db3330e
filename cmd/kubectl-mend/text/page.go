package text

import (
	"io"
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
