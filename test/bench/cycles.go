package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// cycleSizes are the numbers of hosts of which some are power-cycled.
func cycleSizes(quick bool) []int {
	if quick {
		return []int{20, 50}
	}
	return []int{100, 1000}
}

// cycleScale is how many cycles are measured: one after another, and at once.
type cycleScale struct {
	alone, mass int
	idle        time.Duration
}

func cycleScaleOf(hosts int, quick bool) cycleScale {
	if quick {
		return cycleScale{alone: 3, mass: hosts / 10, idle: 5 * time.Second}
	}
	return cycleScale{alone: 20, mass: hosts / 10, idle: 20 * time.Second}
}

// cycleResults are what was measured with a number of hosts.
type cycleResults struct {
	hosts   int
	figures figures
}

// measureCycles measures power cycles among few hosts and among many.
func (r *report) measureCycles(ctx context.Context, binaries map[string]string) error {
	var errs []error
	for _, hosts := range cycleSizes(r.settings.quick) {
		results, err := measureCycles(ctx, hosts, r.settings, binaries)
		r.cycles = append(r.cycles, results)
		if err != nil {
			errs = append(errs, fmt.Errorf("measure power cycles among %d hosts: %w", hosts, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// measureCycles sets up hosts, and has some of them power-cycled.
func measureCycles(ctx context.Context, hosts int, s settings, binaries map[string]string) (_ cycleResults, err error) {
	results := cycleResults{hosts: hosts, figures: figures{}}
	r, err := setUpHosts(ctx, hosts)
	if err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, r.tearDown()) }()
	c := s.kubemend()
	much := cycleScaleOf(hosts, s.quick)
	t := &trial{environment: r.environment, figures: results.figures, scale: scale{idle: much.idle}}
	if err := t.firstPass(ctx, c, binaries[c.source]); err != nil {
		return results, fmt.Errorf("first full pass: %w", err)
	}
	defer t.end()
	if err := t.measureIdle(ctx); err != nil {
		return results, fmt.Errorf("idle: %w", err)
	}
	if r.witness, err = r.watch(ctx); err != nil {
		return results, err
	}
	if err := r.alone(ctx, t, much.alone); err != nil {
		return results, fmt.Errorf("cycles one by one: %w%s", err, tail(t.manager.Log))
	}
	if _, err := r.byHand(ctx, t, much.alone); err != nil {
		return results, fmt.Errorf("remediations created by hand: %w%s", err, tail(t.manager.Log))
	}
	if _, err := r.mass(ctx, t, much.mass); err != nil {
		return results, fmt.Errorf("cycles at once: %w%s", err, tail(t.manager.Log))
	}
	results.figures[residentHighest] = t.highest / mebibyte
	return results, nil
}

// alone has one host after another power-cycled, each after everything that follows from the one before is over.
func (r *hostEnvironment) alone(ctx context.Context, t *trial, n int) error {
	machines, err := r.takeUnused(n)
	if err != nil {
		return err
	}
	var cycles []cycle
	before, after, err := between(ctx, t.read, t.settle, func() error {
		for _, i := range machines {
			c, err := r.cycle(ctx, i)
			if err != nil {
				return err
			}
			cycles = append(cycles, c)
			if _, err := t.quiet(ctx, time.Second); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.recordCycles(cycles)
	d, each := after.minus(before), float64(n)
	t.figures[cycleSamples] = each
	t.figures[cyclePatches] = d.patches / each
	t.figures[cycleCreates] = d.creates / each
	t.figures[cycleReads] = d.reads / each
	t.figures[cycleOthers] = d.others / each
	t.figures[cycleWorkload] = max(d.workloadCalls, 0) / each
	t.figures[cycleCPU] = t.busy(before, after).cpu / each
	return nil
}

// byHand has one host after another power-cycled for a remediation that a user creates, so that only the power cycle is counted and not the check.
// It returns what the manager did in all of them.
func (r *hostEnvironment) byHand(ctx context.Context, t *trial, n int) (reading, error) {
	machines, err := r.takeUnused(n)
	if err != nil {
		return reading{}, err
	}
	before, after, err := between(ctx, t.shortQuiet, t.shortQuiet, func() error {
		for _, i := range machines {
			if err := r.cycleByHand(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return reading{}, err
	}
	d, each := after.minus(before), float64(n)
	t.figures[cycleOwnCalls] = d.calls() / each
	t.figures[cycleOwnWorkload] = max(d.workloadCalls, 0) / each
	return d, nil
}

// mass has a tenth of the hosts power-cycled at once. It returns what the manager did in all of them.
func (r *hostEnvironment) mass(ctx context.Context, t *trial, n int) (reading, error) {
	machines, err := r.takeUnused(n)
	if err != nil {
		return reading{}, err
	}
	defer t.watchMemory(ctx)()
	cycles := make([]cycle, n)
	before, after, err := between(ctx, t.shortQuiet, t.shortQuiet, func() error {
		group, working := errgroup.WithContext(ctx)
		for at, i := range machines {
			group.Go(func() (err error) {
				cycles[at], err = r.cycle(working, i)
				return err
			})
		}
		return group.Wait()
	})
	if err != nil {
		return reading{}, err
	}
	t.record(spans(cycles, cycle.whole), cycleMassMedian, cycleMassWorst)
	d, each := after.minus(before), float64(n)
	t.figures[cycleMassSamples] = each
	t.figures[cycleMassCalls] = d.calls() / each
	t.figures[cycleMassWorkload] = max(d.workloadCalls, 0) / each
	return d, nil
}

// recordCycles keeps how long cycles took, and each step of them.
func (t *trial) recordCycles(cycles []cycle) {
	t.record(spans(cycles, cycle.whole), cycleMedian, cycleWorst)
	t.record(spans(cycles, cycle.added), cycleAddedMedian, cycleAddedWorst)
	for _, part := range []struct {
		measured
		from, to milestone
	}{
		{cycleToRequest, nodeFailed, requested}, {cycleToOff, requested, askedOff}, {cycleHostOff, askedOff, off}, {cycleToFence, off, fenced},
		{cycleToOn, fenced, askedOn}, {cycleHostOn, askedOn, on}, {cycleToUnfence, on, unfenced}, {cycleToReady, on, nodeReady},
		{cycleToHealthy, nodeReady, healthy},
		{cycleToEnd, healthy, ended},
	} {
		took := spans(cycles, func(c cycle) time.Duration { return max(c.between(part.from, part.to), 0) })
		slices.Sort(took)
		t.figures[part.measured] = percentile(took, 50).Seconds()
	}
}

func spans(cycles []cycle, of func(cycle) time.Duration) []time.Duration {
	all := make([]time.Duration, len(cycles))
	for i, c := range cycles {
		all[i] = of(c)
	}
	return all
}
