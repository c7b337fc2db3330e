package nodehealthcheck

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// How a remediation can end, as values of the label result.
const (
	recoveredResult = "recovered" // the node became healthy
	replacedResult  = "replaced"  // the node is gone
	cancelledResult = "cancelled" // the requests went away although the node is not healthy
)

var (
	// Those of medik8s.
	oldRequests = counter("nodehealthcheck_old_remediation_cr",
		"Remediation requests found to be older than 48 hours, by node and namespace.", "name", "namespace")
	ongoingRemediation = gauge("nodehealthcheck_ongoing_remediation",
		"1 while a node has a remediation request, else 0; by node, namespace and kind.", "name", "namespace", "remediation")
	unhealthyDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nodehealthcheck_unhealthy_node_duration_seconds",
		Help:    "Time from the creation of a remediation request to its end; by node, namespace and kind.",
		Buckets: []float64{30, 60, 120, 180, 240, 300, 600, 1200, 2400, 3600},
	}, []string{"name", "namespace", "remediation"})

	targetsByState = gauge("kubemend_nodehealthcheck_targets",
		"Nodes of a NodeHealthCheck, by state: healthy, unhealthy, pending, recovering, unknown.", "name", "state")
	shortCircuited = gauge("kubemend_nodehealthcheck_short_circuited",
		"1 while a NodeHealthCheck is blocked, else 0; by the reason of its condition RemediationAllowed.", "name", "reason")
	nextDeadline = gauge("kubemend_nodehealthcheck_next_deadline_timestamp_seconds",
		"Unix time at which the next timeout of a node expires; 0 if none runs.", "name")
	inFlight = gauge("kubemend_nodehealthcheck_remediations_in_flight",
		"Nodes of a NodeHealthCheck with remediation requests.", "name")
	oldestRequest = gauge("kubemend_nodehealthcheck_request_oldest_timestamp_seconds",
		"Unix time at which the oldest remediation request of a NodeHealthCheck was made; 0 if there is none.", "name")
	started = counter("kubemend_nodehealthcheck_remediations_started_total",
		"Remediation requests made for a NodeHealthCheck, by kind.", "name", "kind")
	finished = counter("kubemend_nodehealthcheck_remediations_finished_total",
		"Remediations of nodes ended, by result: recovered, replaced, cancelled.", "name", "result")
	dueToActed = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubemend_nodehealthcheck_due_to_acted_seconds",
		Help:    "Time from the expiry of a node's timeout to its first remediation request.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
	})
)

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns what this package exports, for those who document or test it.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		oldRequests, ongoingRemediation, unhealthyDuration,
		targetsByState, shortCircuited, nextDeadline, inFlight, oldestRequest, started, finished, dueToActed,
	}
}

// ongoing is a request as it was seen by the last reconcile.
type ongoing struct {
	node, namespace, kind string
	since                 time.Time
}

func (r *Reconciler) measure(state *observed, plan *Plan, outcomes []outcome) {
	name, p := state.check.Name, plan.Population
	for label, n := range map[string]int{
		"healthy": p.Healthy, "unhealthy": p.Unhealthy, "pending": p.Pending, "recovering": p.Recovering, "unknown": p.Unknown,
	} {
		targetsByState.WithLabelValues(name, label).Set(float64(n))
	}
	shortCircuited.DeletePartialMatch(prometheus.Labels{"name": name})
	shortCircuited.WithLabelValues(name, string(plan.Blocker().Reason)).Set(float64(min(1, len(plan.Blockers))))
	nextDeadline.WithLabelValues(name).Set(unix(plan.NextDeadline))
	for i := range outcomes {
		r.measureOutcome(state, &outcomes[i])
	}
	r.measureRequests(state, outcomes)
}

func (r *Reconciler) measureOutcome(state *observed, o *outcome) {
	for _, j := range o.flagged {
		oldRequests.WithLabelValues(o.n.Name, o.n.Requests[j].Object.GetNamespace()).Inc()
	}
	if o.made == nil {
		return
	}
	started.WithLabelValues(state.check.Name, o.made.GetKind()).Inc()
	if due := o.Verdict.OverdueSince(state.facts.Now); !due.IsZero() && len(o.n.Requests) == 0 {
		dueToActed.Observe(r.Clock.Since(due).Seconds())
	}
}

// measureRequests compares the requests that there are with those that there were.
func (r *Reconciler) measureRequests(state *observed, outcomes []outcome) {
	ongoingNow := map[types.UID]ongoing{}
	remediated := map[string]bool{}
	results := make(map[string]string, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		results[o.n.Name] = o.result()
		requests := make([]*unstructured.Unstructured, 0, len(o.n.Requests)+1)
		for j := range o.n.Requests {
			requests = append(requests, o.n.Requests[j].Object)
		}
		if o.made != nil {
			requests = append(requests, o.made)
		}
		for _, request := range requests {
			ongoingNow[request.GetUID()] = ongoing{o.n.Name, request.GetNamespace(), request.GetKind(), request.GetCreationTimestamp().Time}
			remediated[o.n.Name] = true
		}
	}
	var first time.Time
	for _, o := range ongoingNow {
		ongoingRemediation.WithLabelValues(o.node, o.namespace, o.kind).Set(1)
		first = health.Earliest(first, o.since)
	}
	oldestRequest.WithLabelValues(state.check.Name).Set(unix(first))
	last := r.memory.of(state.check.Name)
	over := map[string]bool{}
	for uid, request := range last.begun {
		if _, still := ongoingNow[uid]; still {
			continue
		}
		ongoingRemediation.WithLabelValues(request.node, request.namespace, request.kind).Set(0)
		lasted := state.facts.Now.Sub(request.since)
		unhealthyDuration.WithLabelValues(request.node, request.namespace, request.kind).Observe(lasted.Seconds())
		over[request.node] = over[request.node] || !remediated[request.node]
	}
	last.begun = ongoingNow
	inFlight.WithLabelValues(state.check.Name).Set(float64(len(remediated)))
	for node, ended := range over {
		if ended {
			finished.WithLabelValues(state.check.Name, cmp.Or(results[node], replacedResult)).Inc()
		}
	}
}

func (o *outcome) result() string {
	switch {
	case !o.n.Exists():
		return replacedResult
	case o.Verdict.State == health.Healthy:
		return recoveredResult
	default:
		return cancelledResult
	}
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

// forget drops what is remembered and exported of a check that is not reconciled any more.
func (r *Reconciler) forget(name string) {
	for _, request := range r.memory.forget(name) {
		ongoingRemediation.DeleteLabelValues(request.node, request.namespace, request.kind)
	}
	for _, series := range []*prometheus.MetricVec{
		targetsByState.MetricVec, shortCircuited.MetricVec, nextDeadline.MetricVec, inFlight.MetricVec, oldestRequest.MetricVec, started.MetricVec,
		finished.MetricVec,
	} {
		series.DeletePartialMatch(prometheus.Labels{"name": name})
	}
}
