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

// modesOf returns the values of the label mode in all series of a check.
func modesOf(t *testing.T, key client.ObjectKey) []string {
	t.Helper()
	series := make(chan prometheus.Metric, 100)
	modes.Collect(series)
	close(series)
	var found []string
	for s := range series {
		var is dto.Metric
		must.Do(t, s.Write(&is))
		labels := map[string]string{}
		for _, l := range is.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["namespace"] == key.Namespace && labels["name"] == key.Name && is.GetGauge().GetValue() == 1 {
			found = append(found, labels["cluster"]+"/"+labels["mode"])
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
		want []string
	}{
		{"an unclaimed check is observed", func() {}, []string{"c1/observing"}},
		{"a claim makes kubemend act", claim(ptr.To("kubemend")), []string{"c1/acting"}},
		{"another value pauses it", claim(ptr.To("maintenance")), []string{"c1/paused"}},
		{"without it the check is observed again", claim(nil), []string{"c1/observing"}},
		{"a manager that ignores unclaimed checks leaves it to core", func() { r.Unclaimed = Ignore }, []string{"c1/core"}},
		{"a check without the manager's label is core's", func() { r.Unclaimed, r.WatchFilterValue = Observe, "blue" }, []string{"c1/core"}},
		{"and if it is claimed it has no controller", claim(ptr.To("kubemend")), []string{"c1/none"}},
		{"a check that is gone has no series", func() {
			must.Do(t, r.api.Delete(t.Context(), r.check.DeepCopy()))
		}, nil},
	} {
		step.do()
		r.pass(0)
		must.Equal(t, step.want, modesOf(t, key), "%s", step.name)
	}
}
