package remediationrecord

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
)

var (
	dueToBegun = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubemend_remediation_due_to_begun_seconds",
		Help: "Time from the moment at which a machine or node counts as unhealthy to the beginning of its remediation, " +
			"by remediator: Owner, Request.",
		Buckets: []float64{0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 3600, 14400},
	}, []string{"remediator"})

	dueToCapacity = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubemend_remediation_due_to_capacity_seconds",
		Help: "Time from the moment at which a machine or node counts as unhealthy until it, or its replacement, is healthy, " +
			"by cause, such as Ready=Unknown, and outcome: Healed, Replaced.",
		Buckets: []float64{30, 60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 7200, 14400, 43200, 86400},
	}, []string{"cause", "outcome"})

	waited = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_capacity_waited_seconds_total",
		Help: "Time that ended remediations have waited for capacity, by the reason in the condition CapacityBack " +
			"of their RemediationRecords.",
	}, []string{"reason"})

	closed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_remediation_records_closed_total",
		Help: "RemediationRecords closed, by outcome: Healed, Replaced, Gone, GivenUp, Cancelled.",
	}, []string{"namespace", "cluster", "outcome"})

	deleted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubemend_remediation_records_deleted_total",
		Help: "RemediationRecords deleted, by reason: Old, Cluster (it has too many), Unread (an open one whose objects cannot be read).",
	}, []string{"reason"})
)

func init() { metrics.Registry.MustRegister(static()...) }

func static() []prometheus.Collector {
	return []prometheus.Collector{dueToBegun, dueToCapacity, waited, closed, deleted, failed}
}

// Metrics returns the collectors of this package, for documentation and tests.
func Metrics() []prometheus.Collector { return append(static(), &capacityMissing{}) }

// mostWords bounds the values of a label that users choose: they name conditions, and may write any cause and any wait into records.
const mostWords = 80

// otherWord is the value for all words beyond mostWords.
const otherWord = "Other"

// words are the words that have a value of their own.
type words struct {
	sync.Mutex
	known map[string]bool
}

var causes, waits words

// of returns the value of the label for a word.
func (w *words) of(word string) string {
	w.Lock()
	defer w.Unlock()
	if !w.known[word] && len(w.known) >= mostWords {
		return otherWord
	}
	if w.known == nil {
		w.known = map[string]bool{}
	}
	w.known[word] = true
	return word
}

// measure exports what status adds to the stored record. The label cluster is empty if the Cluster does not exist.
func measure(o *observed, status *mendv1.RemediationRecordStatus) {
	before, spec := &o.record.Status, &o.record.Spec
	due := ptr.Deref(spec.Due, spec.Decided).Time
	if before.Begun == nil && !status.Begun.IsZero() {
		dueToBegun.WithLabelValues(string(spec.Remediator)).Observe(max(status.Begun.Sub(due), 0).Seconds())
	}
	if before.CapacityBack == nil && !status.CapacityBack.IsZero() {
		dueToCapacity.WithLabelValues(causes.of(spec.Cause), string(status.Outcome)).Observe(max(status.CapacityBack.Sub(due), 0).Seconds())
	}
	if status.Ended.IsZero() {
		return
	}
	for reason, seconds := range waitedOf(status) {
		waited.WithLabelValues(waits.of(reason)).Add(seconds)
	}
	cluster := ""
	if o.cluster != nil {
		cluster = o.cluster.Name
	}
	closed.WithLabelValues(o.record.Namespace, cluster, string(status.Outcome)).Inc()
}

// waitedOf returns the seconds that an ended remediation waited for each reason: from its step to the next wait, or until capacity was
// back.
func waitedOf(status *mendv1.RemediationRecordStatus) map[string]float64 {
	seconds := map[string]float64{}
	end := cmp.Or(status.CapacityBack, status.Ended).Time
	for i := len(status.Steps) - 2; i >= 0; i-- { // the last one is the outcome
		if step := &status.Steps[i]; !deeds[step.Reason] {
			seconds[step.Reason] += max(end.Sub(step.Time.Time), 0).Seconds()
			end = step.Time.Time
		}
	}
	return seconds
}

// capacityMissing is a collector of metrics that counts what open records wait for, and what is remediated again and again.
type capacityMissing struct {
	open  client.Reader
	clock clock.PassiveClock
}

var (
	missing = prometheus.NewDesc("kubemend_capacity_missing",
		"Remediations that have begun and whose capacity is not back yet, by the reason in the condition CapacityBack "+
			"of their RemediationRecords.", []string{"namespace", "cluster", "reason"}, nil)
	missingSince = prometheus.NewDesc("kubemend_capacity_missing_oldest_timestamp_seconds",
		"Unix time at which the oldest remediation in kubemend_capacity_missing was due.", []string{"namespace", "cluster", "reason"}, nil)
	loops = prometheus.NewDesc("kubemend_remediation_loop",
		"Remediations of the same object without a healthy hour in between. The object is a host, a node of a NodeHealthCheck, "+
			"or the Machines of an owner that never had a Node. No series below 2.", []string{"namespace", "cluster", "kind", "name"}, nil)
)

// Describe implements prometheus.Collector.
func (c *capacityMissing) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- missing
	descriptions <- missingSince
	descriptions <- loops
}

// Collect implements prometheus.Collector. It reads the cache alone.
func (c *capacityMissing) Collect(samples chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // a scrape must not wait for the cache
	defer cancel()
	list := &mendv1.RemediationRecordList{}
	if err := c.open.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		samples <- prometheus.NewInvalidMetric(missing, fmt.Errorf("list the open RemediationRecords: %w", err))
		return
	}
	type series struct{ namespace, cluster, reason string }
	due := map[series][]time.Time{}
	for i := range list.Items {
		if lost := MissingBy(&list.Items[i]); lost != nil {
			key := series{lost.Namespace, lost.Cluster, waits.of(lost.Reason)}
			due[key] = append(due[key], lost.Due)
		}
	}
	for key, moments := range due {
		labels := []string{key.namespace, key.cluster, key.reason}
		oldest := slices.MinFunc(moments, time.Time.Compare)
		samples <- prometheus.MustNewConstMetric(missing, prometheus.GaugeValue, float64(len(moments)), labels...)
		samples <- prometheus.MustNewConstMetric(missingSince, prometheus.GaugeValue, float64(oldest.Unix()), labels...)
	}
	c.collectLoops(list.Items, samples)
}

// collectLoops exports what is remediated again and again. A node on a known host counts as its host alone.
func (c *capacityMissing) collectLoops(records []mendv1.RemediationRecord, samples chan<- prometheus.Metric) {
	type series struct{ namespace, cluster, subject string }
	former := map[series][]mendv1.RemediationRecord{}
	for i := range records {
		target := &records[i].Spec.Target
		for _, subject := range repeats.SubjectsOf(&records[i]) {
			if target.Host == nil || !strings.HasPrefix(subject, nodeKind+"/") {
				of := series{records[i].Namespace, target.ClusterName, subject}
				former[of] = append(former[of], records[i])
			}
		}
	}
	for of, list := range former {
		kind, name, _ := strings.Cut(of.subject, "/")
		if n := float64(repeats.Of(list, c.clock.Now()).Times); n > 1 {
			samples <- prometheus.MustNewConstMetric(loops, prometheus.GaugeValue, n, of.namespace, of.cluster, kind, name)
		}
	}
}
