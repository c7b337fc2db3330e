package machinehealthcheck

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// The values of the label result: how a remediation can end.
const (
	recoveredResult = "recovered" // the machine became healthy
	replacedResult  = "replaced"  // the machine is gone
	cancelledResult = "cancelled" // the machine is skipped now, or the request went away without success
)

var (
	modes = ofCheck("kubemend_machinehealthcheck_mode",
		"1 for the mode of a MachineHealthCheck: acting (kubemend), observing (core acts, kubemend judges), core, paused, none.", "mode")

	targetsByState = ofCheck("kubemend_machinehealthcheck_targets",
		"Machines of a MachineHealthCheck, by state: healthy, unhealthy, pending, starting, deleting, unknown.", "state")

	shortCircuited = ofCheck("kubemend_machinehealthcheck_short_circuited",
		"1 while its limits block a MachineHealthCheck, or are impossible, else 0.")

	blockedMachines = ofCheck("kubemend_machinehealthcheck_blocked",
		"Unhealthy machines of a MachineHealthCheck whose remediation is blocked, by the reason of the first blocker.", "reason")

	nextDeadline = ofCheck("kubemend_machinehealthcheck_next_deadline_timestamp_seconds",
		"Unix time at which the next timeout of a machine expires; 0 if none runs.")

	inFlight = ofCheck("kubemend_remediations_in_flight",
		"Remediations of a MachineHealthCheck in flight.")

	oldestRequest = ofCheck("kubemend_remediation_request_oldest_timestamp_seconds",
		"Unix time at which the oldest remediation request of a MachineHealthCheck was made; 0 if there is none.")

	started = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_remediations_started_total",
		Help: "Remediations started, by kind: Owner, or the kind of the remediation request.",
	}, []string{"namespace", "name", "cluster", "kind"})

	finished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_remediations_finished_total",
		Help: "Remediations ended, by kind and result: recovered, replaced, cancelled.",
	}, []string{"namespace", "name", "cluster", "kind", "result"})

	dueToActed = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubemend_remediation_due_to_acted_seconds",
		Help:    "Time from the expiry of a machine's timeout to the write that marks it unhealthy.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
	})

	reachable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubemend_workload_cluster_reachable",
		Help: "1 while the nodes of a workload cluster can be judged, 0 while it is unreachable.",
	}, []string{"namespace", "cluster"})
)

func ofCheck(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"namespace", "name", "cluster"}, labels...))
}

func init() {
	metrics.Registry.MustRegister(Metrics()...)
}

// Metrics returns the metrics of this package.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		modes, targetsByState, shortCircuited, blockedMachines, nextDeadline,
		inFlight, oldestRequest, started, finished, dueToActed, reachable,
	}
}

// measureMode exports who acts on a check, as one series. state is nil when the check is gone.
func measureMode(key types.NamespacedName, state *observed) {
	if state == nil {
		modes.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "name": key.Name})
		return
	}
	acting, _, _ := state.Acting()
	for _, mode := range []cliv1.Mode{cliv1.ModeActing, cliv1.ModeObserving, cliv1.ModeCore, cliv1.ModePaused, cliv1.ModeNone} {
		if mode != acting {
			modes.DeleteLabelValues(key.Namespace, key.Name, state.Check.Spec.ClusterName, strings.ToLower(string(mode)))
		}
	}
	modes.WithLabelValues(key.Namespace, key.Name, state.Check.Spec.ClusterName, strings.ToLower(string(acting))).Set(1)
}

func measure(state *observed, plan *Plan, outcomes []outcome) {
	labels := []string{state.Check.Namespace, state.Check.Name, state.Check.Spec.ClusterName}
	if state.Settled() {
		measureState(state, plan, labels)
	}
	measureBlocked(plan, labels)
	begun := 0
	for _, o := range outcomes {
		if o.requested {
			begun++
		}
		if !o.newlyUnhealthy() {
			continue
		}
		if due := o.Verdict.OverdueSince(state.Now); !due.IsZero() {
			dueToActed.Observe(o.at.Sub(due).Seconds())
		}
	}
	if state.Template.Known {
		inFlight.WithLabelValues(labels...).Set(float64(plan.Population.InFlight + begun))
		oldestRequest.WithLabelValues(labels...).Set(unix(madeFirst(plan.Open)))
	}
	if n := begun + begunUncounted(state, plan); n > 0 {
		started.WithLabelValues(append(labels, state.remediator())...).Add(float64(n))
	}
	for over, n := range ended(state, plan) {
		finished.WithLabelValues(append(labels, over.kind, over.result)...).Add(float64(n))
	}
}

