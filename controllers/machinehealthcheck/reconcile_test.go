package machinehealthcheck

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/workload"
)

// upCluster is a workload cluster that can be reached and has no nodes, and counts how often its cache was doubted.
type upCluster struct{ doubted int }

func (u *upCluster) Doubt(client.ObjectKey, time.Time) { u.doubted++ }

func (*upCluster) View(context.Context, client.ObjectKey, time.Time, ...clustercache.Watcher) (workload.View, error) {
	return workload.Seen(health.Up, nil), nil
}

func (*upCluster) NodesExist(context.Context, client.ObjectKey, []string) (map[string]bool, error) {
	return nil, nil
}

// indexed adds the indexes of the manager's cache to a client.
type indexed struct{ *fake.ClientBuilder }

func (i indexed) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(obj, field, values)
	return nil
}

// reconciled is a controller over a check with a limit of one, and a machine that a person has marked beside a healthy one.
type reconciled struct {
	*Reconciler
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	api   client.Client
	there *upCluster
	check *clusterv1.MachineHealthCheck
}

func reconciling(t *testing.T, change func(*clusterv1.MachineHealthCheck)) *reconciled {
	t.Helper()
	w := aCheck(a("m", health.Unhealthy)).limited("1")
	w.Check.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	w.Check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &intstr.IntOrString{IntVal: 1}
	change(w.Check)
	for _, kind := range []string{clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition} {
		w.Cluster.Status.Conditions = append(w.Cluster.Status.Conditions, saidAt(kind, "True", "Test", time.Hour))
	}
	m := w.Targets[0].Machine
	m.ResourceVersion, m.Spec.ClusterName, m.CreationTimestamp = "", "c1", metav1.NewTime(noon)
	m.Labels, m.Annotations = map[string]string{"pool": "workers"}, map[string]string{clusterv1.RemediateMachineAnnotation: ""}
	scheme := runtime.NewScheme()
	_, _ = corev1.AddToScheme(scheme), clusterv1.AddToScheme(scheme)
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.Check, w.Cluster, m).WithStatusSubresource(w.Check, m)
	if err := AddIndexes(t.Context(), indexed{b}); err != nil {
		t.Fatal(err)
	}
	r := &reconciled{t: t, clock: clocktesting.NewFakePassiveClock(noon), api: b.Build(), there: &upCluster{}, check: w.Check}
	r.Reconciler = &Reconciler{
		Client: r.api, Live: r.api, Clusters: r.there, Kinds: &brokenKinds{}, Requests: cyclesOfHosts(), Recorder: events.NewFakeRecorder(100), Clock: r.clock, Unclaimed: Act,
	}
	return r
}

// pass makes one reconcile at that time after noon, and returns in how long the next one is and whether the machine's owner is asked by
// now.
func (r *reconciled) pass(at time.Duration) (next time.Duration, begun bool) {
	r.t.Helper()
	r.clock.SetTime(noon.Add(at))
	result, err := r.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r.check)})
	m := &clusterv1.Machine{}
	if err == nil {
		err = r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "ns", Name: "m"}, m)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return result.RequeueAfter, OwnerOf(m) != NotAsked
}

func TestTheCacheOfAClusterIsDoubtedThatNoReconcileReadDuringAPause(t *testing.T) {
	r := reconciling(t, func(check *clusterv1.MachineHealthCheck) {
		check.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	r.pass(0)
	check := &clusterv1.MachineHealthCheck{}
	if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(r.check), check); err != nil {
		t.Fatal(err)
	}
	check.Annotations = nil
	if err := r.api.Update(t.Context(), check); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r.pass(time.Duration(i) * time.Second)
		if r.there.doubted != 1 {
			t.Errorf("after the pause the cache is doubted %d times, want once", r.there.doubted)
		}
	}
}

// machine is the machine that a person has marked, as it is stored.
func (r *reconciled) machine() *clusterv1.Machine {
	r.t.Helper()
	m := &clusterv1.Machine{}
	if err := r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "ns", Name: "m"}, m); err != nil {
		r.t.Fatal(err)
	}
	return m
}

// outdatedReader is a client whose cache has a machine as it was.
type outdatedReader struct {
	client.Client
	was *clusterv1.Machine
}

func (o outdatedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := o.Client.List(ctx, list, opts...)
	if all, is := list.(*clusterv1.MachineList); is {
		all.Items = []clusterv1.Machine{*o.was.DeepCopy()}
	}
	return err
}

func (o outdatedReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := o.Client.Get(ctx, key, obj, opts...)
	if _, is := obj.(*metav1.PartialObjectMetadata); is && key.Name == o.was.Name {
		obj.SetResourceVersion(o.was.ResourceVersion)
	}
	return err
}

