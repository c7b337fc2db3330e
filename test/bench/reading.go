package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// reading is what the metrics of a manager say at one moment, or the difference of two.
type reading struct {
	at time.Time
	// nth is the number of this reading: each costs the manager processor time of its own.
	nth      int
	cpu      float64 // seconds
	resident float64 // bytes

	reconciles      float64 // of checks
	took            float64 // in seconds, all reconciles together
	otherReconciles float64 // of other controllers, without ClusterCache's
	// Requests to the management cluster.
	reads, patches, creates, others float64
	// workloadCalls are requests to workload clusters other than ClusterCache's probes.
	workloadCalls float64
}

// minus is what happened between two moments.
func (r reading) minus(before reading) reading {
	return reading{
		at: r.at, nth: r.nth - before.nth, cpu: r.cpu - before.cpu, resident: r.resident - before.resident,
		reconciles: r.reconciles - before.reconciles, took: r.took - before.took, otherReconciles: r.otherReconciles - before.otherReconciles,
		reads: r.reads - before.reads, patches: r.patches - before.patches, creates: r.creates - before.creates, others: r.others - before.others,
		workloadCalls: r.workloadCalls - before.workloadCalls,
	}
}

// calls are all requests to the management cluster.
func (r reading) calls() float64 { return r.reads + r.writes() }

// writes are the requests to the management cluster that change something.
func (r reading) writes() float64 { return r.patches + r.creates + r.others }

// activity is what does not change while a manager has nothing to do.
func (r reading) activity() [5]float64 {
	return [5]float64{r.reconciles, r.otherReconciles, r.patches, r.creates, r.others}
}

// The metrics and their labels.
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

// parseReading reads a page of metrics, with the reconciles of one controller. host is the management cluster.
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
			// One of these is there, the others are nil and return 0.
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

// count counts requests.
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