func measureState(state *observed, plan *Plan, labels []string) {
	p := &plan.Population
	for state, n := range map[string]int{
		"healthy": p.Healthy, "unhealthy": p.Unhealthy, "pending": p.Pending,
		"starting": p.Starting, "deleting": p.Deleting, "unknown": p.Unknown,
	} {
		targetsByState.WithLabelValues(append(labels, state)...).Set(float64(n))
	}
	shortCircuited.WithLabelValues(labels...).Set(number(state.Invalid != nil || plan.Grant.ShortCircuited()))
	nextDeadline.WithLabelValues(labels...).Set(unix(plan.VerdictsUntil))
	if state.Initialized() {
		reachable.WithLabelValues(state.Check.Namespace, state.Check.Spec.ClusterName).Set(number(state.view.Link == health.Up))
	}
}

// measureBlocked exports the number of unhealthy machines by their first blocker, and deletes the series of other blockers.
func measureBlocked(plan *Plan, labels []string) {
	blocked := map[Reason]int{}
	for _, decision := range plan.Open {
		if decision.Verdict.State == health.Unhealthy && len(decision.Blockers) > 0 && !decision.InFlight {
			blocked[decision.Blockers[0].Rule]++
		}
	}
	for i := range rules {
		values := append(slices.Clone(labels), string(rules[i].Reason))
		if n := blocked[rules[i].Reason]; n > 0 {
			blockedMachines.WithLabelValues(values...).Set(float64(n))
		} else {
			blockedMachines.DeleteLabelValues(values...)
		}
	}
}

// madeFirst returns when the oldest request of the targets was created; zero if there is none. A machine with a request is open.
func madeFirst(open []*Decision) time.Time {
	var first time.Time
	for _, decision := range open {
		if req := decision.Target.Request; req != nil {
			first = health.Earliest(first, req.GetCreationTimestamp().Time)
		}
	}
	return first
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

// forget drops the memory and the metrics of a check that is gone or not reconciled any more.
func (r *Reconciler) forget(key types.NamespacedName, away bool) {
	r.spares.Delete(key)
	r.Ledger.Forget(placesOf(key))
	value, _ := r.memory.LoadAndDelete(key)
	if away {
		r.memory.Store(key, remembered{away: true})
	}
	gone, _ := value.(remembered)
	if gone.cluster == "" {
		return
	}
	labels := prometheus.Labels{"namespace": key.Namespace, "name": key.Name}
	for _, series := range []*prometheus.MetricVec{
		targetsByState.MetricVec, shortCircuited.MetricVec, blockedMachines.MetricVec, nextDeadline.MetricVec,
		inFlight.MetricVec, oldestRequest.MetricVec, started.MetricVec, finished.MetricVec,
	} {
		series.DeletePartialMatch(labels)
	}
	last := true // the last check of its Cluster
	r.memory.Range(func(other, kept any) bool {
		last = other.(types.NamespacedName).Namespace != key.Namespace || kept.(remembered).cluster != gone.cluster
		return last
	})
	if last {
		reachable.DeleteLabelValues(key.Namespace, gone.cluster)
	}
}

// begunUncounted returns the number of remediations in flight that no reconcile counted, because the answer to the write that began them
// was lost. For a check that is only observed it is zero: others begin its remediations.
func begunUncounted(state *observed, plan *Plan) int {
	if state.Mode != Active || !state.Template.Known || state.before.inFlight == nil {
		return 0
	}
	begun := 0
	for _, decision := range plan.Open {
		if _, known := state.before.inFlight[decision.Target.UID]; !known && decision.InFlight {
			begun++
		}
	}
	return begun
}

// ended returns how the remediations ended that were in flight before this reconcile.
func ended(state *observed, plan *Plan) map[ending]int {
	results := map[ending]int{}
	if !state.Template.Known || len(state.before.inFlight) == 0 {
		return results
	}
	open := make(map[types.UID]*Decision, len(plan.Open))
	for _, decision := range plan.Open {
		open[decision.Target.UID] = decision
	}
	for uid, kind := range state.before.inFlight {
		of := func(target *Target) bool { return target.UID == uid }
		switch decision := open[uid]; {
		case decision != nil && decision.InFlight:
		case decision != nil && decision.Verdict.State != health.Healthy, slices.ContainsFunc(state.Skipped, of):
			results[ending{kind, cancelledResult}]++
		case decision != nil, slices.ContainsFunc(state.Targets, of): // a target that is not open is healthy
			results[ending{kind, recoveredResult}]++
		default:
			results[ending{kind, replacedResult}]++
		}
	}
	return results
}

type ending struct{ kind, result string }
