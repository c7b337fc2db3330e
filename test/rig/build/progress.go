package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// progress writes lines about work that takes long. It needs no terminal.
type progress struct {
	out io.Writer
	// name begins each line.
	name string
	// quiet is how long work may take before the first line about it.
	quiet time.Duration
	// every is the time between two lines about the same work.
	every time.Duration
}

func (p progress) line(format string, args ...any) {
	// Progress that cannot be shown is no reason to fail.
	_, _ = fmt.Fprintf(p.out, "%s: %s\n", p.name, fmt.Sprintf(format, args...))
}

// during does the work. It says what is built and how long that usually takes, then how long it has taken so far, and in the end how long it took.
func (p progress) during(ctx context.Context, what string, usually time.Duration, work func(context.Context) error) error {
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()

	next := time.NewTimer(p.quiet)
	defer next.Stop()
	announced := false
	if p.quiet == 0 {
		announced = p.announce(what, usually)
		next.Reset(p.every)
	}
	for {
		select {
		case err := <-ended:
			if announced && err == nil {
				p.line("built %s in %s", what, spoken(time.Since(began)))
			}
			return err
		case <-next.C:
			if announced {
				p.line("still building %s, %s so far%s", what, spoken(time.Since(began)), usual(" (usually about %s)", usually))
			} else {
				announced = p.announce(what, usually)
			}
			next.Reset(p.every)
		}
	}
}

func (p progress) announce(what string, usually time.Duration) bool {
	p.line("building %s%s", what, usual(" (usually about %s on two cores, if nothing is cached)", usually))
	return true
}

func usual(format string, usually time.Duration) string {
	if usually == 0 {
		return ""
	}
	return fmt.Sprintf(format, spoken(usually))
}

// spoken writes a duration as "1 min 30 s".
func spoken(d time.Duration) string {
	d = d.Round(time.Second)
	minutes, seconds := int(d/time.Minute), int(d%time.Minute/time.Second)
	switch {
	case minutes == 0:
		return fmt.Sprintf("%d s", seconds)
	case seconds == 0:
		return fmt.Sprintf("%d min", minutes)
	default:
		return fmt.Sprintf("%d min %d s", minutes, seconds)
	}
}
