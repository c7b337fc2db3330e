package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterName is the name of the workload cluster of an environment.
const clusterName = "edge-000"

// machineName returns the name of a machine and of its node. It is about as long as the names of a MachineDeployment.
func machineName(i int) string { return fmt.Sprintf("%s-md-0-x7kq2-%05d", clusterName, i) }

// scale is the number of changes in each phase.
type scale struct {
	alone      int // changes one after another
	spread     int // changes at even intervals over spreadOver
	mass       int // changes at once
	beats      int // heartbeats
	spreadOver time.Duration
	idle       time.Duration
	beatsCPU   float64 // the aim for the processor time of 1000 heartbeats
}

// scaleOf returns a scale whose phases together change no machine twice.
func scaleOf(machines int, quick bool) scale {
	if quick {
		return scale{alone: 5, spread: 20, mass: machines / 10, beats: 200, spreadOver: 5 * time.Second, idle: 5 * time.Second,
			beatsCPU: 0.6}
	}
	return scale{alone: 20, spread: 60, mass: machines / 10, beats: 1000, spreadOver: 40 * time.Second, idle: 20 * time.Second,
		beatsCPU: 0.6}
}

const checkMethod = `One management and one workload API server, Machines of about 4 KiB and of one MachineSet, Nodes of
about 8 KiB, one MachineHealthCheck, no other controller. API servers, etcd, the manager and the clients
share the cores, so a delay is also theirs. Each change begins a remediation: the Machine is marked, its
RemediationRecord is created, its owner is asked, and the record says that it was.

- **Marked after**: from the API server's answer to the write of Ready=Unknown to the watch event with
  HealthCheckSucceeded=False. *Alone*: one change at a time. *Spread*: at even intervals. *A tenth at
  once*: written by 24 clients. *A bare client* patches as many Machines for as many Nodes, and does
  nothing else.
- **First full pass**: until every Machine has HealthCheckSucceeded=True.
- **1000 heartbeats**: 100 a second, each changes only lastHeartbeatTime.
- **Processor time** is without what an idle manager needs.
`

// measureChecks measures MachineHealthChecks. The aims hold up to 5000 machines.
func measureChecks(ctx context.Context, b bench) (section, error) {
	sizes := []int{1000, 5000}
	if b.quick {
		sizes = []int{100, 200}
	}
	return section{title: "MachineHealthChecks", method: checkMethod}.columnsOf(sizes, "%d machines in one cluster",
		func(n int) (figures, error) {
			return measureCheck(ctx, n, b)
		})
}

func measureCheck(ctx context.Context, machines int, b bench) (_ figures, err error) {
	e := &environment{count: machines, ownKinds: true}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	if err := e.setUp(ctx, e.fill); err != nil {
		return nil, err
	}
	t := &trial{environment: e, scale: scaleOf(machines, b.quick), controller: checkController}
	if err := t.firstPass(ctx); err != nil {
		return nil, fmt.Errorf("first full pass: %w", err)
	}
	return t.run(ctx, []phase{
		{"idle", t.measureIdle}, {"heartbeats", t.heartbeats},
		{"changes one by one", t.alone}, {"changes spread", t.spread}, {"changes at once", t.mass},
	})
}

// failure is a node that has become Unknown.
type failure struct {
	// at is when the API server answered the patch of the node. marked receives the time at which the Machine is marked unhealthy.
	at     time.Time
	marked <-chan time.Time
}

func (t *trial) failNode(ctx context.Context, i int) (failure, error) {
	marked := t.machineWatch.becomes(machineName(i), failed)
	err := t.patchNode(ctx, i, longUnknown(time.Now()))
	return failure{time.Now(), marked}, err
}

// delay waits until the machine is marked unhealthy, and returns how long that took.
func (t *trial) delay(ctx context.Context, nodeFailed failure) (time.Duration, error) {
	at, err := t.machineWatch.await(ctx, nodeFailed.marked)
	return max(at.Sub(nodeFailed.at), 0), err
}

// failAndWait makes a node Unknown, waits until its machine is marked unhealthy, and returns how long that took.
func (t *trial) failAndWait(ctx context.Context, i int) (time.Duration, error) {
	nodeFailed, err := t.failNode(ctx, i)
	if err != nil {
		return 0, err
	}
	return t.delay(ctx, nodeFailed)
}

// restore makes nodes Ready, and waits until their machines are healthy.
func (t *trial) restore(ctx context.Context, machines []int) error {
	healthy := t.machineWatch.all(t.count, succeeded)
	err := t.each(ctx, machines, func(ctx context.Context, i int) error { return t.patchNode(ctx, i, readyAgain(time.Now())) })
	if err != nil {
		return err
	}
	_, err = t.machineWatch.await(ctx, healthy)
	return err
}

