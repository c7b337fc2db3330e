package machinehealthcheck

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/workload"
	"github.com/kubemend/kubemend/test/must"
)

func saidAt(kind string, status metav1.ConditionStatus, reason string, since time.Duration) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(ago(since))}
}

// failed gives a machine a final failure, as core writes it.
func failed(status string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		if err := json.Unmarshal([]byte(`{"status":{"deprecated":{"v1beta1":`+status+`}}}`), m); err != nil {
			panic(err)
		}
	}
}

// Package health tests the verdicts that follow from these facts.
func TestWhatTheVerdictOnAMachineDependsOn(t *testing.T) {
	const s, h = time.Second, time.Hour
	says := func(kind string, status metav1.ConditionStatus, since time.Duration) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) {
			m.Status.Conditions = append(m.Status.Conditions, saidAt(kind, status, "Said", since))
		}
	}
	paused := func(status metav1.ConditionStatus, since time.Duration) func(*clusterv1.Machine) {
		return says(clusterv1.PausedCondition, status, since)
	}
	infrastructure := clusterv1.MachineInfrastructureReadyCondition
	signal := func(source health.Source, kind, status string) health.Signal {
		return health.Signal{Source: source, Type: kind, Status: status, Reason: "Said", Since: ago(h)}
	}
	for name, tc := range map[string]struct {
		change func(*clusterv1.Machine)
		checks []string // the types that the check has machine rules about
		want   health.Target
	}{
		"it was made an hour ago":                          {paused("True", h), nil, health.Target{Paused: true, AwaitedSince: ago(h)}},
		"it never was paused":                              {paused("False", h-s), nil, health.Target{AwaitedSince: ago(h)}},
		"it was taken up again after a pause":              {paused("False", s), nil, health.Target{Resumed: ago(s), AwaitedSince: ago(s)}},
		"it was restored from a backup":                    {paused("False", 72*h), nil, health.Target{Resumed: ago(h), AwaitedSince: ago(h)}},
		"its infrastructure is ready since then":           {says(infrastructure, "True", s), nil, health.Target{AwaitedSince: ago(s)}},
		"its infrastructure was ready before it was made":  {says(infrastructure, "True", 2*h), nil, health.Target{AwaitedSince: ago(h)}},
		"its infrastructure is not ready":                  {says(infrastructure, "False", s), nil, health.Target{AwaitedSince: ago(h)}},
		"it failed for good":                               {failed(`{"failureReason":"CreateError"}`), nil, health.Target{Failure: "FailureReason: CreateError", AwaitedSince: ago(h)}},
		"of a failure there is only a message":             {failed(`{"failureMessage":"no such\nhost"}`), nil, health.Target{Failure: "FailureMessage: no such host", AwaitedSince: ago(h)}},
		"there is no rule about a condition":               {says("GPU", "False", h), nil, health.Target{AwaitedSince: ago(h)}},
		"there is one":                                     {says("GPU", "False", h), []string{"GPU"}, health.Target{AwaitedSince: ago(h), Signals: []health.Signal{signal(health.OnMachine, "GPU", "False")}}},
		"a condition repeats what the node says, the node": {says(health.NodeReady, "False", h), []string{health.NodeReady}, health.Target{AwaitedSince: ago(h), Signals: []health.Signal{signal(health.OnMachine, health.NodeReady, "False"), signal(health.OnNode, "Disk", "True")}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(ago(h))}}
			tc.change(m)
			checks := clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{{Type: corev1.NodeReady}}}
			for _, kind := range tc.checks {
				checks.UnhealthyMachineConditions = append(checks.UnhealthyMachineConditions, clusterv1.UnhealthyMachineCondition{Type: kind})
			}
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: "True", Reason: "Said", LastTransitionTime: metav1.NewTime(ago(h))},
				{Type: "Disk", Status: "True", Reason: "Said", LastTransitionTime: metav1.NewTime(ago(h))},
			}}}
			ready := len(tc.want.Signals) - len(tc.checks)
			tc.want.Node = health.NodePresent
			tc.want.Signals = slices.Insert(tc.want.Signals, len(tc.want.Signals)-ready, signal(health.OnNode, "Ready", "True"))
			must.Equal(t, tc.want, healthOf(checks, m, health.NodePresent, node))
		})
	}
}

