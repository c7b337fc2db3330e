package main

import (
	"context"
	"sync"
	"time"
)

// failure is a node that became Unknown.
type failure struct {
	// at is when the API server had answered the write. The moment at which the machine is seen to be marked unhealthy is sent on marked.
	at     time.Time
	marked <-chan time.Time
}

func (t *trial) failNode(ctx context.Context, i int) (failure, error) {
	marked := t.machineWatch.becomes(machineName(i), failed)
	err := t.patchNode(ctx, i, longUnknown(time.Now()))
	return failure{time.Now(), marked}, err
}

// delay waits until the machine is marked and returns how long that took.
func (t *trial) delay(ctx context.Context, nodeFailed failure) (time.Duration, error) {
	at, err := t.machineWatch.await(ctx, nodeFailed.marked)
	return max(at.Sub(nodeFailed.at), 0), err
}

// failAndWait makes a node Unknown and returns how long it took until its machine was marked.
func (t *trial) failAndWait(ctx context.Context, i int) (time.Duration, error) {
	nodeFailed, err := t.failNode(ctx, i)
	if err != nil {
		return 0, err
	}
	return t.delay(ctx, nodeFailed)
}

// restore makes nodes Ready and waits until their machines are healthy.
func (t *trial) restore(ctx context.Context, machines []int) error {
	healthy := t.machineWatch.all(t.count, succeeded)
	err := t.each(ctx, machines, func(ctx context.Context, i int) error { return t.patchNode(ctx, i, readyAgain(time.Now())) })
	if err != nil {
		return err
	}
	_, err = t.machineWatch.await(ctx, healthy)
	return err
}

// changes does something to n machines whose nodes never became Unknown, and returns these, the delays that were seen, and what the manager
// did.
func (t *trial) changes(ctx context.Context, n int, do func([]int, *delays) error) ([]int, []time.Duration, reading, error) {
	machines, err := t.takeUnused(n)
	if err != nil {
		return nil, nil, reading{}, err
	}
	var seen delays
	d, err := t.during(ctx, func() error { return do(machines, &seen) })
	return machines, seen.all, d, err
}

// alone makes one node after another Unknown, each after everything that follows from the one before is over.
func (t *trial) alone(ctx context.Context) error {
	machines, seen, d, err := t.changes(ctx, t.scale.alone, func(machines []int, seen *delays) error {
		return t.oneByOne(ctx, machines, seen, t.failAndWait)
	})
	if err != nil {
		return err
	}
	n := float64(len(machines))
	t.addDelays("One change alone: marked after", seen, 0.025, 0.2)
	t.add("One change alone: patches", d.patches/n, count, 2)
	t.add("One change alone: events", d.creates/n, count, 2)                        // on the Machine, and on the check
	t.add("One change alone: reads", (d.reads+max(d.workloadCalls, 0))/n, count, 3) // what goes on beside the changes is among them
	t.add("One change alone: reconciles", d.reconciles/n, count, noAim)
	return t.restore(ctx, machines)
}

// oneByOne does something for each machine, each after everything that follows from the one before is over.
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

// spread makes nodes Unknown at even intervals, whatever the manager is doing.
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
	t.add("Changes spread: patches per change", d.patches/n, count, 2.1)
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
	t.addDelays("A tenth at once: marked after", seen, noAim, noAim) // the API server again
	t.add("A tenth at once: patches per change", d.patches/float64(len(machines)), count, 2)
	return t.restore(ctx, machines)
}

// delays are collected by many goroutines at the same time.
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
