package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// smallFleet is one of several fleets from which the cost of a cluster, a machine and a check is derived.
type smallFleet struct {
	size
	// parts is how many checks share the machines of each cluster.
	parts int
}

func (p smallFleet) String() string {
	return fmt.Sprintf("%d machines over %d clusters with %d checks", p.machines, p.clusters, p.checks())
}

func (p smallFleet) checks() int { return p.clusters * p.parts }

// smallFleets differ in one number after another, with at least three values of each, so that every slope has a residual.
func smallFleets(quick bool) []smallFleet {
	if quick {
		return []smallFleet{{size{20, 2}, 1}, {size{40, 2}, 1}, {size{80, 2}, 1}, {size{40, 8}, 1}, {size{40, 4}, 2}}
	}
	return []smallFleet{
		{size{400, 10}, 1}, {size{1500, 10}, 1}, {size{4000, 10}, 1}, {size{400, 40}, 1}, {size{400, 80}, 1}, {size{400, 40}, 5},
	}
}

func smallFleetScale(p smallFleet, quick bool) scale {
	if quick {
		return scale{mass: p.machines / 10, beats: 100, reconciles: 2, idle: 5 * time.Second}
	}
	return scale{mass: p.machines / 10, beats: 1000, reconciles: max(2, 100/p.clusters), idle: 30 * time.Second} // a hundred reconciles, or some more
}

// smallFleetResults are what was measured of a small fleet.
type smallFleetResults struct {
	smallFleet
	figures figures
}

// measureFleet measures what grows with clusters, machines and checks. A small fleet that fails twice is left out if the others are enough.
func (r *report) measureFleet(ctx context.Context, binaries map[string]string) error {
	var errs []error
	for _, p := range smallFleets(r.settings.quick) {
		of, err := measureSmallFleet(ctx, p, r.settings, binaries)
		if err != nil && ctx.Err() == nil {
			progress("%s: once more, since it failed: %v", p, err)
			of, err = measureSmallFleet(ctx, p, r.settings, binaries)
		}
		r.fleet = append(r.fleet, smallFleetResults{p, of})
		if err != nil {
			progress("%s: failed: %v", p, err)
			errs = append(errs, fmt.Errorf("measure what %s cost: %w", p, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if _, err := fitRates(r.fleet); err != nil || ctx.Err() != nil {
		return errors.Join(append(errs, err)...)
	}
	return nil
}

// measureSmallFleet measures one manager three times on the same objects: at its first start, when every Machine is written once; started
// again, when nothing is left to write; and as a shard that none of the objects belongs to.
func measureSmallFleet(ctx context.Context, p smallFleet, s settings, binaries map[string]string) (_ figures, err error) {
	e, err := setUp(ctx, &environment{size: p.size, parts: p.parts, secure: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	c := s.kubemend()
	t := &trial{environment: e, scale: smallFleetScale(p, s.quick), figures: figures{}}
	var errs []error
	for _, phase := range []struct {
		name string
		run  func(context.Context, contender, string) error
	}{{"first start", t.settled}, {"started again", t.restarted}, {"of another shard", t.ofOtherShard}} {
		since := time.Now()
		if err := phase.run(ctx, c, binaries[c.source]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", phase.name, err)) // the others measure something else
		}
		t.progress("%s took %.1fs", phase.name, time.Since(since).Seconds())
	}
	return t.figures, errors.Join(errs...)
}

// settled measures what goes on for as long as the manager runs.
func (t *trial) settled(ctx context.Context, c contender, binary string) error {
	profiler, err := profiled(&c)
	if err != nil {
		return err
	}
	if err := t.firstPass(ctx, c, binary); err != nil {
		return err
	}
	defer t.end()
	for _, phase := range []func(context.Context) error{t.idling, t.heartbeats, t.steadyReconciles, t.mass} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	t.figures[residentHighest] = t.highest / mebibyte
	collected, err := t.collected(ctx, profiler)
	if err != nil {
		return err
	}
	t.figures[heapInUse] = collected.heap / mebibyte
	return nil
}

// idling is measureIdle, with the calls to the management cluster and the open files meanwhile.
func (t *trial) idling(ctx context.Context) error {
	before, err := t.settle(ctx)
	if err != nil {
		return err
	}
	if err := t.measureIdle(ctx); err != nil {
		return err
	}
	after, err := t.read(ctx)
	if err != nil {
		return err
	}
	t.figures[idleCalls] = after.minus(before).calls() / after.at.Sub(before.at).Seconds()
	t.figures[openFiles] = after.files
	return nil
}

// restarted measures how long a manager takes, and what it costs, until it has judged all machines after a restart.
func (t *trial) restarted(ctx context.Context, c contender, binary string) (err error) {
	since := time.Now()
	if t.runner, err = t.launch(ctx, c, binary); err != nil {
		return err
	}
	defer t.end()
	var last reading
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, contenderTimeout, true, func(ctx context.Context) (bool, error) {
		last, err = t.read(ctx)
		return last.healthy >= float64(t.size.machines), err
	})
	if err != nil {
		return fmt.Errorf("wait until %d machines are judged (%.0f are): %w%s", t.size.machines, last.healthy, err, tail(t.manager.Log))
	}
	t.figures[restartTime] = last.at.Sub(since).Seconds()
	t.figures[restartCPU] = max(last.cpu-t.readingCost.cpu*float64(last.nth), 0)
	if last.patches > 0 {
		t.progress("started again, it wrote %.0f patches", last.patches)
	}
	return nil
}

// ofOtherShard measures what the objects cost a manager whose --watch-filter none of them matches.
func (t *trial) ofOtherShard(ctx context.Context, c contender, binary string) error {
	profiler, err := profiled(&c)
	if err != nil {
		return err
	}
	c.args = append(c.args, "--watch-filter=another")
	if t.runner, err = t.launch(ctx, c, binary); err != nil {
		return err
	}
	defer t.end()
	quiet, err := t.settle(ctx)
	if err != nil {
		return err
	}
	if quiet.healthy > 0 || quiet.workloadCalls > 0 {
		return fmt.Errorf("objects of another shard were reconciled: %.0f machines are judged, %.0f requests went to workload clusters",
			quiet.healthy, quiet.workloadCalls)
	}
	t.figures[otherShardCPU] = max(quiet.cpu-t.readingCost.cpu*float64(quiet.nth), 0)
	t.figures[otherShardResident] = quiet.resident / mebibyte
	collected, err := t.collected(ctx, profiler)
	if err != nil {
		return err
	}
	t.figures[otherShardHeap] = collected.heap / mebibyte
	return nil
}

// profiled has a contender serve its profiler, on the port of 127.0.0.1 that is returned.
func profiled(c *contender) (string, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port for the profiler: %w", err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		return "", fmt.Errorf("find a port for the profiler: %w", err)
	}
	c.args = append(c.args[:len(c.args):len(c.args)], "--profiler-address="+address)
	return address, nil
}

// collected reads the metrics just after a garbage collection, which the profiler starts.
func (t *trial) collected(ctx context.Context, profiler string) (reading, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+profiler+"/debug/pprof/heap?gc=1", http.NoBody)
	if err != nil {
		return reading{}, fmt.Errorf("collect garbage: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reading{}, fmt.Errorf("collect garbage: %w", err)
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return reading{}, fmt.Errorf("collect garbage: %w", err)
	}
	return t.read(ctx)
}
