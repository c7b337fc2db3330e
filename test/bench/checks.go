package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// What is measured of MachineHealthChecks; some of it also of other parts.
const (
	firstFullPass    measured = "First full pass after the start"
	firstPassCPU     measured = "First full pass: processor time"
	firstPassPatches measured = "First full pass: patches per machine"

	aloneMedian     measured = "One change alone: marked after, p50"
	aloneWorst      measured = "One change alone: marked after, p99"
	alonePatches    measured = "One change alone: patches"
	aloneEvents     measured = "One change alone: events"
	aloneReads      measured = "One change alone: reads"
	aloneReconciles measured = "One change alone: reconciles"

	spreadMedian  measured = "Changes spread: marked after, p50"
	spreadWorst   measured = "Changes spread: marked after, p99"
	spreadPatches measured = "Changes spread: patches per change"
	spreadCPU     measured = "Changes spread: processor time per 1000 changes"

	massMedian  measured = "A tenth at once: marked after, p50"
	massWorst   measured = "A tenth at once: marked after, p99"
	massPatches measured = "A tenth at once: patches per change"

	beatCPU        measured = "1000 heartbeats: processor time"
	beatReconciles measured = "1000 heartbeats: reconciles"

	idleCPU         measured = "Idle: processor time per second"
	idleCalls       measured = "Idle: calls to all clusters per second"
	residentSteady  measured = "Resident memory, idle"
	residentHighest measured = "Resident memory, highest"
)

// checkRows are the lines of the table of MachineHealthChecks. Their aims hold up to 5000 machines.
func checkRows() []row {
	return []row{
		{firstFullPass, seconds, noAim}, // the API server alone needs most of it
		{firstPassCPU, seconds, noAim},
		{firstPassPatches, count, 1.1},
		{aloneMedian, seconds, 0.025},
		{aloneWorst, seconds, 0.2},
		{alonePatches, count, 2},
		{aloneEvents, count, 2}, // on the Machine, and on the check
		{aloneReads, count, 3},  // what goes on beside the changes is among them
		{aloneReconciles, count, noAim},
		{spreadMedian, seconds, noAim},
		{spreadWorst, seconds, 0.2},
		{spreadPatches, count, 2.1},
		{spreadCPU, seconds, 15},
		{massMedian, seconds, noAim},
		{massWorst, seconds, noAim}, // the API server again
		{massPatches, count, 2},
		{beatCPU, seconds, 0.6},
		{beatReconciles, count, 10}, // of resyncs; a heartbeat causes none
		{idleCPU, milliseconds1000, 0.01},
		{idleCalls, count, 1},
		{residentSteady, mebibytes, noAim},
		{residentHighest, mebibytes, 160},
	}
}

// size is a number of machines, evenly spread over a number of clusters.
type size struct{ machines, clusters int }

func (n size) String() string { return fmt.Sprintf("%d/%d", n.machines, n.clusters) }

// title is the size in words.
func (n size) title() string {
	if n.clusters == 1 {
		return fmt.Sprintf("%d machines in one cluster", n.machines)
	}
	return fmt.Sprintf("%d machines over %d clusters", n.machines, n.clusters)
}

// cluster names the cluster of a machine. Neighbours are in different clusters.
func (n size) cluster(machine int) string { return fmt.Sprintf("edge-%03d", machine%n.clusters) }

// machine names a machine and its node, about as long as a MachineDeployment would.
func (n size) machine(i int) string { return fmt.Sprintf("%s-md-0-x7kq2-%05d", n.cluster(i), i) }

// scale is how much is measured.
type scale struct {
	alone      int // changes one after another
	spread     int // changes, spread evenly over spreadOver
	mass       int // changes at once
	beats      int // heartbeats
	spreadOver time.Duration
	idle       time.Duration
}

func scaleOf(n size, quick bool) scale {
	if quick {
		return scale{alone: 5, spread: 20, mass: n.machines / 10, beats: 200, spreadOver: 5 * time.Second, idle: 5 * time.Second}
	}
	return scale{alone: 20, spread: 60, mass: n.machines / 10, beats: 1000, spreadOver: 40 * time.Second, idle: 20 * time.Second}
}

func checkSizes(quick bool) []size {
	if quick {
		return []size{{100, 1}, {200, 1}}
	}
	return []size{{1000, 1}, {5000, 1}}
}

