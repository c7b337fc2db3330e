package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// The statuses of a machine's HealthCheckSucceeded.
const (
	succeeded = "True"
	failed    = "False"
)

// machinesPath is where all machines are.
const machinesPath = "/apis/cluster.x-k8s.io/v1beta2/machines"

// machineWatch watches all machines and notes when their HealthCheckSucceeded changes; or all remediations of nodes, which have none, and
// are named by their node.
type machineWatch struct {
	ask  func() (io.ReadCloser, error)
	stop func()

	mu       sync.Mutex
	statuses map[string]string // by machine
	count    map[string]int    // by status
	waiting  map[change]chan time.Time
	totals   map[string]total // by status
	// ended is closed when the watch is over; err says why and may be read from then on.
	ended chan struct{}
	err   error
}

// change is a change that a phase waits for.
type change struct{ machine, status string }

// total is a number of machines that a phase waits for.
type total struct {
	machines int
	reached  chan time.Time
}

// event is what is read of a watch event. The whole machine is not decoded: this process shares its cores with
// those that it measures.
type event struct {
	Type   string `json:"type"`
	Object struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Status struct {
			Conditions []struct {
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"conditions"`
		} `json:"status"`
	} `json:"object"`
}

// watchStatuses begins to watch the machines. A watch without a resource version begins with those that exist.
func watchStatuses(ctx context.Context, config *rest.Config, path string) (*machineWatch, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client to watch machines: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	l := &machineWatch{
		stop: stop, statuses: map[string]string{}, count: map[string]int{},
		waiting: map[change]chan time.Time{}, totals: map[string]total{}, ended: make(chan struct{}),
	}
	l.ask = func() (io.ReadCloser, error) { return watchMachines(ctx, client, config.Host+path) }
	events, err := l.ask()
	if err != nil {
		stop()
		return nil, err
	}
	go l.follow(events)
	return l, nil
}

func watchMachines(ctx context.Context, client *http.Client, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?watch=true&timeoutSeconds=7200", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("watch machines: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("watch machines: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("watch machines: %s", response.Status), response.Body.Close())
	}
	return response.Body, nil
}

func (l *machineWatch) close() {
	l.stop()
	<-l.ended
}

// follow notes the statuses of machines until the watch ends. The API server cuts off a watch that is not read fast enough, which
// happens on a busy computer. A watch that has sent an event is opened again, and begins with all machines as they are by then.
func (l *machineWatch) follow(events io.ReadCloser) {
	defer close(l.ended)
	for {
		told, err := l.listen(json.NewDecoder(events))
		_ = events.Close() // it has been read to its end
		if told && errors.Is(err, io.EOF) {
			if events, err = l.ask(); err == nil {
				continue
			}
		}
		l.err = err
		return
	}
}

// listen notes events until there are no more, and reports whether there was one.
func (l *machineWatch) listen(events *json.Decoder) (told bool, err error) {
	for {
		var e event
		if err := events.Decode(&e); err != nil {
			return told, fmt.Errorf("watch machines: %w", err)
		}
		if e.Type != "ADDED" && e.Type != "MODIFIED" {
			return told, fmt.Errorf("watch machines: an event %s of %q", e.Type, e.Object.Metadata.Name)
		}
		told = true
		status := ""
		for _, c := range e.Object.Status.Conditions {
			if c.Type == clusterv1.MachineHealthCheckSucceededCondition {
				status = c.Status
			}
		}
		l.note(cmp.Or(e.Object.Metadata.Annotations[nhcv1.NodeNameAnnotation], e.Object.Metadata.Name), status, time.Now())
	}
}

// note notes the status of a machine and sends the moment to those who wait for it.
func (l *machineWatch) note(machine, status string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, known := l.statuses[machine]
	if known && was == status {
		return
	}
	l.statuses[machine] = status
	if known {
		l.count[was]--
	}
	l.count[status]++
	key := change{machine, status}
	if granted, waited := l.waiting[key]; waited {
		delete(l.waiting, key)
		granted <- at
	}
	if q, waited := l.totals[status]; waited && l.count[status] >= q.machines {
		delete(l.totals, status)
		q.reached <- at
	}
}

// becomes returns where the moment is sent at which the machine gets that status.
func (l *machineWatch) becomes(machine, status string) <-chan time.Time {
	granted := make(chan time.Time, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[change{machine, status}] = granted
	return granted
}

// all returns where the moment is sent at which so many machines have that status, now or later. For each status
// only the last caller is served.
func (l *machineWatch) all(machines int, status string) <-chan time.Time {
	reached := make(chan time.Time, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count[status] >= machines {
		reached <- time.Now()
		return reached
	}
	l.totals[status] = total{machines, reached}
	return reached
}

// managerTimeout bounds every wait for the manager: on a busy computer the first full pass of 5000 machines takes minutes.
const managerTimeout = 5 * time.Minute

// await waits for a moment that becomes or all sends.
func (l *machineWatch) await(ctx context.Context, moment <-chan time.Time) (time.Time, error) {
	late := time.NewTimer(managerTimeout)
	defer late.Stop()
	select {
	case at := <-moment:
		return at, nil
	case <-late.C:
		return time.Time{}, fmt.Errorf("wait for conditions of machines: not written within %s", managerTimeout)
	case <-l.ended:
		return time.Time{}, l.err
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}
