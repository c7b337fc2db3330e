package machinehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func TestTheOldestRequestIsTheOneThatWasMadeFirst(t *testing.T) {
	made := func(d time.Duration) func(*Target) {
		return func(t *Target) {
			t.Request = &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(ago(d))}}
		}
	}
	plan := decide(aCheck(
		a("m1", health.Healthy), a("m2", health.Unhealthy, made(time.Hour)), a("m3", health.Unhealthy, made(2*time.Hour)),
		a("m4", health.Unhealthy, made(0)),
	))
	if got := madeFirst(plan.Decisions); !got.Equal(ago(2 * time.Hour)) {
		t.Errorf("got %s, want two hours ago", got)
	}
	if got := madeFirst(plan.Decisions[:1]); !got.IsZero() {
		t.Errorf("without requests got %s, want none", got)
	}
}

// seriesOf returns the series of a check by the values of a label.
func seriesOf(t *testing.T, vec *prometheus.GaugeVec, check client.Object, label string) map[string]float64 {
	t.Helper()
	series := make(chan prometheus.Metric, 100)
	vec.Collect(series)
	close(series)
	found := map[string]float64{}
	for s := range series {
		var is dto.Metric
		must.Do(t, s.Write(&is))
		labels := map[string]string{}
		for _, l := range is.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["namespace"] == check.GetNamespace() && labels["name"] == check.GetName() {
			found[labels[label]] = is.GetGauge().GetValue()
		}
	}
	return found
}

func TestACheckHasOneModeAtATimeAndNoneWhenItIsGone(t *testing.T) {
	r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
	r.Unclaimed = Observe
	key := client.ObjectKeyFromObject(r.check)
	measureMode(key, nil)
	claim := func(value *string) func() {
		return func() {
			check := r.check.DeepCopy()
			patch := []byte(`{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
			if value != nil {
				patch = []byte(`{"metadata":{"annotations":{"cluster.x-k8s.io/paused":"` + *value + `"}}}`)
			}
			must.Do(t, r.api.Patch(t.Context(), check, client.RawPatch("application/merge-patch+json", patch)))
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want string // empty for none
	}{
		{"an unclaimed check is observed", func() {}, "observing"},
		{"a claim makes kubemend act", claim(ptr.To("kubemend")), "acting"},
		{"another value pauses it", claim(ptr.To("maintenance")), "paused"},
		{"without it the check is observed again", claim(nil), "observing"},
		{"a manager that ignores unclaimed checks leaves it to core", func() { r.Unclaimed = Ignore }, "core"},
		{"a check without the manager's label is core's", func() { r.Unclaimed, r.WatchFilterValue = Observe, "blue" }, "core"},
		{"and if it is claimed it has no controller", claim(ptr.To("kubemend")), "none"},
		{"a check that is gone has no series", func() {
			must.Do(t, r.api.Delete(t.Context(), r.check.DeepCopy()))
		}, ""},
	} {
		step.do()
		r.pass(0)
		want := map[string]float64{}
		if step.want != "" {
			want[step.want] = 1
		}
		must.Equal(t, want, seriesOf(t, modes, r.check, "mode"), "%s", step.name)
	}
}
