// Command recording records the output of a command, and draws it as an animated SVG.
//
//	recording -out docs/images/demo -- make demo SCENE=reboot
//
// writes docs/images/demo.cast, an asciicast of version 2 for asciinema players, and docs/images/demo.svg. Without a command it only draws
// the existing cast.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// readable is the mode of the files, which are committed.
const readable = 0o644

func main() {
	out := flag.String("out", "", "what the files are called, without .cast and .svg")
	title := flag.String("title", "make demo", "what the recording is called")
	flag.Parse()
	if err := run(context.Background(), *out, *title, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, title string, command []string) error {
	if out == "" {
		return errors.New("-out is missing")
	}
	if len(command) > 0 {
		lines, err := record(ctx, command)
		if err != nil {
			return fmt.Errorf("record %q: %w", command, err)
		}
		content, err := cast(title, lines)
		if err != nil {
			return fmt.Errorf("encode the recording: %w", err)
		}
		if err := os.WriteFile(out+".cast", content, readable); err != nil {
			return err
		}
	}
	content, err := os.ReadFile(out + ".cast")
	if err != nil {
		return err
	}
	title, lines, err := parse(content)
	if err != nil {
		return fmt.Errorf("read %s.cast: %w", out, err)
	}
	return os.WriteFile(out+".svg", draw(title, lines), readable)
}

// A line is one line of output, with its time since the first line.
type line struct {
	at   time.Duration
	text string
}

// record runs a command, prints its output, and returns the lines with their times.
func record(ctx context.Context, command []string) ([]line, error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	lines := timed(io.TeeReader(pipe, os.Stdout), time.Now) //nolint:forbidigo // this is the wiring
	return lines, c.Wait()
}

func timed(output io.Reader, now func() time.Time) []line {
	var (
		lines []line
		first time.Time
	)
	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		at := now()
		if first.IsZero() {
			first = at
		}
		lines = append(lines, line{at.Sub(first), scanner.Text()})
	}
	return lines
}
