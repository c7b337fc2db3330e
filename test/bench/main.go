// Command bench measures, on the rig, how fast kubemend is and what it needs: its MachineHealthChecks, the power cycles of hosts, its
// NodeHealthChecks, and how long kubectl mend takes.
//
// The manager and the command are those that `make build` has put into bin/, as processes of their own, measured from outside: by what the
// API server says and when, and by the manager's metrics. An aim that is missed fails the run, unless it is a short one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// bench are the flags.
type bench struct {
	// only is the name of the part that is measured; all are if it is empty.
	only  string
	quick bool
	write string
}

// parts are all parts, in the order of the report.
var parts = []struct {
	name    string
	measure func(context.Context, bench) (section, error)
}{
	{"checks", measureChecks},
	{"power-cycles", measureCycles},
	{"node-checks", measureNodeChecks},
	{"cli", measureCommandLine},
}

func main() {
	b := bench{}
	flag.BoolVar(&b.quick, "quick", os.Getenv("QUICK") != "", "A short run with few samples, printed only; also with QUICK=1.")
	flag.StringVar(&b.write, "write", "", "The file to write the tables to; a short run writes none.")
	flag.StringVar(&b.only, "only", "", "The part to measure: checks, power-cycles, node-checks or cli; all if empty. "+
		"The other parts of the file are left as they are.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := b.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures all that is asked for, prints what it has also if it does not succeed, and fails if an aim is missed.
func (b bench) run(ctx context.Context) error {
	ctrl.SetLogger(logr.Discard()) // what clients log is no progress
	var err error
	sections, about := map[string]string{}, machine()
	var missed []string
	for _, p := range parts {
		if b.only != "" && b.only != p.name || ctx.Err() != nil {
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
	switch {
	case len(sections) == 0:
		return fmt.Errorf("there is no part %q", b.only)
	case b.quick:
		progress("a short run has too few samples: nothing is written, and %d aims are missed\n%s", len(missed), strings.Join(missed, "\n"))
		return err
	case err == nil && b.write != "":
		err = save(b.write, sections)
	}
	if len(missed) > 0 {
		err = errors.Join(err, fmt.Errorf("%d aims are missed:\n%s", len(missed), strings.Join(missed, "\n")))
	}
	return err
}

// save writes the parts that were measured into the file, and leaves the others.
func save(file string, sections map[string]string) error {
	last, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the tables of the last run: %w", err)
	}
	tables, err := merged(string(last), sections)
	if err != nil {
		return fmt.Errorf("put the tables into %s: %w", file, err)
	}
	if err := os.WriteFile(file, []byte(tables), 0o644); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return nil
}

var started = time.Now()

// progress prints a line about what has been done.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}
