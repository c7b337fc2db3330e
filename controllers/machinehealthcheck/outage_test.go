package machinehealthcheck

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func TestNoMachineIsJudgedByAWrongClock(t *testing.T) {
	w := aCheck(a("m", health.Unknown))
	w.view.ClockAhead = 24 * time.Hour
	plan := w.decide()
	if got := plan.Decisions[0]; !got.Blocked(ManagerClockWrong) || got.Verdict.State != health.Unknown {
		t.Errorf("the machine is %s, blocked by %v", got.Verdict.State, got.Blockers)
	}
}

func TestACheckSaysThatItsClusterAnswersProbesAlone(t *testing.T) {
	w := aCheck(a("m", health.Unknown))
	w.view = workload.View{Link: workload.Down, Silent: true}
	p := decide(w)
	c := p.Reach
	if c.Status != metav1.ConditionFalse || c.Reason != mendv1.UnreachableReason || !strings.HasPrefix(c.Message, "The API server answers probes, and leaves other requests unanswered") {
		t.Errorf("WorkloadClusterReachable is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	w.Now, w.before.reach = w.Now.Add(time.Minute), p.Reach
	p = decide(w)
	if again := p.Reach; again != c {
		t.Errorf("a minute later it is %+v, and was %+v", again, c)
	}
}

// askedWithin notes the deadlines of what is asked of a workload cluster that has no nodes.
type askedWithin struct {
	upCluster
	deadlines []time.Time
}

func (a *askedWithin) note(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	a.deadlines = append(a.deadlines, deadline)
}

func (a *askedWithin) View(ctx context.Context, _ client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	a.note(ctx)
	return workload.Seen(health.Up, nil), nil
}

func (a *askedWithin) NodesExist(ctx context.Context, _ client.ObjectKey, _ []string) (map[string]bool, error) {
	a.note(ctx)
	return map[string]bool{}, nil
}

func TestAllThatAReconcileAsksOfAClusterHasOneDeadline(t *testing.T) {
	r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
	m := &clusterv1.Machine{}
	if err := r.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "m"}, m); err != nil {
		t.Fatal(err)
	}
	m.Status.NodeRef.Name = "missing"
	if err := r.api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	there := &askedWithin{}
	r.Clusters = there
	before := clock.RealClock{}.Now()
	if _, err := r.Explain(t.Context(), client.ObjectKeyFromObject(r.check), r.clock.Now()); err != nil {
		t.Fatal(err)
	}
	if len(there.deadlines) != 2 || !there.deadlines[0].Equal(there.deadlines[1]) {
		t.Fatalf("the deadlines are %v", there.deadlines)
	}
	if in := there.deadlines[0].Sub(before); in < 0 || in > workload.AnswerWithin+time.Second {
		t.Errorf("the deadline is in %s", in)
	}
}
