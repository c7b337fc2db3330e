// Command bench measures, on the rig, how fast kubemend is and what it needs: its MachineHealthChecks beside Cluster API's own, the power cycles of
// hosts, its NodeHealthChecks, how its cost grows with a fleet, what hostile API servers cost it, how it judges clusters that Cluster API's own providers have
// made, and how long kubectl mend takes.
//
// Each program that is measured is a process of its own, and is measured from outside: by what the API server says and when, and by the
// program's metrics. The results are printed beside the aims, and nothing fails when an aim is missed.
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
	sizes      []size
	contenders []string
	// only is the name of the part that is measured; all are if it is empty.
	only  string
	quick bool
	write string
	date  string
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
	flags.StringVar(&s.date, "date", time.Now().Format(time.DateOnly), "The date in the heading.")
	sizes := flags.String("sizes", "", "The sizes to measure MachineHealthChecks at, as machines/clusters, for example 100/1,1000/50.")
	contenders := flags.String("contenders", "", "The contenders to measure: "+strings.Join(contenderNames(), ", ")+".")
	flags.StringVar(&s.only, "only", "",
		"The part to measure: "+strings.Join(partNames(), ", ")+"; all if empty. The other parts of the file are left as they are.")
	more := flags.String("kubemend-args", "", "More arguments for kubemend, for example --profiler-address=127.0.0.1:6060.")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected arguments %q: all settings are flags", flags.Args())
	}
	if *sizes == "" {
		*sizes = "100/1,1000/1,5000/1,1000/50"
		if s.quick {
			*sizes = "100/1,200/4"
		}
	}
	s.more = strings.Fields(*more)
	var err error
	if s.sizes, err = parseSizes(*sizes); err != nil {
		return s, err
	}
	if s.only != "" && !slices.Contains(partNames(), s.only) {
		return s, fmt.Errorf("measure %q: there is no such part", s.only)
	}
	if *contenders != "" {
		s.contenders = strings.Split(*contenders, ",")
	}
	for _, name := range s.contenders {
		if !slices.Contains(contenderNames(), name) {
			return s, fmt.Errorf("measure %q: there is no such contender", name)
		}
	}
	return s, nil
}

// The names of the parts.
const (
	checksPart  = "checks"
	cyclesPart  = "power-cycles"
	nodesPart   = "node-checks"
	fleetPart   = "fleet"
	hostilePart = "hostile"
	classesPart = "classes"
	cliPart     = "cli"
)

// part is a part of the report, which can be measured on its own.
type part struct {
	name    string
	measure func(r *report, ctx context.Context, binaries map[string]string) error
	// section returns what was measured as Markdown; empty if nothing was.
	section func(*report) string
}

// parts are all parts, in the order of the report. The first is its head.
func parts() []part {
	return []part{
		{checksPart, (*report).measureChecks, (*report).checksSection},
		{cyclesPart, (*report).measureCycles, (*report).cyclesSection},
		{nodesPart, (*report).measureNodeChecks, (*report).nodesSection},
		{fleetPart, (*report).measureFleet, (*report).fleetSection},
		{hostilePart, (*report).measureHostile, (*report).hostileSection},
		{classesPart, (*report).measureClasses, (*report).classesSection},
		{cliPart, (*report).measureCommandLine, (*report).cliSection},
	}
}

func partNames() []string {
	return []string{checksPart, cyclesPart, nodesPart, fleetPart, hostilePart, classesPart, cliPart}
}

// wants reports whether a part is to be measured.
func (s settings) wants(part string) bool { return s.only == "" || s.only == part }

// run measures all that is asked for, and prints what it has also if it does not succeed.
func run(ctx context.Context, s settings) error {
	ctrl.SetLogger(logr.Discard()) // what clients log is no progress
	binaries, err := build(ctx, s)
	if err != nil {
		return err
	}
	report := &report{settings: s, machine: thisMachine(), took: map[string]time.Duration{}}
	for _, p := range parts() {
		if !s.wants(p.name) || ctx.Err() != nil {
			continue
		}
		began := time.Now()
		err = errors.Join(err, p.measure(report, ctx, binaries))
		report.took[p.name] = time.Since(began)
	}
	fmt.Println(report.merged(""))
	if err != nil || s.write == "" {
		return err
	}
	return report.save()
}

// save writes the parts that were measured into the file, and leaves the others.
func (r *report) save() error {
	file := r.settings.write
	if r.settings.quick {
		progress("a short run has too few samples to keep: %s is left as it is", file)
		return nil
	}
	was, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the tables of the last run: %w", err)
	}
	if err := os.WriteFile(file, []byte(r.merged(string(was))), 0o644); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return nil
}

var started = time.Now()

// progress prints a line about what has been done.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}
