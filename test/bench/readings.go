package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// reading is the content of a manager's metrics at one moment, or the difference of two readings.
type reading struct {
	at time.Time
	// nth is the number of this reading. Each reading costs the manager processor time.
	nth      int
	cpu      float64 // seconds
	resident float64 // bytes

	reconciles      float64 // of the measured controller
	took            float64 // seconds of all reconciles together
	otherReconciles float64 // of other controllers, except ClusterCache
	// reads, patches, creates and others are requests to the management cluster.
	reads, patches, creates, others float64
	// workloadCalls are requests to workload clusters, except ClusterCache's probes.
	workloadCalls float64
}

// minus returns the difference of two readings.
func (r reading) minus(before reading) reading {
	return reading{
		at: r.at, nth: r.nth - before.nth, cpu: r.cpu - before.cpu, resident: r.resident - before.resident,
		reconciles: r.reconciles - before.reconciles, took: r.took - before.took,
		otherReconciles: r.otherReconciles - before.otherReconciles,
		reads:           r.reads - before.reads, patches: r.patches - before.patches, creates: r.creates - before.creates,
		others:        r.others - before.others,
		workloadCalls: r.workloadCalls - before.workloadCalls,
	}
}

// calls returns the number of requests to the management cluster.
func (r reading) calls() float64 { return r.reads + r.writes() }

// writes returns the number of requests to the management cluster that change something.
func (r reading) writes() float64 { return r.patches + r.creates + r.others }

// activity returns the counters that do not change while a manager is idle.
func (r reading) activity() [5]float64 {
	return [5]float64{r.reconciles, r.otherReconciles, r.patches, r.creates, r.others}
}

// Names of metrics.
const (
	cpuMetric        = "process_cpu_seconds_total"
	residentMetric   = "process_resident_memory_bytes"
	reconcilesMetric = "controller_runtime_reconcile_total"
	requestsMetric   = "rest_client_requests_total"
	durationMetric   = "controller_runtime_reconcile_time_seconds"
	probesMetric     = "capi_cluster_cache_healthchecks_total"

	checkController = "machinehealthcheck"
	cacheController = "clustercache"
)

// parseReading parses metrics, with the reconciles of one controller. host is the management cluster.
func parseReading(page, controller, host string, at time.Time) (reading, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		return reading{}, fmt.Errorf("parse metrics: %w", err)
	}
	for _, name := range []string{cpuMetric, residentMetric, requestsMetric} {
		if families[name] == nil {
			return reading{}, fmt.Errorf("parse metrics: there is no %s among %v", name, slices.Sorted(maps.Keys(families)))
		}
	}
	r := reading{at: at}
	sum := func(name string, into func(labels map[string]string, value float64)) {
		for _, m := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			// A metric has one of these types; the getters of the others return 0.
			into(labels, m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetUntyped().GetValue()+m.GetHistogram().GetSampleSum())
		}
	}
	sum(cpuMetric, func(_ map[string]string, v float64) { r.cpu = v })
	sum(residentMetric, func(_ map[string]string, v float64) { r.resident = v })
	sum(reconcilesMetric, func(labels map[string]string, v float64) {
		switch labels["controller"] {
		case controller:
			r.reconciles += v
		case cacheController:
		default:
			r.otherReconciles += v
		}
	})
	sum(requestsMetric, func(labels map[string]string, v float64) { r.count(labels["method"], labels["host"] == host, v) })
	sum(durationMetric, func(labels map[string]string, v float64) {
		if labels["controller"] == controller {
			r.took = v
		}
	})
	sum(probesMetric, func(_ map[string]string, v float64) { r.workloadCalls -= v })
	return r, nil
}

func (r *reading) count(method string, management bool, n float64) {
	switch {
	case !management:
		r.workloadCalls += n
	case method == http.MethodGet:
		r.reads += n
	case method == http.MethodPatch:
		r.patches += n
	case method == http.MethodPost:
		r.creates += n
	default:
		r.others += n
	}
}

// The statuses of a Machine's HealthCheckSucceeded.
const (
	succeeded = string(metav1.ConditionTrue)
	failed    = string(metav1.ConditionFalse)
)

// machineWatch watches all Machines and notes changes of HealthCheckSucceeded. It can watch remediations of nodes instead, which have no
// such condition and have the name of their node.
type machineWatch struct {
	stop func()

	mu       sync.Mutex
	statuses map[string]string // by machine
	count    map[string]int    // by status
	waiting  map[change]chan time.Time
	totals   map[string]total // by status
	// ended is closed when the watch ends. After that err is the reason.
	ended chan struct{}
	err   error
}

// change is a change of one machine that a phase waits for.
type change struct{ machine, status string }

// total is a number of machines with a status that a phase waits for.
type total struct {
	machines int
	reached  chan time.Time
}

func watchStatuses(config *rest.Config, scheme *runtime.Scheme, object client.Object) (*machineWatch, error) {
	objects, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &machineWatch{
		stop: stop, statuses: map[string]string{}, count: map[string]int{},
		waiting: map[change]chan time.Time{}, totals: map[string]total{}, ended: make(chan struct{}),
	}
	informer, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    w.observe,
			UpdateFunc: func(_, updated any) { w.observe(updated) },
		})
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	go func() {
		defer close(w.ended)
		w.err = objects.Start(ctx)
	}()
	return w, nil
}

func (w *machineWatch) close() {
	w.stop()
	<-w.ended
}

func (w *machineWatch) observe(object any) {
	switch object := object.(type) {
	case *clusterv1.Machine:
		status := ""
		if cond := conditions.Get(object, clusterv1.MachineHealthCheckSucceededCondition); cond != nil {
			status = string(cond.Status)
		}
		w.note(object.Name, status, time.Now())
	case *unstructured.Unstructured:
		w.note(object.GetAnnotations()[nhcv1.NodeNameAnnotation], "", time.Now())
	}
}

// note stores the status of a machine and sends the time to those who wait for it.
func (w *machineWatch) note(machine, status string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.statuses[machine]
	if known && before == status {
		return
	}
	w.statuses[machine] = status
	if known {
		w.count[before]--
	}
	w.count[status]++
	key := change{machine, status}
	if moment, waited := w.waiting[key]; waited {
		delete(w.waiting, key)
		moment <- at
	}
	if total, waited := w.totals[status]; waited && w.count[status] >= total.machines {
		delete(w.totals, status)
		total.reached <- at
	}
}

// becomes returns a channel that receives the time at which the machine gets that status.
func (w *machineWatch) becomes(machine, status string) <-chan time.Time {
	moment := make(chan time.Time, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[change{machine, status}] = moment
	return moment
}

// all returns a channel that receives the time at which that many machines have the status. Only the last caller for a status receives it.
func (w *machineWatch) all(machines int, status string) <-chan time.Time {
	reached := make(chan time.Time, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[status] >= machines {
		reached <- time.Now()
		return reached
	}
	w.totals[status] = total{machines, reached}
	return reached
}

// managerTimeout limits every wait for the manager. On a busy computer the first full pass of 5000 machines takes minutes.
const managerTimeout = 5 * time.Minute

// await waits for a channel that becomes or all has returned.
func (w *machineWatch) await(ctx context.Context, moment <-chan time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	select {
	case at := <-moment:
		return at, nil
	case <-w.ended:
		return time.Time{}, fmt.Errorf("the watch of machines has ended: %w", w.err)
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("wait for conditions of machines: %w", ctx.Err())
	}
}
