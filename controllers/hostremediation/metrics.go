package hostremediation

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

var (
	attempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_host_remediation_attempts_total",
		Help: "Number of attempts begun to power-cycle a host, by kind of the remediation; the first one of a remediation counts too.",
	}, []string{"namespace", "kind"})

	ends = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_host_remediations_finished_total",
		Help: "Number of remediations of hosts that are over, by result (succeeded, handedover, failed, ended, stopped) and by the reason for it.",
	}, []string{"namespace", "kind", "result", "reason"})

	stateDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubemend_host_remediation_state_duration_seconds",
		Help:    "How long remediations of hosts were in a state of the power cycle, by that state, when they left it.",
		Buckets: []float64{0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600},
	}, []string{"state"})

	current = &underWay{clock: clock.RealClock{}}
)

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns what this package exports, for those who document or test it.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{attempts, ends, stateDuration, current}
}

// measure exports what a step has changed, once it is remembered.
func (r *Reconciler) measure(w *world, step powercycle.Step) {
	namespace, kind, was := w.rem.GetNamespace(), r.Kind.Kind, w.facts.State
	if step.Do == powercycle.BeginAttempt {
		attempts.WithLabelValues(namespace, kind).Inc()
	}
	if was != "" && was != step.Next && !w.facts.Since.IsZero() {
		stateDuration.WithLabelValues(string(was)).Observe(w.now.Sub(w.facts.Since).Seconds())
	}
	if step.Next.Final() && !was.Final() {
		ends.WithLabelValues(namespace, kind, strings.ToLower(string(step.Next)), step.Reason).Inc()
	}
	held := holds(w, step)
	if step.Next.Final() && !held {
		current.forget(kind, client.ObjectKeyFromObject(w.rem))
		return
	}
	current.note(kind, client.ObjectKeyFromObject(w.rem), standing{state: step.Next, held: held, due: stuckAt(w)})
}

// stuckAt is when a remediation counts as stuck if it is still in its state then: every state has the patience of an attempt, and one in
// which something is refused again and again may outlast it. One that is paused or waits for its turn is not stuck.
func stuckAt(w *world) time.Time {
	if m := w.record.Memory; m.Paused.IsZero() && m.State != powercycle.Pending && w.facts.Turn {
		return m.Since.Add(w.policy.Timeout + stuckAfter)
	}
	return time.Time{}
}

// stuckAfter is how long after its patience a state is left even if an API server is slow.
const stuckAfter = time.Minute

// underWay knows all remediations that are not over.
type underWay struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	all   map[standingKey]standing
}

type standingKey struct {
	kind string
	client.ObjectKey
}

type standing struct {
	state powercycle.State
	held  bool
	due   time.Time // zero: never
}

func (u *underWay) note(kind string, key client.ObjectKey, s standing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = map[standingKey]standing{}
	}
	u.all[standingKey{kind, key}] = s
}

func (u *underWay) forget(kind string, key client.ObjectKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, standingKey{kind, key})
}

// forgetAll forgets all of a kind: they are somebody else's now.
func (u *underWay) forgetAll(kind string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.all, func(key standingKey, _ standing) bool { return key.kind == kind })
}

var (
	underWayDesc = prometheus.NewDesc("kubemend_host_remediations",
		"Number of remediations of hosts that are not over, by their state in the power cycle.", []string{"namespace", "kind", "state"}, nil)
	heldDesc = prometheus.NewDesc("kubemend_hosts_held_off",
		"Number of hosts that are held off now.", []string{"namespace", "kind"}, nil)
	stuckDesc = prometheus.NewDesc("kubemend_host_remediations_stuck",
		"Number of remediations of hosts that have been in their state for a minute longer than their timeout allows; something refuses what they ask for.",
		[]string{"namespace", "kind"}, nil)
)

// Describe implements prometheus.Collector.
func (u *underWay) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- underWayDesc
	descriptions <- heldDesc
	descriptions <- stuckDesc
}

// Collect implements prometheus.Collector. That one is stuck is a matter of time alone, so it is found out when it is asked for.
func (u *underWay) Collect(out chan<- prometheus.Metric) {
	type place struct{ namespace, kind string }
	type at struct {
		place
		state powercycle.State
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	states, held, stuck := map[at]float64{}, map[place]float64{}, map[place]float64{}
	for key, s := range u.all {
		p := place{key.Namespace, key.kind}
		states[at{p, s.state}]++
		held[p], stuck[p] = held[p]+number(s.held), stuck[p]+number(!s.due.IsZero() && !u.clock.Now().Before(s.due))
	}
	for a, n := range states {
		out <- prometheus.MustNewConstMetric(underWayDesc, prometheus.GaugeValue, n, a.namespace, a.kind, string(a.state))
	}
	for p := range held {
		out <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, held[p], p.namespace, p.kind)
		out <- prometheus.MustNewConstMetric(stuckDesc, prometheus.GaugeValue, stuck[p], p.namespace, p.kind)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