// A rollout deletes every machine of a cluster with its node. Nor does the controller ask for the node of a machine that its users want
// left alone.
func TestTheNodeOfAMachineThatIsBeingDeletedIsNotAskedFor(t *testing.T) {
	w := aCheck(a("going", health.Healthy, beingDeleted, onNode), a("stays", health.Healthy, onNode))
	w.Skipped = aCheck(a("alone", health.Healthy, onNode, func(t *Target) {
		t.Machine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})).Targets
	w.view = workload.Seen(health.Up, nil)
	there := &upCluster{}
	r := &Reconciler{Clusters: there}
	r.observeNodes(t.Context(), w)
	verdicts := w.decide().Decisions
	must.List(t, []string{"node-stays"}, there.names, "the workload cluster is asked for")
	must.Is(t, health.Unknown, verdicts[0].Verdict.State, "the machine that is being deleted is")
	must.Is(t, health.Unhealthy, verdicts[1].Verdict.State, "the machine whose node was deleted is")
}

// The machine names node n and has provider ID azure://m/1.
func TestWhichNodeIsThatOfAMachine(t *testing.T) {
	const startup = 10 * time.Minute
	node := func(name, id string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
		n.CreationTimestamp = metav1.NewTime(ago(time.Minute))
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(ago(time.Hour))}}
		return n
	}
	these := func(nodes ...*corev1.Node) []*corev1.Node { return nodes }
	seen := []metav1.Condition{saidAt(health.NodeReady, "True", "NodeReady", time.Hour)}
	const well, bad, unknown = health.Healthy, health.Unhealthy, health.Unknown
	for name, tc := range map[string]struct {
		nodes       []*corev1.Node
		said        []metav1.Condition
		want, later health.State // later: after the start-up timeout
	}{
		"one ID may be in capitals":         {these(node("n", "azure://M/1", "True")), nil, well, well},
		"without one the name decides":      {these(node("n", "", "False")), nil, bad, bad},
		"it came back under another name":   {these(node("renamed", "azure://m/1", "True")), nil, well, well},
		"the name is another's":             {these(node("n", "azure://m/2", "True"), node("x", "azure://m/1", "False")), nil, bad, bad},
		"two of one ID condemn nobody":      {these(node("n", "azure://m/1", "False"), node("x", "azure://m/1", "True")), nil, unknown, unknown},
		"another's is not a deleted one":    {these(node("n", "azure://m/2", "True")), nil, unknown, bad},
		"nor if Cluster API sees its own":   {these(node("n", "azure://m/2", "True")), seen, unknown, unknown},
		"nor one of its name without an ID": {these(node("m", "", "True")), nil, unknown, bad},
		"one that is gone is":               {nil, nil, bad, bad},
	} {
		t.Run(name, func(t *testing.T) {
			for _, at := range []time.Time{noon, noon.Add(startup)} {
				w := aCheck(a("m", health.Healthy))
				is := w.Targets[0]
				is.Machine.Spec.ProviderID, is.Machine.Status.NodeRef.Name, is.Machine.Status.Conditions = "azure://m/1", "n", tc.said
				w.Check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{{Type: corev1.NodeReady, Status: "False"}}
				w.Now, w.view, w.Targets = at, workload.Seen(health.Up, tc.nodes), nil
				w.add(Target{Machine: is.Machine})
				(&Reconciler{Clusters: &upCluster{}}).observeNodes(t.Context(), w)
				want := tc.want
				if at.After(noon) {
					want = tc.later
				}
				if got := w.decide().Decisions[0].Verdict; got.State != want {
					t.Errorf("at %s it is %s, want %s: %+v", at.Format(time.TimeOnly), got.State, want, got.Findings)
				}
			}
		})
	}
}

func onNode(t *Target) { t.Machine.Status.NodeRef.Name = "node-" + t.Machine.Name }

