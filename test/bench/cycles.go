package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
)

const cycleMethod = `Hosts, the Bare Metal Operator and kubelets are simulated and obey at once, and no pods run: this is
what kubemend and the API servers add, and not how long a power cycle takes. Calls are those of the
manager, with the ones for the MachineHealthCheck and the RemediationRecord. CAPM3's controller took
25.6 s from Unknown to healthy in an environment like this one: it polls every 5 s.
`

// measureCycles measures power cycles among few hosts and among many.
func measureCycles(ctx context.Context, b bench) (section, error) {
	sizes := []int{100, 1000}
	if b.quick {
		sizes = []int{50, 100}
	}
	return section{title: "Power cycles of hosts", method: cycleMethod}.columnsOf(sizes, "%d hosts", func(n int) (figures, error) {
		return measureHosts(ctx, n, b)
	})
}

// measureHosts sets up hosts, and has some of them power-cycled.
func measureHosts(ctx context.Context, hosts int, b bench) (_ figures, err error) {
	e := &hostEnvironment{environment: &environment{count: hosts, ownKinds: true}}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	if err := e.setUp(ctx, e.fillHosts); err != nil {
		return nil, err
	}
	t := &trial{environment: e.environment, scale: scaleOf(hosts, b.quick), controller: checkController}
	if err := t.firstPass(ctx); err != nil {
		return nil, fmt.Errorf("first full pass: %w", err)
	}
	t.figures = nil // that is measured with the checks
	return t.run(ctx, []phase{
		{"idle", t.measureIdle},
		{"cycles one by one", func(ctx context.Context) error { return e.alone(ctx, t) }},
		{"cycles at once", func(ctx context.Context) error { return e.mass(ctx, t) }},
	})
}

// alone has one host after another power-cycled. Aims for reads leave room for watches that break and are made again.
func (e *hostEnvironment) alone(ctx context.Context, t *trial) error {
	machines, seen, d, err := t.changes(ctx, t.scale.alone, func(machines []int, seen *delays) error {
		return t.oneByOne(ctx, machines, seen, e.cycle)
	})
	if err != nil {
		return err
	}
	n := float64(len(machines))
	t.addDelays("From the node Unknown to the machine healthy", seen, 1, noAim)
	t.add("One cycle: writes to the management cluster", d.writes()/n, count, 42)
	t.add("One cycle: reads from the management cluster", d.reads/n, count, 25)
	t.add("One cycle: calls to the workload cluster", max(d.workloadCalls, 0)/n, count, 8)
	t.add("One cycle: processor time", d.cpu/n, seconds, noAim)
	return nil
}

// mass has a tenth of the hosts power-cycled at once.
func (e *hostEnvironment) mass(ctx context.Context, t *trial) error {
	defer t.watchMemory(ctx)()
	began := time.Now()
	machines, seen, d, err := t.changes(ctx, t.scale.mass, func(machines []int, seen *delays) error {
		group, working := errgroup.WithContext(ctx)
		for _, i := range machines {
			group.Go(func() error { return seen.add(e.cycle(working, i)) })
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	changes := 0
	for i := range e.count {
		changes += len(e.host(i).History().Since(began))
	}
	n := float64(len(machines))
	t.addDelays("A tenth at once: node Unknown to machine healthy", seen, noAim, 15)
	t.add("A tenth at once: writes for each, to the management cluster", d.writes()/n, count, 42)
	t.add("A tenth at once: reads for each, from the management cluster", d.reads/n, count, 30)
	t.add("A tenth at once: calls for each, to the workload cluster", max(d.workloadCalls, 0)/n, count, 10)
	t.add("A tenth at once: power changes but two of each host that fails", math.Abs(float64(changes)-2*n), count, 0)
	return nil
}