const checkMethod = `One management and one workload API server of their own, with Machines of about 4 KiB with 11
conditions, Nodes of about 8 KiB, and one MachineHealthCheck (Ready False or Unknown for 60 s). No
other controller runs, and the machines have no owners.

- **Marked after**: from the API server's answer to the write of Ready=Unknown, dated 30 minutes
  back, to the watch event with which the Machine has HealthCheckSucceeded=False. *Alone*: the next
  change comes after everything that follows from the last one is over. *Spread*: at even intervals.
  *A tenth at once*: written by 24 clients. Each change is of another machine.
- **First full pass**: until every Machine has HealthCheckSucceeded=True. Most of it is the time of
  the API server.
- **Patches, events, reads**: PATCH, POST and GET in rest_client_requests_total, reads also of
  workload clusters, without ClusterCache's probes.
- **1000 heartbeats**: 100 in a second, each a write of all conditions of a node in which only
  lastHeartbeatTime changes. Reconciles are those of every controller but ClusterCache's.
- **Processor time**: process_cpu_seconds_total, without what an idle manager needs in that time.
  **Memory**: process_resident_memory_bytes, read every second while processor time is not measured.

The API servers, etcd, the manager and the clients that write and watch share the cores, so a delay
is also theirs. There is one run; of fewer than 100 samples p99 is the highest.
`

// measureChecks measures MachineHealthChecks.
func measureChecks(ctx context.Context, b bench) (section, error) {
	s := section{title: "MachineHealthChecks", method: checkMethod}
	var columns []string
	var all []figures
	for _, n := range checkSizes(b.quick) {
		of, err := measureCheck(ctx, n, b)
		columns, all = append(columns, n.title()), append(all, of)
		if err != nil {
			return s, fmt.Errorf("%s: %w", n.title(), err)
		}
	}
	s.tables = []table{tableOf(checkRows(), columns, all...)}
	return s, nil
}

// trial is the manager in an environment.
type trial struct {
	*environment
	*runner
	scale   scale
	figures figures
	// idle is what the manager needs in a second in which nothing happens, and readingCost what it needs to serve its metrics once.
	idle, readingCost float64
}

func measureCheck(ctx context.Context, n size, b bench) (_ figures, err error) {
	e, err := setUp(ctx, &environment{size: n})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	t := &trial{environment: e, scale: scaleOf(n, b.quick), figures: figures{}}
	if err := t.firstPass(ctx, b.kubemend()); err != nil {
		return nil, fmt.Errorf("first full pass: %w", err)
	}
	defer t.end()
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"idle", t.measureIdle}, {"heartbeats", t.heartbeats},
		{"changes one by one", t.alone}, {"changes spread", t.spread}, {"changes at once", t.mass},
	} {
		since := time.Now()
		if err := phase.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", phase.name, err)
		}
		progress("%s: %s took %.1fs", n, phase.name, time.Since(since).Seconds())
	}
	t.figures[residentHighest] = t.highest / mebibyte
	return t.figures, nil
}

const mebibyte = 1 << 20

// firstPass starts the manager and waits until it has marked every machine as healthy.
func (t *trial) firstPass(ctx context.Context, p program) (err error) {
	done := t.machineWatch.all(t.size.machines, succeeded)
	since := time.Now()
	if t.runner, err = t.launch(ctx, p); err != nil {
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
	t.figures[firstFullPass] = at.Sub(since).Seconds()
	t.figures[firstPassCPU] = own.cpu
	t.figures[firstPassPatches] = own.patches / float64(t.size.machines)
	progress("%s: first full pass after %.1fs", t.size, at.Sub(since).Seconds())
	return nil
}

// readings is how many times the metrics are read to measure what one reading costs.
const readings = 20

// measureIdle measures what the manager needs when nothing happens.
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
	t.figures[residentSteady] = between.resident / mebibyte
	t.figures[idleCPU] = t.idle
	idle := between.minus(before)
	t.figures[idleCalls] = (idle.calls() + max(idle.workloadCalls, 0)) / between.at.Sub(before.at).Seconds()
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
			return t.patchNode(ctx, i%t.size.machines, heartbeat(i/t.size.machines))
		})
	})
	t.figures[beatCPU] = d.cpu * 1000 / float64(n)
	t.figures[beatReconciles] = (d.reconciles + d.otherReconciles) * 1000 / float64(n)
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
