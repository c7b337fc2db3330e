// Command bench measures the speed and the needs of kubemend on the rig: MachineHealthChecks, power cycles of hosts, NodeHealthChecks, and
// kubectl mend.
//
// It runs the manager and the command that `make build` has put into bin/, and measures them from outside: by watching the API server, and
// by the manager's metrics. A missed aim fails the run, except with -quick.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubemend/kubemend/test/rig"
)

// bench has the flags.
type bench struct {
	// only is the name of the single part to measure, or "" for all parts.
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

// run measures the selected parts and prints what it has even after an error. It returns an error if an aim is missed.
func (b bench) run(ctx context.Context) error {
	ctrl.SetLogger(logr.Discard()) // the logs of clients are not progress
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

// save replaces the sections of the measured parts in the file.
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

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}

// trial is a run of the manager in an environment.
type trial struct {
	*environment
	figures
	scale scale
	// controller is the controller whose reconciles are counted, as the metrics name it.
	controller string

	manager *rig.Manager
	host    string // of the management cluster, as the metrics name it
	// idle is the processor time per second of an idle manager. readingCost is the processor time to serve the metrics once.
	idle, readingCost float64

	mu      sync.Mutex
	reads   int
	highest float64 // resident memory
}

// launch starts the manager and returns when it is ready.
func (t *trial) launch(ctx context.Context, args ...string) error {
	host, err := url.Parse(t.management.Config().Host)
	if err != nil {
		return fmt.Errorf("read the address of the management cluster: %w", err)
	}
	t.host = host.Host
	args = append(args, "--unclaimed-machine-health-checks=act")
	t.manager, err = t.management.Manager(ctx, rig.ManagerOptions{Name: "kubemend", Binary: filepath.Join("bin", "manager"), Args: args})
	return err
}

func (t *trial) end() { t.manager.Kill() }

// phase is a part of a trial.
type phase struct {
	name string
	run  func(context.Context) error
}

// run runs the phases, stops the manager, and returns the figures.
func (t *trial) run(ctx context.Context, phases []phase) (figures, error) {
	defer t.end()
	for _, p := range phases {
		since := time.Now()
		if err := p.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w%s", p.name, err, tail(t.manager.Log))
		}
		progress("%d: %s took %.1fs", t.count, p.name, time.Since(since).Seconds())
	}
	t.add("Resident memory, highest", t.highest/mebibyte, mebibytes, 160)
	return t.figures, nil
}

func (t *trial) read(ctx context.Context) (reading, error) {
	text, err := t.manager.Scrape(ctx)
	if err != nil {
		return reading{}, fmt.Errorf("read the metrics: %w%s", err, tail(t.manager.Log))
	}
	now, err := parseReading(text, t.controller, t.host, time.Now())
	if err != nil {
		return reading{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
	now.nth = t.reads
	t.highest = max(t.highest, now.resident)
	return now, nil
}

// tail returns the end of a log, to be appended to an error.
func tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return "\n" + string(content[max(0, len(content)-2000):])
}

// readEvery is the interval of readings in phases that do not measure processor time. Each reading costs processor time.
const readEvery = time.Second

// watchMemory reads the metrics regularly until the returned function is called.
func (t *trial) watchMemory(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			_, _ = t.read(ctx) // the next phase returns the error
		}, readEvery)
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// quietFor is for how long the manager must do nothing to count as idle.
const quietFor = 2 * time.Second

// quiet waits until the manager has neither reconciled nor written for that long.
func (t *trial) quiet(ctx context.Context, long time.Duration) (reading, error) {
	ticks := time.NewTicker(long / 4)
	defer ticks.Stop()
	last, err := t.read(ctx)
	movedAt := last.at
	for err == nil && last.at.Sub(movedAt) < long {
		select {
		case <-ctx.Done():
			return reading{}, ctx.Err()
		case <-ticks.C:
		}
		before := last.activity()
		if last, err = t.read(ctx); last.activity() != before {
			movedAt = last.at
		}
	}
	return last, err
}

const mebibyte = 1 << 20

