package hostremediation

import (
	"strings"
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
		Help: "Attempts to power-cycle a host, the first included, by kind of the remediation.",
	}, []string{"namespace", "kind"})

	ends = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_host_remediations_finished_total",
		Help: "Remediations of hosts ended, by result (succeeded, ownerrequested, failed, ended, stopped) and reason.",
	}, []string{"namespace", "kind", "result", "reason"})

	stateDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubemend_host_remediation_state_duration_seconds",
		Help:    "How long remediations of hosts were in a state of the power cycle, by state, when they left it.",
		Buckets: []float64{0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600},
	}, []string{"state"})

	unfenced = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_host_remediation_attempts_unfenced_total",
		Help: "Attempts to power-cycle a host that could not fence its node, so that its workload does not move, by reason: " +
			"FencingImpossible, HostServiced, PowerOffTimedOut, ClusterUnreachable, WorkloadStuck, NodeMismatch, PowerOffDisabled.",
	}, []string{"namespace", "cluster", "kind", "reason"})

	fencesLeft = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_host_fences_left_total",
		Help: "Remediations of hosts that ended without removing the fence from the node in time.",
	}, []string{"namespace", "kind"})
)

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of this package, except UnderWay.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{attempts, ends, stateDuration, unfenced, fencesLeft}
}

// measure exports what a stored step has changed.
func (r *Reconciler) measure(obs *observed, step powercycle.Step) {
	namespace, kind, state := obs.rem.GetNamespace(), r.Kind.Kind, obs.facts.State
	if step.Do == powercycle.BeginAttempt {
		attempts.WithLabelValues(namespace, kind).Inc()
	}
	if state != "" && state != step.Next && !obs.facts.Since.IsZero() {
		stateDuration.WithLabelValues(string(state)).Observe(obs.now.Sub(obs.facts.Since).Seconds())
	}
	if step.Next.Final() && !state.Final() {
		ends.WithLabelValues(namespace, kind, strings.ToLower(string(step.Next)), string(step.Reason)).Inc()
	}
	if reason := unfencedFor(obs, step); reason != "" {
		unfenced.WithLabelValues(namespace, obs.clusterName(), kind, reason).Inc()
	}
	if step.Reason == powercycle.UnfenceTimedOutReason {
		fencesLeft.WithLabelValues(namespace, kind).Inc()
	}
	now := progress{} // empty for a remediation that is over and keeps no host off
	if keepsOff(obs, step) {
		now.keptOff, now.since = true, obs.record.Asked
	}
	if now.keptOff || !step.Next.Final() {
		now.cluster, now.state, now.due, now.person = obs.clusterName(), step.Next, stuckAt(obs), string(obs.record.Person)
	}
	obs.kept.progress = now
}

// clusterName returns the name of the machine's cluster, even if the cluster is gone; empty if it was never known.
func (obs *observed) clusterName() string {
	switch {
	case obs.cluster != nil:
		return obs.cluster.Name
	case obs.machine != nil:
		return obs.machine.Spec.ClusterName
	}
	return obs.record.Cluster
}

// unfencedFor returns the reason for which step gives up fencing the node in this attempt; empty if it does not. A node that is gone needs
// no fence.
func unfencedFor(obs *observed, step powercycle.Step) string {
	given := false
	switch state := obs.facts.State; {
	case state == powercycle.Preparing:
		given = step.Next == powercycle.Rebooting
	case state == powercycle.PoweringOff:
		given = step.Reason == powercycle.PowerOffTimedOutReason || step.Next == powercycle.PoweringOn || step.Next == powercycle.Servicing
	case state == powercycle.MovingWorkload && (step.Next == powercycle.PoweringOn || step.Next == powercycle.Servicing):
		given = !obs.facts.Fenced && obs.facts.FencedAt.IsZero() && obs.facts.Node != powercycle.NodeAbsent
	}
	if !given {
		return ""
	}
	return string(step.Reason)
}

