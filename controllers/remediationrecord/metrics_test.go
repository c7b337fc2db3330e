package remediationrecord

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/record"
)

func TestWhatCapacityWaitsForIsExported(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(nil))...)
	m.reconcile(time.Second)
	if n := testutil.CollectAndCount(&m.open); n != 0 {
		t.Errorf("%d series before it is begun", n)
	}
	m.change("w1", func(w *clusterv1.Machine) {
		says(w, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, 2*time.Second)
	})
	m.reconcile(3 * time.Second)
	const want = `
# HELP kubemend_capacity_missing Remediations that were begun and whose capacity is not back, by what is waited for, as the condition CapacityBack of a RemediationRecord has it.
# TYPE kubemend_capacity_missing gauge
kubemend_capacity_missing{cluster="c",namespace="metal",reason="WaitingForRemediation"} 1
# HELP kubemend_capacity_missing_oldest_timestamp_seconds Unix time at which the oldest of these was due; no series if there is none.
# TYPE kubemend_capacity_missing_oldest_timestamp_seconds gauge
kubemend_capacity_missing_oldest_timestamp_seconds{cluster="c",namespace="metal",reason="WaitingForRemediation"} 1.772452799e+09
`
	if err := testutil.CollectAndCompare(&m.open, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func count(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	samples := make(chan prometheus.Metric, 100)
	c.Collect(samples)
	close(samples)
	return float64(len(samples))
}

func TestAnEndIsCountedOnce(t *testing.T) {
	counter := closed.WithLabelValues("metal", "c", string(mendv1.RecordActive), string(mendv1.RecordReplaced))
	before := testutil.ToFloat64(counter)
	dueToBegun.Reset()
	dueToCapacity.Reset()
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(nil))...)
	m.replaced()
	if n := testutil.ToFloat64(counter) - before; n != 1 {
		t.Errorf("it is counted %v times", n)
	}
	if count(t, dueToBegun) != 1 || count(t, dueToCapacity) != 1 || testutil.CollectAndCount(&m.open) != 0 {
		t.Error("the times are not exported, or it still waits")
	}
}

// Where Clusters come and go, such as those of tests, there would be more series each day.
func TestNothingIsExportedOfAClusterThatIsGone(t *testing.T) {
	closed.Reset()
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(nil))...)
	m.replaced()
	other := closed.WithLabelValues("other", "c", string(mendv1.RecordActive), string(mendv1.RecordReplaced))
	other.Inc()
	onClusterDeletions().Delete(t.Context(), event.DeleteEvent{Object: fleet()[1]}, nil)
	if n := testutil.CollectAndCount(closed); n != 1 || testutil.ToFloat64(other) != 1 {
		t.Errorf("there are %d series, and %v of the Cluster of that name in another namespace", n, testutil.ToFloat64(other))
	}
}

func TestCausesAreBounded(t *testing.T) {
	for range 2 {
		for i := range 100 {
			causes.of(strings.Repeat("x", i))
		}
	}
	if got := causes.of("new"); got != "Other" || len(causes.known) != mostWords {
		t.Errorf("the cause is %q of %d", got, len(causes.known))
	}
}

// A user who may write records may name in them Clusters and waits that do not exist.
func TestWhatARecordClaimsIsNoSeriesOfItsOwn(t *testing.T) {
	waited.Reset()
	m := newManagement(t, append(fleet(), unhealthy())...)
	for i := range 3 * mostWords {
		is := recordOf(func(r *mendv1.RemediationRecord) {
			r.Spec.Target.ClusterName = fmt.Sprint("claimed-", i)
			r.Status.Waits = []mendv1.RecordWait{{Reason: fmt.Sprint("Claimed", i), Seconds: 1}}
			r.Status.Begun = new(after(time.Second))
			r.Status.Steps = []mendv1.RecordStep{{Time: after(time.Second), Reason: "OwnerRequested"}}
		})
		m.create(is)
		m.change("w1", func(w *clusterv1.Machine) {
			w.Status.Conditions = nil
			says(w, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, time.Minute)
		})
		if got := m.reconcile(10 * time.Minute); got.Status.Outcome != mendv1.RecordHealed {
			t.Fatalf("it ends as %q", got.Status.Outcome)
		}
		m.remove(is)
	}
	if n := testutil.CollectAndCount(waited); n > mostWords+1 {
		t.Errorf("there are %d series of waits", n)
	}
	if n := testutil.CollectAndCount(closed); n > mostWords {
		t.Errorf("there are %d series of ends", n)
	}
}

// A counter that is to decrease panics, and with it every reconcile of the record.
func TestAWaitThatCannotBeIsNotCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		wait mendv1.RecordWait
		want float64
	}{
		"one that has ended":                    {wait: mendv1.RecordWait{Seconds: 5}, want: 5},
		"one that is shorter than none":         {wait: mendv1.RecordWait{Seconds: -5}},
		"one that grows beyond what is counted": {wait: mendv1.RecordWait{Seconds: math.MaxInt64, Since: new(after(time.Minute))}},
	} {
		t.Run(name, func(t *testing.T) {
			waited.Reset()
			tc.wait.Reason = "DrainingNode"
			m := newManagement(t, append(fleet(), unhealthy(), recordOf(func(r *mendv1.RemediationRecord) {
				r.Status.Waits = []mendv1.RecordWait{tc.wait}
			}))...)
			is := m.reconcile(record.Unbegun + time.Minute)
			if got := testutil.ToFloat64(waited.WithLabelValues(waits.of("DrainingNode"))); got != tc.want || is.Status.Waits[0].Seconds != int64(tc.want) {
				t.Errorf("%v s are counted, want %v; the record has %+v", got, tc.want, is.Status.Waits)
			}
			if is.Status.Outcome != mendv1.RecordCancelled {
				t.Errorf("it ends as %q", is.Status.Outcome)
			}
		})
	}
}