// firstPass starts the manager and waits until it has marked every machine as healthy.
func (t *trial) firstPass(ctx context.Context, args ...string) error {
	done := t.machineWatch.all(t.count, succeeded)
	since := time.Now()
	if err := t.launch(ctx, args...); err != nil {
		return err
	}
	defer t.watchMemory(ctx)()
	at, err := t.machineWatch.await(ctx, done)
	if err != nil {
		t.end()
		return fmt.Errorf("%w%s", err, tail(t.manager.Log))
	}
	own, err := t.read(ctx)
	if err != nil {
		return err
	}
	// The API server takes most of the time, so there is no aim.
	t.add("First full pass after the start", at.Sub(since).Seconds(), seconds, noAim)
	t.add("First full pass: processor time", own.cpu, seconds, noAim)
	t.add("First full pass: patches per machine", own.patches/float64(t.count), count, 1.1)
	return nil
}

// readings is the number of readings that measure the cost of one reading.
const readings = 20

func (t *trial) measureIdle(ctx context.Context) error {
	before, err := t.quiet(ctx, quietFor)
	if err != nil {
		return err
	}
	if err := letTimePass(ctx, t.scale.idle); err != nil {
		return err
	}
	between, err := t.read(ctx)
	if err != nil {
		return err
	}
	after := between
	for range readings {
		if after, err = t.read(ctx); err != nil {
			return err
		}
	}
	t.readingCost = (after.cpu - between.cpu) / readings
	t.idle = max(between.cpu-before.cpu-t.readingCost, 0) / between.at.Sub(before.at).Seconds()
	idle := between.minus(before)
	t.add("Idle: processor time per second", t.idle, milliseconds1000, 0.01)
	t.add("Idle: calls to all clusters per second", (idle.calls()+max(idle.workloadCalls, 0))/between.at.Sub(before.at).Seconds(), count, 1)
	t.add("Resident memory, idle", between.resident/mebibyte, mebibytes, noAim)
	return nil
}

// letTimePass waits for d, over which a rate is measured.
func letTimePass(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// busy returns the difference of two readings without the processor time of an idle manager and of the readings.
func (t *trial) busy(before, after reading) reading {
	d, seconds := after.minus(before), after.at.Sub(before.at).Seconds()
	d.cpu = max(d.cpu-t.idle*seconds-t.readingCost*float64(d.nth), 0)
	return d
}

// during returns what the manager did from the call of do until it was idle again.
func (t *trial) during(ctx context.Context, do func() error) (reading, error) {
	before, err := t.quiet(ctx, quietFor)
	if err != nil {
		return reading{}, err
	}
	if err := do(); err != nil {
		return reading{}, err
	}
	after, err := t.quiet(ctx, quietFor)
	return t.busy(before, after), err
}

// heartbeats sends heartbeats of nodes that change nothing else.
func (t *trial) heartbeats(ctx context.Context) error {
	n := t.scale.beats
	d, err := t.during(ctx, func() error {
		return t.paced(ctx, t.machines(0, n), heartbeatEvery, func(ctx context.Context, i int) error {
			return t.patchNode(ctx, i%t.count, heartbeat(i/t.count))
		})
	})
	t.add("1000 heartbeats: processor time", d.cpu*1000/float64(n), seconds, t.scale.beatsCPU)
	// These are resyncs; heartbeats must cause no reconciles.
	t.add("1000 heartbeats: reconciles", (d.reconciles+d.otherReconciles)*1000/float64(n), count, 10)
	return err
}

// heartbeatEvery is the interval of heartbeats of 30000 nodes that each report every five minutes.
const heartbeatEvery = 10 * time.Millisecond

// paced calls do for every number at fixed intervals, without waiting for earlier calls to return.
func (t *trial) paced(ctx context.Context, numbers []int, every time.Duration, do func(context.Context, int) error) error {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	group, working := errgroup.WithContext(ctx)
	for _, i := range numbers {
		group.Go(func() error { return do(working, i) })
		select {
		case <-ticks.C:
		case <-working.Done():
			return group.Wait()
		}
	}
	return group.Wait()
}
