package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubemend/kubemend/test/rig"
)

// runner is the manager that runs.
type runner struct {
	program
	manager *rig.Manager
	host    string // of the management cluster, as the metrics name it

	mu      sync.Mutex
	reads   int
	highest float64 // resident memory
}

// launch starts the manager and returns when it is ready.
func (e *environment) launch(ctx context.Context, p program) (*runner, error) {
	host, err := url.Parse(e.management.Config().Host)
	if err != nil {
		return nil, fmt.Errorf("read the address of the management cluster: %w", err)
	}
	manager, err := e.management.Manager(ctx, rig.ManagerOptions{Name: "kubemend", Binary: p.binary, Args: p.args})
	if err != nil {
		return nil, err
	}
	return &runner{program: p, manager: manager, host: host.Host}, nil
}

func (r *runner) end() { r.manager.Kill() }

// read reads the metrics now.
func (r *runner) read(ctx context.Context) (reading, error) {
	text, err := r.manager.Scrape(ctx)
	if err != nil {
		return reading{}, fmt.Errorf("read the metrics: %w%s", err, tail(r.manager.Log))
	}
	now, err := parseReading(text, r.controller, r.host, time.Now())
	if err != nil {
		return reading{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	now.nth = r.reads
	r.highest = max(r.highest, now.resident)
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
func (r *runner) watchMemory(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			_, _ = r.read(ctx) // an error is returned by the next phase
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
func (r *runner) quiet(ctx context.Context, long time.Duration) (reading, error) {
	ticks := time.NewTicker(long / 4)
	defer ticks.Stop()
	last, err := r.read(ctx)
	movedAt := last.at
	for err == nil && last.at.Sub(movedAt) < long {
		select {
		case <-ctx.Done():
			return reading{}, ctx.Err()
		case <-ticks.C:
		}
		before := last.activity()
		if last, err = r.read(ctx); last.activity() != before {
			movedAt = last.at
		}
	}
	return last, err
}