// changes calls do for n machines whose nodes were never Unknown. It returns the machines, the delays, and what the manager did.
func (t *trial) changes(ctx context.Context, n int, do func([]int, *delays) error) ([]int, []time.Duration, reading, error) {
	machines, err := t.takeUnused(n)
	if err != nil {
		return nil, nil, reading{}, err
	}
	var seen delays
	d, err := t.during(ctx, func() error { return do(machines, &seen) })
	return machines, seen.all, d, err
}

// alone makes one node after another Unknown. It waits until the manager is idle before the next one.
func (t *trial) alone(ctx context.Context) error {
	machines, seen, d, err := t.changes(ctx, t.scale.alone, func(machines []int, seen *delays) error {
		return t.oneByOne(ctx, machines, seen, t.failAndWait)
	})
	if err != nil {
		return err
	}
	n := float64(len(machines))
	t.addDelays("One change alone: marked after", seen, 0.025, 0.2)
	// Two patches of the Machine (unhealthy, owner remediation), two of the check, two of the record (begun, waiting for the owner).
	t.add("One change alone: patches", d.patches/n, count, 6)
	t.add("One change alone: objects created", d.creates/n, count, 4) // the record, and events on the Machine and the check
	t.add("One change alone: reads", (d.reads+max(d.workloadCalls, 0))/n, count, 5)
	t.add("One change alone: reconciles", d.reconciles/n, count, noAim)
	return t.restore(ctx, machines)
}

// oneByOne calls do for each machine. It waits until the manager is idle before the next one.
func (t *trial) oneByOne(ctx context.Context, machines []int, seen *delays, do func(context.Context, int) (time.Duration, error)) error {
	for _, i := range machines {
		if err := seen.add(do(ctx, i)); err != nil {
			return err
		}
		if _, err := t.quiet(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// spread makes nodes Unknown at even intervals, even if the manager is still busy.
func (t *trial) spread(ctx context.Context) error {
	machines, seen, d, err := t.changes(ctx, t.scale.spread, func(machines []int, seen *delays) error {
		return t.paced(ctx, machines, t.scale.spreadOver/time.Duration(len(machines)), func(ctx context.Context, i int) error {
			return seen.add(t.failAndWait(ctx, i))
		})
	})
	if err != nil {
		return err
	}
	n := float64(len(machines))
	t.addDelays("Changes spread: marked after", seen, noAim, 0.2)
	t.add("Changes spread: patches per change", d.patches/n, count, 6)
	t.add("Changes spread: processor time per 1000 changes", d.cpu*1000/n, seconds, 15)
	return t.restore(ctx, machines)
}

// mass makes a tenth of the nodes Unknown at once.
func (t *trial) mass(ctx context.Context) error {
	defer t.watchMemory(ctx)()
	machines, seen, d, err := t.changes(ctx, t.scale.mass, func(machines []int, seen *delays) error {
		failures := make([]failure, len(machines))
		err := t.each(ctx, machines, func(ctx context.Context, i int) (err error) {
			failures[i-machines[0]], err = t.failNode(ctx, i)
			return err
		})
		for i := 0; err == nil && i < len(failures); i++ {
			err = seen.add(t.delay(ctx, failures[i]))
		}
		return err
	})
	if err != nil {
		return err
	}
	t.addDelays("A tenth at once: marked after", seen, noAim, noAim) // the API server takes most of the time
	t.add("A tenth at once: patches per change", d.patches/float64(len(machines)), count, 6)
	t.add("A tenth at once: reads per change", (d.reads+max(d.workloadCalls, 0))/float64(len(machines)), count, 3)
	bare, err := t.bareClient(ctx, machines)
	if err != nil {
		return err
	}
	t.addDelays("A tenth at once: a bare client", bare, noAim, noAim)
	t.add("A tenth at once: marked after, p99, in times of a bare client", percentile(seen, 99).Seconds()/percentile(bare, 99).Seconds(),
		count, 1.4)
	return t.restore(ctx, machines)
}

// bareClient patches the nodes of machines again, at the same speed. For each node it returns how long a client without any logic takes to
// patch the Machine, with as many patches at a time as the manager.
func (t *trial) bareClient(ctx context.Context, machines []int) ([]time.Duration, error) {
	const writers = 32
	type written struct {
		machine int
		at      time.Time
	}
	var seen delays
	nodes := make(chan written, len(machines))
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error {
			for node := range nodes {
				machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machineName(node.machine)}}
				patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))
				err := t.managementClient.Status().Patch(ctx, machine, patch)
				if err := seen.add(time.Since(node.at), err); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := t.each(ctx, machines, func(ctx context.Context, i int) error {
		err := t.patchNode(ctx, i, heartbeat(i))
		nodes <- written{i, time.Now()}
		return err
	})
	close(nodes)
	return seen.all, errors.Join(err, group.Wait())
}

// delays collects delays from many goroutines.
type delays struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *delays) add(delay time.Duration, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, delay)
	return err
}