// Of two checks that select a machine one is enqueued by what the other has told, before the cache shows what that wrote.
func TestACheckWaitsUntilTheCacheShowsWhatAnotherOneWrote(t *testing.T) {
	r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
	written := r.machine()
	written.ResourceVersion = "99999"
	r.written.Note(written)
	if next, begun := r.pass(0); begun || next != consistency.Lag {
		t.Errorf("begun: %t, the next reconcile is after %s", begun, next)
	}
}

// A selector that cannot be parsed selects neither all machines nor none: with none, the check's requests would be deleted.
func TestACheckWhoseSelectorCannotBeParsedSaysSoAndKeepsWhatItHas(t *testing.T) {
	r := reconciling(t, func(check *clusterv1.MachineHealthCheck) {
		check.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Is", Values: []string{"workers"}}}
		check.Status.Targets = []string{"m"}
	})
	if next, begun := r.pass(0); begun || next != 0 {
		t.Errorf("a remediation begins: %t; the next reconcile is after %s, and a change of the check causes it", begun, next)
	}
	check := &clusterv1.MachineHealthCheck{}
	if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(r.check), check); err != nil {
		t.Fatal(err)
	}
	c := ConditionOf(check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	want := `Remediation is not allowed, spec.selector: "Is" is not a valid label selector operator; the operators are In, NotIn, Exists and DoesNotExist`
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != mendv1.InvalidSelectorReason || c.Message != want {
		t.Errorf("the check says %+v, want False InvalidSelector: %s", c, want)
	}
	if len(check.Status.Targets) != 1 {
		t.Errorf("its targets are %v, want them as they were", check.Status.Targets)
	}
	is, err := r.Explain(t.Context(), client.ObjectKeyFromObject(r.check), noon)
	if err != nil || is.Reason != mendv1.InvalidSelectorReason || is.Message != want || is.Next.Text != "correct spec.selector" {
		t.Errorf("explain says %s, %q, next %q, %v", is.Reason, is.Message, is.Next.Text, err)
	}
}

// Of two managers with a filter each, one acts on a check: that of its own label, or, if it has none, of its Cluster's.
func TestACheckIsFoundThroughTheLabelOfItsCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		own     map[string]string
		cluster string
		want    string
	}{
		"without a label of its own": {nil, "east", "east"},
		"with one":                   {map[string]string{clusterv1.WatchLabel: "west"}, "east", "west"},
		"with an empty one":          {map[string]string{clusterv1.WatchLabel: ""}, "east", ""},
		"after the Cluster's change": {nil, "west", "west"},
		"without either":             {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, value := range []string{"east", "west"} {
				r := reconciling(t, func(check *clusterv1.MachineHealthCheck) { check.Labels = tc.own })
				r.WatchFilterValue = value
				cluster := &clusterv1.Cluster{}
				if err := r.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c1"}, cluster); err != nil {
					t.Fatal(err)
				}
				if tc.cluster != "" {
					cluster.Labels = map[string]string{clusterv1.WatchLabel: tc.cluster}
				}
				if err := r.api.Update(t.Context(), cluster); err != nil {
					t.Fatal(err)
				}
				r.pass(0)
				if _, begun := r.pass(enqueue.MergeWindow); begun != (value == tc.want) {
					t.Errorf("the manager of %s begins: %t", value, begun)
				}
			}
		})
	}
}

func TestMode(t *testing.T) {
	cases := map[string]struct {
		annotation *string
		paused     bool
		unclaimed  Unclaimed
		want       Mode
	}{
		"a claimed check is acted on, whatever the flag":        {ptr.To("kubemend"), false, Ignore, Active},
		"a claimed check of a paused cluster is paused":         {ptr.To("kubemend"), true, Act, Paused},
		"any other value is a pause":                            {ptr.To("true"), false, Act, Paused},
		"even the empty one":                                    {ptr.To(""), false, Observe, Paused},
		"an unclaimed check is observed":                        {nil, false, Observe, Observed},
		"an unclaimed check of a paused cluster is not":         {nil, true, Observe, Paused},
		"an unclaimed check is acted on where the flag says so": {nil, false, Act, Active},
		"an unclaimed check is ignored where the flag says so":  {nil, false, Ignore, Ignored},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check, cluster := &clusterv1.MachineHealthCheck{}, &clusterv1.Cluster{}
			if tc.annotation != nil {
				check.Annotations = map[string]string{clusterv1.PausedAnnotation: *tc.annotation}
			}
			if tc.paused {
				cluster.Spec.Paused = ptr.To(true)
			}
			if got := modeFor(check, cluster, tc.unclaimed); got != tc.want {
				t.Errorf("modeFor() = %d, want %d", got, tc.want)
			}
		})
	}
}
