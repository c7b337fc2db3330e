// Command bench measures kubemend's MachineHealthChecks against Cluster API's own, on the rig, on the same machines, what kubemend adds to
// the power cycles of hosts, what its NodeHealthChecks cost, how it grows with a fleet, of which it simulates a very large one,
// what hostile API servers cost it, and how long kubectl mend takes.
//
// Every contender is a process of its own and is measured from outside, each in the same way: by what the API server
// says and when, and by the contender's metrics. For every world, that is a number of machines over a number of
// clusters, each contender gets new control planes with the same objects. Nothing is asserted: what is measured is
// printed, beside the aims.
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
	worlds     []world
	contenders []string
	// only is the part that is measured; all are if it is empty.
	only  string
	quick bool
	write string
	date  string
	// more are further arguments of kubemend, for whoever looks for a cause.
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
	worlds := flags.String("worlds", "", "The worlds to measure as machines/clusters, for example 100/1,1000/50.")
	contenders := flags.String("contenders", "", "The contenders to measure: "+strings.Join(contenderNames(), ", ")+".")
	flags.StringVar(&s.only, "only", "", "The part to measure: "+strings.Join(parts, ", ")+"; all if empty. The other parts of the file are left as they are.")
	more := flags.String("kubemend-args", "", "More arguments for kubemend, for example --profiler-address=127.0.0.1:6060.")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected arguments %q: all settings are flags", flags.Args())
	}
	if *worlds == "" {
		*worlds = "100/1,1000/1,5000/1,1000/50"
		if s.quick {
			*worlds = "100/1,200/4"
		}
	}
	s.more = strings.Fields(*more)
	var err error
	if s.worlds, err = parseWorlds(*worlds); err != nil {
		return s, err
	}
	if s.only != "" && !slices.Contains(parts, s.only) {
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

// measureWorld measures the contenders one after another. One that does not get through keeps no other from its turn.
func measureWorld(ctx context.Context, w world, s settings, binaries map[string]string) (worldResults, error) {
	results := worldResults{world: w}
	var errs []error
	for _, c := range lineUp(w, s) {
		if c.source == contenders()[0].source {
			c.args = append(c.args, s.more...)
		}
		of, err := measure(ctx, w, c, binaries, scaleOf(w, s.quick))
		results.contenders = append(results.contenders, contenderResults{c, of})
		if err != nil {
			errs = append(errs, fmt.Errorf("measure %s with %s machines: %w", c.title, w, err))
			say("%s %s: did not get through: %v", w, c.title, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return results, errors.Join(errs...)
}

// The parts that can be measured on their own.
const (
	checksPart  = "checks"
	cyclesPart  = "power-cycles"
	nodesPart   = "node-checks"
	fleetPart   = "fleet"
	hostilePart = "hostile"
	cliPart     = "cli"
)

var parts = []string{checksPart, cyclesPart, nodesPart, fleetPart, hostilePart, cliPart}

// wants reports whether a part is to be measured.
func (s settings) wants(part string) bool { return s.only == "" || s.only == part }

// run measures all that is asked for, and prints what it has also if it does not get through.
func run(ctx context.Context, s settings) error {
	ctrl.SetLogger(logr.Discard()) // what clients have to say is no progress
	binaries, err := build(ctx, s)
	if err != nil {
		return err
	}
	report := report{settings: s, machine: thisMachine()}
	if s.wants(checksPart) {
		err = report.measureChecks(ctx, binaries)
	}
	if s.wants(cyclesPart) && ctx.Err() == nil {
		err = errors.Join(err, report.measureCycles(ctx, binaries))
	}
	if s.wants(nodesPart) && ctx.Err() == nil {
		err = errors.Join(err, report.measureNodeChecks(ctx, binaries))
	}
	if s.wants(fleetPart) && ctx.Err() == nil {
		err = errors.Join(err, report.measureFleet(ctx, binaries))
	}
	if s.wants(hostilePart) && ctx.Err() == nil {
		err = errors.Join(err, report.measureHostile(ctx, binaries))
	}
	if s.wants(cliPart) && ctx.Err() == nil {
		err = errors.Join(err, report.measureCommandLine(ctx, binaries))
	}
	fmt.Println(report.merged(""))
	if err != nil || s.write == "" {
		return err
	}
	return report.save()
}

// measureChecks measures all contenders in all worlds.
func (r *report) measureChecks(ctx context.Context, binaries map[string]string) error {
	began := time.Now()
	var errs []error
	for _, w := range r.settings.worlds {
		results, err := measureWorld(ctx, w, r.settings, binaries)
		r.worlds = append(r.worlds, results)
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	r.took = time.Since(began)
	return errors.Join(errs...)
}

// measureCycles measures power cycles among few hosts and among many.
func (r *report) measureCycles(ctx context.Context, binaries map[string]string) error {
	began := time.Now()
	var errs []error
	for _, hosts := range cycleWorlds(r.settings.quick) {
		results, err := measureCycles(ctx, hosts, r.settings, binaries)
		r.cycles = append(r.cycles, results)
		if err != nil {
			errs = append(errs, fmt.Errorf("measure power cycles among %d hosts: %w", hosts, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.cyclesTook = time.Since(began)
	return errors.Join(errs...)
}

// measureNodeChecks measures NodeHealthChecks.
func (r *report) measureNodeChecks(ctx context.Context, binaries map[string]string) (err error) {
	began := time.Now()
	much := nodeScaleOf(r.settings.quick)
	r.nodes, err = measureNodes(ctx, much, r.settings, binaries)
	r.nodesTook = time.Since(began)
	if err != nil {
		return fmt.Errorf("measure a NodeHealthCheck of %d nodes: %w", much.nodes, err)
	}
	return nil
}

// measureFleet measures what grows with clusters, machines and checks. A plot that does not get through, not even when it is tried again, is
// left out as long as the others say enough.
func (r *report) measureFleet(ctx context.Context, binaries map[string]string) error {
	began := time.Now()
	var errs []error
	for _, p := range plots(r.settings.quick) {
		of, err := measurePlot(ctx, p, r.settings, binaries)
		if err != nil && ctx.Err() == nil {
			say("%s: once more, since it did not get through: %v", p, err)
			of, err = measurePlot(ctx, p, r.settings, binaries)
		}
		r.fleet = append(r.fleet, plotResults{p, of})
		if err != nil {
			say("%s: did not get through: %v", p, err)
			errs = append(errs, fmt.Errorf("measure what %s cost: %w", p, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.fleetTook = time.Since(began)
	if _, err := learn(r.fleet); err != nil || ctx.Err() != nil {
		return errors.Join(append(errs, err)...)
	}
	return nil
}

// save writes the parts that were measured into the file, and leaves the others.
func (r *report) save() error {
	file := r.settings.write
	if r.settings.quick {
		say("a short run says too little to keep: %s is left as it is", file)
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

// say writes a line of progress.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}
