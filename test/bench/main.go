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

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}

// trial is the manager in an environment.
type trial struct {
	*environment
	figures
	scale scale
	// controller is the name in the metrics of the controller whose reconciles are counted.
	controller string

	manager *rig.Manager
	host    string // of the management cluster, as the metrics name it
	// idle is what the manager needs in a second in which nothing happens, and readingCost what it needs to serve its metrics once.
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

// run runs the phases, ends the manager, and returns what was measured.
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

// tail is the end of a log, to be added to an error.
func tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return "\n" + string(content[max(0, len(content)-2000):])
}

// readEvery is how often the memory is read while processor time is not measured: each reading costs some.
const readEvery = time.Second

// watchMemory reads the metrics again and again until the function that it returns is called.
func (t *trial) watchMemory(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			_, _ = t.read(ctx) // an error is returned by the next phase
		}, readEvery)
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// quietFor is how long nothing must happen until the manager counts as done.
const quietFor = 2 * time.Second

// quiet waits until the manager neither reconciled nor wrote for that long.
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
	// The API server alone needs most of it.
	t.add("First full pass after the start", at.Sub(since).Seconds(), seconds, noAim)
	t.add("First full pass: processor time", own.cpu, seconds, noAim)
	t.add("First full pass: patches per machine", own.patches/float64(t.count), count, 1.1)
	return nil
}

// readings is how many times the metrics are read to measure what one reading costs.
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

// letTimePass waits, because a rate is measured over that time.
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

// busy is the difference of two readings, without what an idle manager needs in that time and what the readings cost.
func (t *trial) busy(before, after reading) reading {
	d, seconds := after.minus(before), after.at.Sub(before.at).Seconds()
	d.cpu = max(d.cpu-t.idle*seconds-t.readingCost*float64(d.nth), 0)
	return d
}

// during returns what happened in do, and until the manager was quiet again.
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

// heartbeats lets nodes report that nothing has changed.
func (t *trial) heartbeats(ctx context.Context) error {
	n := t.scale.beats
	d, err := t.during(ctx, func() error {
		return t.paced(ctx, t.machines(0, n), heartbeatEvery, func(ctx context.Context, i int) error {
			return t.patchNode(ctx, i%t.count, heartbeat(i/t.count))
		})
	})
	t.add("1000 heartbeats: processor time", d.cpu*1000/float64(n), seconds, t.scale.beatsCPU)
	// They are resyncs; a heartbeat causes none.
	t.add("1000 heartbeats: reconciles", (d.reconciles+d.otherReconciles)*1000/float64(n), count, 10)
	return err
}

// heartbeatEvery is the time between two heartbeats: 30000 nodes send as many, each every five minutes.
const heartbeatEvery = 10 * time.Millisecond

// paced calls do for every number, each a fixed time after the one before, whether that has returned or not.
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