// stuckAt returns when the remediation counts as stuck if it is still in its state. A state lasts longer than its timeout if an action is
// refused again and again. A remediation that is paused, queued or waits for a person is never stuck.
func stuckAt(obs *observed) time.Time {
	m := obs.record.Memory
	switch {
	case !m.Paused.IsZero() || m.State == powercycle.Pending || len(obs.facts.Ahead) > 0 || m.Person != "":
	case m.State == powercycle.Servicing:
		return m.Since.Add(obs.policy.Servicing + stuckAfter)
	case m.State == powercycle.Booting || m.SwitchedOn:
		return m.Since.Add(obs.policy.Boot + stuckAfter)
	default:
		return m.Since.Add(obs.policy.Timeout + stuckAfter)
	}
	return time.Time{}
}

// stuckAfter is the time after a timeout that even a slow API server does not need.
const stuckAfter = time.Minute

// UnderWay is the collector of metrics about the remediations of all kinds that are not over. Clock decides at collection which of them are
// stuck.
type UnderWay struct {
	Clock       clock.PassiveClock
	Reconcilers []*Reconciler
}

// progress is what the metrics need of a remediation, as of its last reconcile that stored something.
type progress struct {
	cluster string
	state   powercycle.State // empty if the remediation is over
	keptOff bool
	since   time.Time // when the host was asked to power off; zero if it is not kept off
	due     time.Time // when the remediation counts as stuck; zero if never
	// person is the reason for which a person was asked; empty if none was.
	person string
}

// Describe implements prometheus.Collector.
func (u *UnderWay) Describe(descriptions chan<- *prometheus.Desc) {
	for _, gauge := range u.gauges() {
		gauge.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector. A remediation becomes stuck by time alone, which is why the gauges are computed at collection.
func (u *UnderWay) Collect(out chan<- prometheus.Metric) {
	for _, gauge := range u.gauges() {
		gauge.Collect(out)
	}
}

func (u *UnderWay) gauges() []*prometheus.GaugeVec {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	states := gauge("kubemend_host_remediations",
		"Remediations of hosts in flight, by state of the power cycle.", "namespace", "kind", "state")
	keptOff := gauge("kubemend_hosts_kept_powered_off",
		"Hosts that remediations keep powered off.", "namespace", "kind")
	oldest := gauge("kubemend_hosts_kept_powered_off_oldest_timestamp_seconds",
		"Unix time at which the host that is kept powered off the longest was asked to power off; no series if there is none.",
		"namespace", "kind")
	stuck := gauge("kubemend_host_remediations_stuck",
		"Remediations of hosts that are a minute past the timeout of their state: something refuses what they ask for.",
		"namespace", "kind")
	persons := gauge("kubemend_host_remediations_waiting_for_person",
		"Remediations of hosts that wait for a person, by reason: ClusterUnreachable, FencingImpossible, HostGone, HostKeptOff, "+
			"HostNotReady, HostServiced, HostSwitchedOff, NodeMismatch, OperatorSilent, PowerOffDisproved, QueueTimedOut, "+
			"StepUndone.",
		"namespace", "cluster", "kind", "reason")
	for _, r := range u.Reconcilers {
		since := map[string]time.Time{} // by namespace
		for key, value := range r.kept.Range {
			namespace, kind, progress := key.(client.ObjectKey).Namespace, r.Kind.Kind, value.(kept).progress
			if progress.state == "" {
				continue
			}
			states.WithLabelValues(namespace, kind, string(progress.state)).Inc()
			if progress.person != "" {
				persons.WithLabelValues(namespace, progress.cluster, kind, progress.person).Inc()
			}
			keptOff.WithLabelValues(namespace, kind).Add(number(progress.keptOff))
			stuck.WithLabelValues(namespace, kind).Add(number(!progress.due.IsZero() && !u.Clock.Now().Before(progress.due)))
			if before, known := since[namespace]; !progress.since.IsZero() && (!known || progress.since.Before(before)) {
				since[namespace] = progress.since
				oldest.WithLabelValues(namespace, kind).Set(float64(progress.since.Unix()))
			}
		}
	}
	return []*prometheus.GaugeVec{states, keptOff, oldest, stuck, persons}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
