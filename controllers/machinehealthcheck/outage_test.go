package machinehealthcheck

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/workload"
)

// The first outage ended before this process was started, which has seen the second one from its beginning.
func TestASecondOutageDoesNotHideTheFirst(t *testing.T) {
	const m = time.Minute
	f, r := newFleet(), &Reconciler{}
	f.change("a", func(machine *clusterv1.Machine) { machine.Status.NodeRef.Name = "" })
	reachedAtNoon := func(w *observed) {
		w.Check.Status.Conditions = []metav1.Condition{{
			Type: mendv1.WorkloadClusterReachable, Status: "True", Reason: mendv1.ReachableAgainReason, LastTransitionTime: metav1.NewTime(noon),
		}}
	}
	down := func(w *observed) { w.view = workload.View{Link: workload.Down} }
	nothing := func(*observed) {}
	for _, look := range []struct {
		at     time.Duration
		change func(*observed)
		want   health.State
	}{
		{m, nothing, health.Starting}, {2 * m, down, health.Unknown}, {5 * m, nothing, health.Starting}, {6 * m, down, health.Unknown},
		{7 * m, nothing, health.Starting}, {14*m - time.Second, nothing, health.Starting}, {14 * m, nothing, health.Unhealthy},
	} {
		if got := f.seen(t.Context(), t, r, noon.Add(look.at), reachedAtNoon, look.change)["a"].Verdict.State; got != look.want {
			t.Errorf("after %s the machine is %s, want %s", look.at, got, look.want)
		}
	}
}
