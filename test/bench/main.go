// Command bench measures, on the rig, how fast kubemend is and what it needs: its MachineHealthChecks, alone and beside hostile API
// servers, the power cycles of hosts, its NodeHealthChecks, and how long kubectl mend takes.
//
// The manager and the command are processes of their own, measured from outside: by what the API server says and when, and by the
// manager's metrics. An aim that is missed fails the run, unless it is a short one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// settings are the command line.
type settings struct {
	// only is the name of the part that is measured; all are if it is empty.
	only  string
	quick bool
	write string
	// more are further arguments of kubemend, to look for the cause of a figure.
	more []string
}

func main() {
	s, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, s)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&s.quick, "quick", os.Getenv("QUICK") != "", "A short run with few samples, printed only; also with QUICK=1.")
	flags.StringVar(&s.write, "write", "", "The file to write the tables to; a short run writes none.")
	names := strings.Join(partNames(), ", ")
	flags.StringVar(&s.only, "only", "", "The part to measure: "+names+"; all if empty. The other parts of the file are left as they are.")
	more := flags.String("kubemend-args", "", "More arguments for kubemend, for example --profiler-address=127.0.0.1:6060.")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected arguments %q: all settings are flags", flags.Args())
	}
	s.more = strings.Fields(*more)
	if s.only != "" && !slices.Contains(partNames(), s.only) {
		return s, fmt.Errorf("measure %q: there is no such part, only %s", s.only, names)
	}
	return s, nil
}

// part is a part of the report, which can be measured on its own.
type part struct {
	name    string
	measure func(context.Context, bench) (section, error)
}

// parts are all parts, in the order of the report.
func parts() []part {
	return []part{
		{"checks", measureChecks},
		{"power-cycles", measureCycles},
		{"node-checks", measureNodeChecks},
		{"hostile", measureHostile},
		{"cli", measureCommandLine},
	}
}

func partNames() []string {
	names := make([]string, 0, len(parts()))
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// run measures all that is asked for, prints what it has also if it does not succeed, and fails if an aim is missed.
func run(ctx context.Context, s settings) error {
	ctrl.SetLogger(logr.Discard()) // what clients log is no progress
	b, err := build(ctx, s)
	if err != nil {
		return err
	}
	sections, about := map[string]string{}, machine()
	var missed []string
	for _, p := range parts() {
		if s.only != "" && s.only != p.name || ctx.Err() != nil {
			continue
		}
		began := time.Now()
		measured, failed := p.measure(ctx, b)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("measure %s: %w", p.name, failed))
		}
		sections[p.name] = measured.markdown(p.name, about, time.Since(began))
		missed = append(missed, measured.missed()...)
		fmt.Println(sections[p.name])
	}
	if err == nil && s.write != "" {
		err = save(s, sections)
	}
	switch {
	case len(missed) > 0 && s.quick:
		progress("%d aims are missed, for which a short run has too few samples:\n%s", len(missed), strings.Join(missed, "\n"))
	case len(missed) > 0:
		err = errors.Join(err, fmt.Errorf("%d aims are missed:\n%s", len(missed), strings.Join(missed, "\n")))
	}
	return err
}

// save writes the parts that were measured into the file, and leaves the others.
func save(s settings, sections map[string]string) error {
	if s.quick {
		progress("a short run has too few samples to keep: %s is left as it is", s.write)
		return nil
	}
	was, err := os.ReadFile(s.write)
	if err != nil {
		return fmt.Errorf("read the tables of the last run: %w", err)
	}
	is, err := merged(string(was), sections)
	if err != nil {
		return fmt.Errorf("put the tables into %s: %w", s.write, err)
	}
	if err := os.WriteFile(s.write, []byte(is), 0o644); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return nil
}

var started = time.Now()

// progress prints a line about what has been done.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}
