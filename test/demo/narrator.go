package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	width     = 115 // of the whole commentary
	actorWide = 25
	timeWide  = 8
)

// narrator writes the commentary: one line per event; long lines are wrapped below their text.
type narrator struct {
	mu     sync.Mutex
	out    io.Writer
	styled bool
	// zero is the moment that times count from; zero if they do not count yet.
	zero time.Time
}

func newNarrator(out *os.File) *narrator {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &narrator{out: out, styled: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// countFrom makes times count from a moment.
func (n *narrator) countFrom(zero time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.zero = zero
}

func (n *narrator) since(at time.Time) string {
	if n.zero.IsZero() {
		return ""
	}
	return fmt.Sprintf("%+.1fs", at.Sub(n.zero).Seconds())
}

// at is a moment as the commentary writes it.
func (n *narrator) at(moment time.Time) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.zero.IsZero() {
		return moment.Format(time.TimeOnly)
	}
	return n.since(moment)
}

// line prints one event.
func (n *narrator) line(at time.Time, by, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	indent := strings.Repeat(" ", timeWide+2+actorWide)
	for i, part := range wrap(text, width-len(indent)) {
		if i > 0 {
			n.print("%s%s\n", indent, part)
			continue
		}
		n.print("%*s  %s%s\n", timeWide, n.since(at), n.bold(fmt.Sprintf("%-*s", actorWide, by)), part)
	}
}

// heading opens a scene.
func (n *narrator) heading(title, story string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print("\n%s\n%s\n", n.bold(title), strings.Repeat("-", len(title)))
	for _, part := range wrap(story, width) {
		n.print("%s\n", part)
	}
	if story != "" {
		n.print("\n")
	}
}

// note prints something about the demo itself.
func (n *narrator) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print("%s\n", fmt.Sprintf(format, args...))
}

func (n *narrator) verdict(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print("\n%s\n", n.bold(text))
}

func (n *narrator) print(format string, args ...any) {
	// A closed standard output is no reason to fail.
	_, _ = fmt.Fprintf(n.out, format, args...)
}

func (n *narrator) bold(text string) string {
	if !n.styled {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// plain is for other writers of whole lines.
func (n *narrator) plain() io.Writer { return lines{n} }

type lines struct{ *narrator }

// Write makes it a Writer.
func (l lines) Write(content []byte) (int, error) {
	l.note("%s", bytes.TrimRight(content, "\n"))
	return len(content), nil
}

// wrap breaks text into lines at spaces.
func wrap(text string, limit int) []string {
	var out []string
	for _, paragraph := range strings.Split(text, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && len([]rune(line))+1+len([]rune(word)) > limit {
				out, line = append(out, line), ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		if line != "" {
			out = append(out, line)
		}
	}
	return out
}
