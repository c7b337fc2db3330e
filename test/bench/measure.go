package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// figures are what was measured of one contender at one size.
type figures map[measured]float64

// trial is one contender at one size.
type trial struct {
	*environment
	*runner
	scale   scale
	figures figures
	// idle is what the contender needs in a second in which nothing happens, and readingCost what it needs to serve its metrics once.
	idle, readingCost reading
}

// measure measures a contender on control planes of its own. Beside an error it returns what was measured before.
func measure(ctx context.Context, w size, c contender, binaries map[string]string, much scale) (_ figures, err error) {
	s, err := setUp(ctx, &environment{size: w})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	t := &trial{environment: s, scale: much, figures: figures{}}
	if err := t.firstPass(ctx, c, binaries[c.source]); err != nil {
		return t.figures, fmt.Errorf("first full pass: %w", err)
	}
	defer t.end()
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"idle", t.measureIdle}, {"heartbeats", t.heartbeats}, {"steady reconciles", t.steadyReconciles},
		{"changes one by one", t.alone}, {"changes spread", t.spread}, {"changes at once", t.mass},
		{"a bare client", t.bareClient},
	} {
		since := time.Now()
		if err := phase.run(ctx); err != nil {
			return t.figures, fmt.Errorf("%s: %w", phase.name, err)
		}
		t.progress("%s took %.1fs", phase.name, time.Since(since).Seconds())
	}
	t.figures[residentHighest] = t.highest / mebibyte
	return t.figures, nil
}

const mebibyte = 1 << 20

func (t *trial) progress(format string, args ...any) {
	progress("%s %s: %s", t.size, t.title, fmt.Sprintf(format, args...))
}

// firstPass starts the contender and waits until it has marked every machine as healthy.
func (t *trial) firstPass(ctx context.Context, c contender, binary string) error {
	before, err := t.serverCPU(ctx)
	if err != nil {
		return err
	}
	done := t.machineWatch.all(t.size.machines, succeeded)
	since := time.Now()
	if t.runner, err = t.launch(ctx, c, binary); err != nil {
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
	after, err := t.serverCPU(ctx)
	if err != nil {
		return err
	}
	t.figures[firstFullPass] = at.Sub(since).Seconds()
	t.figures[firstPassCPU] = own.cpu
	t.figures[firstPassServer] = after - before
	t.figures[firstPassPatches] = own.patches / float64(t.size.machines)
	t.progress("first full pass after %.1fs", at.Sub(since).Seconds())
	return nil
}

// readings is how many times the metrics are read to measure what one reading costs.
const readings = 20

// measureIdle measures what the contender needs when nothing happens.
func (t *trial) measureIdle(ctx context.Context) error {
	before, err := t.settle(ctx)
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
	l := after.minus(between)
	t.readingCost = reading{cpu: l.cpu / readings, mallocs: l.mallocs / readings}
	d, seconds := between.minus(before), between.at.Sub(before.at).Seconds()
	t.idle = reading{cpu: max(d.cpu-t.readingCost.cpu, 0) / seconds, mallocs: max(d.mallocs-t.readingCost.mallocs, 0) / seconds}
	t.figures[residentSteady] = between.resident / mebibyte
	t.figures[idleCPU] = t.idle.cpu
	t.progress("idle %.1f ms and %.0f allocations in a second, %.1f ms and %.0f for a reading",
		t.idle.cpu*1000, t.idle.mallocs, t.readingCost.cpu*1000, t.readingCost.mallocs)
	if d.reconciles+d.patches+d.creates > 0 {
		t.progress("idle, it made %.0f reconciles and %.0f writes", d.reconciles, d.patches+d.creates)
	}
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

// busy is the difference of two readings, without what an idle contender needs in that time and what the readings cost.
func (t *trial) busy(before, after reading) reading {
	d, seconds := after.minus(before), after.at.Sub(before.at).Seconds()
	d.cpu = max(d.cpu-t.idle.cpu*seconds-t.readingCost.cpu*float64(d.nth), 0)
	d.mallocs = max(d.mallocs-t.idle.mallocs*seconds-t.readingCost.mallocs*float64(d.nth), 0)
	return d
}

// between returns the metrics at the beginning and at the end of do.
func between(ctx context.Context, begin, end func(context.Context) (reading, error), do func() error) (before, after reading, err error) {
	if before, err = begin(ctx); err != nil {
		return before, after, err
	}
	if err := do(); err != nil {
		return before, after, err
	}
	after, err = end(ctx)
	return before, after, err
}

// heartbeats lets nodes report that nothing has changed.
func (t *trial) heartbeats(ctx context.Context) error {
	n := t.scale.beats
	before, after, err := between(ctx, t.read, t.settle, func() error {
		return t.paced(ctx, t.machines(0, n), heartbeatEvery, func(ctx context.Context, i int) error {
			return t.patchNode(ctx, i%t.size.machines, heartbeat(i/t.size.machines))
		})
	})
	if err != nil {
		return err
	}
	d := t.busy(before, after)
	t.figures[beatCPU] = d.cpu * 1000 / float64(n)
	t.figures[beatReconciles] = (d.reconciles + d.otherReconciles) * 1000 / float64(n)
	return nil
}

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

// touchEvery is the time between two forced reconciles. It is longer than the time for which kubemend collects events.
const touchEvery = 500 * time.Millisecond

// steadyReconciles makes the contender reconcile although there is nothing to do.
func (t *trial) steadyReconciles(ctx context.Context) error {
	n, every := t.scale.reconciles, touchEvery
	if t.interval > 0 {
		n, every = t.scale.slowly, t.interval+touchEvery
	}
	last := t.machines(t.size.machines-t.size.clusters, t.size.clusters) // one of each cluster
	// When paced returns, the last reconcile ended an interval ago.
	before, after, err := between(ctx, t.read, t.read, func() error {
		return t.paced(ctx, t.machines(0, n), every, func(ctx context.Context, round int) error {
			return t.each(ctx, last, func(ctx context.Context, i int) error { return t.touch(ctx, i, strconv.Itoa(round)) })
		})
	})
	if err != nil {
		return err
	}
	d := t.busy(before, after)
	if d.reconciles == 0 {
		return errors.New("there was no reconcile")
	}
	if want := float64(n * t.size.clusters); d.reconciles != want {
		t.progress("%.0f steady reconciles instead of %.0f", d.reconciles, want)
	}
	t.figures[steadyAllocations] = d.mallocs / d.reconciles / float64(t.size.machines/t.size.clusters)
	t.figures[reconcileAllocations] = d.mallocs / d.reconciles
	t.figures[reconcileCPU] = d.cpu / d.reconciles * 1000
	return nil
}