func TestAFailureThatIsFinalReachesTheCacheAndLikeAnAnswerEnqueuesTheCheck(t *testing.T) {
	was, is := &clusterv1.Machine{}, &clusterv1.Machine{}
	failed(`{"failureReason":"CreateError","failureMessage":"no host\nis left"}`)(is)
	slim, err := SlimMachine(is.DeepCopy())
	if want := "FailureReason: CreateError, FailureMessage: no host is left"; err != nil || finalFailure(slim.(*clusterv1.Machine)) != want {
		t.Errorf("the cache has %q, want %q", finalFailure(slim.(*clusterv1.Machine)), want)
	}
	if !machineChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("the check is not enqueued when it fails")
	}
	answered := is.DeepCopy()
	answered.SetV1Beta1Conditions(clusterv1.Conditions{{
		Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse, Reason: "RemediationFailed",
	}})
	if !machineChanges().Update(event.UpdateEvent{ObjectOld: is, ObjectNew: answered}) {
		t.Error("nor when its owner answers by a reason alone")
	}
}

func TestTheStartUpTimeoutOfACheck(t *testing.T) {
	for name, tc := range map[string]struct {
		seconds *int32
		want    time.Duration
	}{"ten minutes by default": {nil, 10 * time.Minute}, "0 waits for ever": {ptr.To[int32](0), 0}, "what it says": {ptr.To[int32](90), 90 * time.Second}} {
		if got := policyOf(clusterv1.MachineHealthCheckChecks{NodeStartupTimeoutSeconds: tc.seconds}).NodeStartup; got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestTheRulesOfACheckBecomeThoseOfItsPolicy(t *testing.T) {
	got := policyOf(clusterv1.MachineHealthCheckChecks{
		UnhealthyMachineConditions: []clusterv1.UnhealthyMachineCondition{{Type: "GPU", Status: "False", TimeoutSeconds: ptr.To[int32](60)}},
		UnhealthyNodeConditions:    []clusterv1.UnhealthyNodeCondition{{Type: "Ready", Status: "Unknown"}},
	}).Rules
	want := []health.Rule{
		{Source: health.OnMachine, Type: "GPU", Status: "False", For: time.Minute}, {Source: health.OnNode, Type: "Ready", Status: "Unknown"},
	}
	must.Equal(t, want, got)
}

// The first outage ended before this process started; this process sees the second one from its beginning.
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

// The check still says True from before the process started. The outage may have begun long before.
func TestAnOutageThatBeganBeforeThisProcessHasNoKnownLength(t *testing.T) {
	f, r := newFleet(), &Reconciler{}
	var w *observed
	views := []workload.View{{Link: health.Unsure}, {Link: workload.Down}, {Link: workload.Down}, workload.Seen(health.Up, nil)}
	for at, view := range views {
		f.seen(t.Context(), t, r, noon.Add(time.Duration(at)*time.Minute), func(now *observed) {
			w, now.view = now, view
			now.Check.Status.Conditions = []metav1.Condition{{
				Type: mendv1.WorkloadClusterReachable, Status: "True", Reason: mendv1.ReachableReason,
			}}
		})
		if !w.outage.Began.IsZero() {
			t.Errorf("in reconcile %d the outage began at %s, which this process cannot know", at, w.outage.Began)
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
	if c.Status != metav1.ConditionFalse || c.Reason != mendv1.UnreachableReason || !strings.HasPrefix(c.Message, "The API server answers probes, but other requests get no answer") {
		t.Errorf("WorkloadClusterReachable is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	w.Now, w.before.reach = w.Now.Add(time.Minute), p.Reach
	p = decide(w)
	if again := p.Reach; again != c {
		t.Errorf("a minute later it is %+v, and was %+v", again, c)
	}
}

func TestAllThatAReconcileAsksOfAClusterHasOneDeadline(t *testing.T) {
	r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
	m := r.get("m")
	m.Status.NodeRef.Name = "missing"
	must.Do(t, r.api.Status().Update(t.Context(), m))
	before := clock.RealClock{}.Now()
	if _, err := r.Explain(t.Context(), client.ObjectKeyFromObject(r.check), r.clock.Now()); err != nil {
		t.Fatal(err)
	}
	if len(r.there.deadlines) != 2 || !r.there.deadlines[0].Equal(r.there.deadlines[1]) {
		t.Fatalf("the deadlines are %v", r.there.deadlines)
	}
	if in := r.there.deadlines[0].Sub(before); in < 0 || in > workload.AnswerWithin+time.Second {
		t.Errorf("the deadline is in %s", in)
	}
}
