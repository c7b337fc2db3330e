// Package text lays out what a person reads: it breaks long lines, and paints words where there is colour. It knows nothing of what the words
// are about.
package text

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
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
	if file, is := out.(*os.File); is {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return max(n, narrowest)
		}
	}
	return unbound
}

// IsTerminal reports whether a person is at the other end of a stream.
func IsTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// Wrap breaks s between words into lines of at most width columns. All lines but the first begin with indent spaces, which count. A word that is
// longer than a line stays whole, since it is a name to be copied. Lines that s has are kept, as are the spaces that its first line begins with.
func Wrap(s string, indent, width int) string {
	var b strings.Builder
	hang := strings.Repeat(" ", indent)
	for i, line := range strings.Split(s, "\n") {
		if i > 0 {
			b.WriteString("\n" + hang)
		}
		trimmed := strings.TrimLeft(line, " ")
		column, empty := 0, true
		if i > 0 {
			column = indent
		} else {
			b.WriteString(line[:len(line)-len(trimmed)])
			column = len(line) - len(trimmed)
		}
		for word := range strings.FieldsSeq(trimmed) {
			wide := Columns(word)
			switch {
			case empty:
			case column+1+wide > width:
				b.WriteString("\n" + hang)
				column = indent
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += wide
			empty = false
		}
	}
	return b.String()
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
