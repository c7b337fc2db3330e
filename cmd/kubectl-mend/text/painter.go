package text

import (
	"io"
	"os"

	"github.com/fatih/color"
)

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
func (p Painter) Good(s string) string { return p.paint(s, color.FgGreen) }

// Bad is for what is wrong.
func (p Painter) Bad(s string) string { return p.paint(s, color.FgRed) }

// Waits is for what is blocked or in progress.
func (p Painter) Waits(s string) string { return p.paint(s, color.FgYellow) }

// Strong is for what is to be found first.
func (p Painter) Strong(s string) string { return p.paint(s, color.Bold) }

func (p Painter) paint(s string, as color.Attribute) string {
	if !p.on || s == "" {
		return s
	}
	c := color.New(as)
	c.EnableColor() // whether there is colour was decided for the stream that is written to
	return inked(c.Sprint(string(visible([]byte(s)))))
}
