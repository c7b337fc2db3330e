package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
)

// What is measured of power cycles.
const (
	cycleMedian      measured = "From the node Unknown to the machine healthy, p50"
	cycleWorst       measured = "From the node Unknown to the machine healthy, highest"
	cycleWrites      measured = "One cycle: writes to the management cluster"
	cycleReads       measured = "One cycle: reads from the management cluster"
	cycleWorkload    measured = "One cycle: calls to the workload cluster"
	cycleCPU         measured = "One cycle: processor time"
	cycleOwnWrites   measured = "A cycle that a user requests: writes to the management cluster"
	cycleOwnReads    measured = "A cycle that a user requests: reads from the management cluster"
	cycleOwnWorkload measured = "A cycle that a user requests: calls to the workload cluster"

	cycleMassMedian   measured = "A tenth at once: node Unknown to machine healthy, p50"
	cycleMassWorst    measured = "A tenth at once: node Unknown to machine healthy, p99"
	cycleMassWrites   measured = "A tenth at once: writes for each, to the management cluster"
	cycleMassReads    measured = "A tenth at once: reads for each, from the management cluster"
	cycleMassWorkload measured = "A tenth at once: calls for each, to the workload cluster"
	cycleOthers       measured = "A tenth at once: power changes but two of each host that fails"
)

// cycleRows are the lines of the table of power cycles. Aims for reads leave room for watches that break and are made again.
func cycleRows() []row {
	return []row{
		{cycleMedian, seconds, 1},
		{cycleWorst, seconds, noAim},
		{cycleWrites, count, 42},
		{cycleReads, count, 25},
		{cycleWorkload, count, 8},
		{cycleCPU, seconds, noAim},
		{cycleOwnWrites, count, 30},
		{cycleOwnReads, count, 20},
		{cycleOwnWorkload, count, 8},
		{cycleMassMedian, seconds, noAim},
		{cycleMassWorst, seconds, 15},
		{cycleMassWrites, count, 42},
		{cycleMassReads, count, 30},
		{cycleMassWorkload, count, 10},
		{cycleOthers, count, 0},
		{idleCPU, milliseconds1000, 0.01},
		{idleCalls, count, 1},
		{residentSteady, mebibytes, noAim},
		{residentHighest, mebibytes, 160},
	}
}

const cycleMethod = `One management and one workload API server of their own, with as many Machines, Metal3Machines,
BareMetalHosts (of about 8 KiB), Nodes and one MachineHealthCheck with a HostRemediationTemplate.
Hosts, the Bare Metal Operator that switches them and kubelets are simulated: a host is powered off
or on at once, and its kubelet reports Ready at once under a new boot ID. No pods run, so there is
nothing to wait for after a node is fenced. So this is what kubemend and the API servers add, and
not how long a power cycle takes.

- **From the node Unknown to the machine healthy**: from the API server's answer to the write of
  Ready=Unknown, dated 30 minutes back, to HealthCheckSucceeded=True again.
- **Writes, reads, calls**: of the manager, in rest_client_requests_total, until it is quiet; those
  for the MachineHealthCheck and for the RemediationRecord are among them, ClusterCache's probes are
  not.

CAPM3's controller took 25.6 s from Unknown to healthy in an environment like this one, measured
once by hand: it polls every remediation each 5 s.
`

// cycleSizes are the numbers of hosts of which some are power-cycled.
func cycleSizes(quick bool) []int {
	if quick {
		return []int{20, 50}
	}
	return []int{100, 1000}
}

// measureCycles measures power cycles among few hosts and among many.
func measureCycles(ctx context.Context, b bench) (section, error) {
	s := section{title: "Power cycles of hosts", method: cycleMethod}
	var columns []string
	var all []figures
	for _, hosts := range cycleSizes(b.quick) {
		of, err := measureHosts(ctx, hosts, b)
		columns, all = append(columns, fmt.Sprintf("%d hosts", hosts)), append(all, of)
		if err != nil {
			return s, fmt.Errorf("%d hosts: %w", hosts, err)
		}
	}
	s.tables = []table{tableOf(cycleRows(), columns, all...)}
	return s, nil
}

// measureHosts sets up hosts, and has some of them power-cycled.
func measureHosts(ctx context.Context, hosts int, b bench) (_ figures, err error) {
	e, err := setUpHosts(ctx, hosts, b.crds)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	much := scaleOf(e.size, b.quick)
	t := &trial{environment: e.environment, scale: much, figures: figures{}}
	if err := t.firstPass(ctx, b.kubemend()); err != nil {
		return nil, fmt.Errorf("first full pass: %w", err)
	}
	defer t.end()
	for _, phase := range []struct {
		name string
		run  func() error
	}{
		{"idle", func() error { return t.measureIdle(ctx) }},
		{"cycles one by one", func() error { return e.alone(ctx, t, much.alone) }},
		{"remediations created by hand", func() error { return e.byHand(ctx, t, much.alone) }},
		{"cycles at once", func() error { return e.mass(ctx, t, much.mass) }},
	} {
		if err := phase.run(); err != nil {
			return nil, fmt.Errorf("%s: %w%s", phase.name, err, tail(t.manager.Log))
		}
		progress("%d hosts: %s: done", hosts, phase.name)
	}
	t.figures[residentHighest] = t.highest / mebibyte
	return t.figures, nil
}

// alone has one host after another power-cycled, each after everything that follows from the one before is over.
func (e *hostEnvironment) alone(ctx context.Context, t *trial, n int) error {
	machines, err := e.takeUnused(n)
	if err != nil {
		return err
	}
	var seen delays
	d, err := t.during(ctx, func() error {
		for _, i := range machines {
			if err := seen.add(e.cycle(ctx, i)); err != nil {
				return err
			}
			if _, err := t.quiet(ctx, time.Second); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.record(seen.all, cycleMedian, cycleWorst)
	t.recordCalls(d, n, cycleWrites, cycleReads, cycleWorkload)
	t.figures[cycleCPU] = d.cpu / float64(n)
	return nil
}

// byHand has one host after another power-cycled for a remediation that a user creates, so that only the power cycle is counted and not
// the check.
func (e *hostEnvironment) byHand(ctx context.Context, t *trial, n int) error {
	machines, err := e.takeUnused(n)
	if err != nil {
		return err
	}
	d, err := t.during(ctx, func() error {
		for _, i := range machines {
			if err := e.cycleByHand(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	t.recordCalls(d, n, cycleOwnWrites, cycleOwnReads, cycleOwnWorkload)
	return err
}

// mass has a tenth of the hosts power-cycled at once.
func (e *hostEnvironment) mass(ctx context.Context, t *trial, n int) error {
	machines, err := e.takeUnused(n)
	if err != nil {
		return err
	}
	defer t.watchMemory(ctx)()
	began := time.Now()
	var seen delays
	d, err := t.during(ctx, func() error {
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
	for i := range e.size.machines {
		changes += len(e.host(i).History().Since(began))
	}
	t.record(seen.all, cycleMassMedian, cycleMassWorst)
	t.recordCalls(d, n, cycleMassWrites, cycleMassReads, cycleMassWorkload)
	t.figures[cycleOthers] = math.Abs(float64(changes - 2*n))
	return nil
}

// recordCalls keeps what each of n cycles took.
func (t *trial) recordCalls(d reading, n int, writes, reads, workload measured) {
	each := float64(n)
	t.figures[writes] = d.writes() / each
	t.figures[reads] = d.reads / each
	t.figures[workload] = max(d.workloadCalls, 0) / each
}
