package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/workload"
	"github.com/kubemend/kubemend/test/must"
)

// upCluster is a workload cluster that is up and has no nodes. It notes how often its cache was doubted, which nodes it was asked for, and
// the deadlines of all requests.
type upCluster struct {
	doubted   int
	names     []string
	deadlines []time.Time
}

func (u *upCluster) Doubt(client.ObjectKey, time.Time) { u.doubted++ }

func (u *upCluster) View(ctx context.Context, _ client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	deadline, _ := ctx.Deadline()
	u.deadlines = append(u.deadlines, deadline)
	return workload.Seen(health.Up, nil), nil
}

func (u *upCluster) NodesExist(ctx context.Context, _ client.ObjectKey, names []string) (map[string]bool, error) {
	deadline, _ := ctx.Deadline()
	u.deadlines, u.names = append(u.deadlines, deadline), append(u.names, names...)
	return nil, nil
}

// indexed adds the indexes of the manager's cache to a client.
type indexed struct{ *fake.ClientBuilder }

func (i indexed) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(obj, field, values)
	return nil
}

// server returns a management cluster with these objects.
func server(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, clusterv1.AddToScheme, mendv1.AddToScheme, bmov1alpha1.AddToScheme,
	} {
		must.Do(t, add(scheme))
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&clusterv1.MachineHealthCheck{}, &clusterv1.Machine{})
	must.Do(t, AddIndexes(t.Context(), indexed{b}))
	return b
}

// reconciled is a controller with one check, which has a limit of one, and a machine that a person has marked.
type reconciled struct {
	*Reconciler
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	api   client.WithWatch
	there *upCluster
	check *clusterv1.MachineHealthCheck
}

func reconciling(t *testing.T, change func(*clusterv1.MachineHealthCheck)) *reconciled {
	t.Helper()
	w := aCheck(a("m", health.Unhealthy)).limited("1")
	w.Check.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	w.Check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &intstr.IntOrString{IntVal: 1}
	change(w.Check)
	m := w.Targets[0].Machine
	m.ResourceVersion, m.Spec.ClusterName, m.CreationTimestamp = "", "c1", metav1.NewTime(noon)
	m.Labels, m.Annotations = map[string]string{"pool": "workers"}, map[string]string{clusterv1.RemediateMachineAnnotation: ""}
	r := &reconciled{
		t: t, clock: clocktesting.NewFakePassiveClock(noon), api: server(t, w.Check, w.Cluster, m).Build(), there: &upCluster{}, check: w.Check,
	}
	r.Reconciler = &Reconciler{
		Client: r.api, Live: r.api, Clusters: r.there, Kinds: &brokenKinds{}, Requests: cyclesOfHosts(), Recorder: events.NewFakeRecorder(100), Clock: r.clock, Unclaimed: Act,
	}
	return r
}

// pass reconciles once at that time after noon. It returns when the next reconcile is due, and whether the machine's owner has been asked.
func (r *reconciled) pass(at time.Duration) (next time.Duration, begun bool) {
	r.t.Helper()
	next = r.passOf(at, r.check.Name)
	return next, OwnerOf(r.get("m")) != NotAsked
}

// passOf reconciles a check at that time after noon, and returns when the next reconcile is due.
func (r *reconciled) passOf(at time.Duration, check string) time.Duration {
	r.t.Helper()
	r.clock.SetTime(noon.Add(at))
	result, err := r.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: check}})
	must.Do(r.t, err)
	return result.RequeueAfter
}

// get returns a stored machine.
func (r *reconciled) get(name string) *clusterv1.Machine {
	r.t.Helper()
	m := &clusterv1.Machine{}
	must.Do(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, m))
	return m
}

func TestTheCacheOfAClusterIsDoubtedThatNoReconcileReadDuringAPause(t *testing.T) {
	r := reconciling(t, func(check *clusterv1.MachineHealthCheck) {
		check.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	r.pass(0)
	check := &clusterv1.MachineHealthCheck{}
	must.Do(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(r.check), check))
	check.Annotations = nil
	must.Do(t, r.api.Update(t.Context(), check))
	for i := range 3 {
		r.pass(time.Duration(i) * time.Second)
		if r.there.doubted != 1 {
			t.Errorf("after the pause the cache is doubted %d times, want once", r.there.doubted)
		}
	}
}

// outdatedReader is a client whose cache has an old version of a machine.
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

// Another check's opinion enqueues this check before the cache shows what the other check wrote.
func TestACheckWaitsUntilTheCacheShowsWhatAnotherOneWrote(t *testing.T) {
	r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
	written := r.get("m")
	written.ResourceVersion = "99999"
	r.written.Note(written)
	if next, begun := r.pass(0); begun || next != consistency.Lag {
		t.Errorf("begun: %t, the next reconcile is after %s", begun, next)
	}
}

// A selector that cannot be parsed selects neither all machines nor none: with none, the requests of the check would be deleted.
func TestACheckWhoseSelectorCannotBeParsedSaysSoAndKeepsWhatItHas(t *testing.T) {
	r := reconciling(t, func(check *clusterv1.MachineHealthCheck) {
		check.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Is", Values: []string{"workers"}}}
		check.Status.Targets = []string{"m"}
	})
	if next, begun := r.pass(0); begun || next != 0 {
		t.Errorf("a remediation begins: %t; the next reconcile is after %s, and a change of the check causes it", begun, next)
	}
	check := &clusterv1.MachineHealthCheck{}
	must.Do(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(r.check), check))
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

// Of two managers with different filters, the one acts whose filter is the label of the check or, if the check has none, of its Cluster.
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
				must.Do(t, r.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c1"}, cluster))
				if tc.cluster != "" {
					cluster.Labels = map[string]string{clusterv1.WatchLabel: tc.cluster}
				}
				must.Do(t, r.api.Update(t.Context(), cluster))
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
			must.Is(t, tc.want, modeFor(check, cluster, tc.unclaimed), "modeFor() =")
		})
	}
}

func TestTheNumbersOfACheckAreWrittenAWhileAfterTheyHaveChanged(t *testing.T) {
	fleet := func(size, pending int) *observed {
		targets := make([]Target, size)
		for i := range targets {
			if targets[i] = a(fmt.Sprintf("m%04d", i), health.Healthy, markedBefore); i < pending {
				targets[i] = a(fmt.Sprintf("m%04d", i), health.Pending)
			}
		}
		return aCheck(targets...).limited("40%")
	}
	for name, tc := range map[string]struct {
		size, pending int
		due           time.Duration // when the status was due, from now; zero if it was not postponed
		want          time.Duration // from now; zero for at once
	}{
		"of a small one after a second":           {100, 1, 0, time.Second},
		"of a large one after two":                {5000, 1, 0, 2 * time.Second},
		"not later if they change again":          {5000, 2, 400 * time.Millisecond, 400 * time.Millisecond},
		"when the time has come":                  {5000, 1, -time.Millisecond, 0},
		"at once if it turns what the check says": {5000, 2001, 400 * time.Millisecond, 0},
		"never if nothing differs":                {5000, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := fleet(tc.size, 0)
			w := fleet(tc.size, tc.pending)
			w.Check.Status = statusAfter(before, decide(before), nil).Status
			if tc.due != 0 {
				w.before.statusDue = w.Now.Add(tc.due)
			}
			due, want := putOff(w, statusAfter(w, decide(w), nil)), time.Time{}
			if tc.want > 0 {
				want = w.Now.Add(tc.want)
			}
			if !due.Equal(want) {
				t.Errorf("written at %s, want %s; zero is at once", due, want)
			}
		})
	}
}

// A stale cache shows a machine whose owner was not asked yet, so a decision on it would not count the remediation. A remediation counts
// also if the answer to the write that asked the owner was lost.
func TestAReconcileWaitsForTheCacheToShowItsWrites(t *testing.T) {
	for name, lost := range map[string]bool{"with an answer": false, "whose answer was lost": true} {
		r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
		r.pass(0)
		before := r.get("m")
		if lost {
			r.Client = interceptor.NewClient(r.api, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
					return errors.Join(c.SubResource(sub).Patch(ctx, obj, p, opts...), errors.New("the answer was lost"))
				},
			})
		}
		if _, begun := r.pass(time.Second); !begun {
			t.Fatal("no remediation was requested")
		}
		r.Client, r.Live = outdatedReader{r.api, before}, r.api
		written := r.get("m").ResourceVersion
		if next, _ := r.pass(2 * time.Second); next != consistency.Lag || r.get("m").ResourceVersion != written {
			t.Errorf("%s: on what was before its write it acts, or waits %s", name, next)
		}
		r.Client = r.api
		if next, _ := r.pass(3 * time.Second); next < time.Minute {
			t.Errorf("%s: when the cache shows it, the next reconcile is in %s", name, next)
		}
	}
}

// Whether requests can be created is reported only in a v1beta1 condition, and known only to the reconcile that tried. If the status were
// postponed, it would be lost.
func TestWhetherRequestsCanBeMadeIsWrittenAtOnce(t *testing.T) {
	w := aCheck(a("m1", health.Unhealthy), a("m2", health.Unhealthy)).external()
	for len(w.Targets) < 5000 {
		w.also(a(fmt.Sprintf("n%04d", len(w.Targets)), health.Healthy, markedBefore))
	}
	before := statusAfter(w, decide(w), nil)
	refused := statusAfter(w, decide(w), []outcome{{refused: errors.New("no rights"), err: errors.New("no rights")}})
	for name, tc := range map[string]struct {
		was *clusterv1.MachineHealthCheck
		is  []outcome
	}{"they cannot": {before, []outcome{{refused: errors.New("no rights")}}}, "they can again": {refused, []outcome{{requested: true}}}} {
		w.Check.Status = tc.was.Status
		w.Check.Status.ObservedGeneration = w.Check.Generation
		if due := putOff(w, statusAfter(w, decide(w), tc.is)); !due.IsZero() {
			t.Errorf("%s: written at %s, want at once", name, due)
		}
	}
}

// An API server that was restored from a backup has older versions than were written, and never shows the write.
func TestNoReconcileWaitsForAWriteThatIsGone(t *testing.T) {
	for name, restored := range map[string]bool{"the API server was restored from a backup": true, "the cache stands still": false} {
		t.Run(name, func(t *testing.T) {
			r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
			r.pass(0)
			before := r.get("m")
			if _, begun := r.pass(time.Second); !begun {
				t.Fatal("no remediation was requested")
			}
			r.Client, r.Live = outdatedReader{r.Client, before}, r.api
			if restored {
				r.Live = outdatedReader{r.api, before}
			}
			waits := true
			for i := range 20 {
				next, _ := r.pass(time.Duration(2+i) * time.Second)
				waits = next == consistency.Wait(i+1)
			}
			if waits == restored {
				t.Errorf("after 20 reconciles it waits for the cache: %t", waits)
			}
		})
	}
}

// A machine whose owner may have been asked holds up the others of its check for seconds only, even if it can never be read.
func TestNoReconcileWaitsForeverForAMachineThatCannotBeRead(t *testing.T) {
	r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
	r.pass(0)
	r.Client = interceptor.NewClient(r.api, interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return errors.New("the answer was lost")
		},
	})
	r.pass(time.Second)
	r.Client, r.Live = r.api, interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("it cannot be decoded")
		},
	})
	begun := false
	for i := range 20 {
		_, now := r.pass(time.Duration(2+i) * time.Second)
		begun = begun || now
	}
	if !begun {
		t.Error("after 20 reconciles nothing goes on")
	}
}

func TestTheLabelOfACheckIsWrittenEverMoreRarelyWhereAnotherClientRemovesIt(t *testing.T) {
	r, writes := reconciling(t, func(*clusterv1.MachineHealthCheck) {}), 0
	r.Client = interceptor.NewClient(r.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if obj.GetName() == r.check.Name {
				writes++
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	without := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null,"ownerReferences":null}}`))
	for i := range 600 {
		r.pass(time.Duration(i) * 100 * time.Millisecond)
		must.Do(t, r.api.Patch(t.Context(), r.check.DeepCopy(), without))
	}
	if writes < 4 || writes > 8 { // pauses of 1, 2, 4 ... seconds
		t.Errorf("they are written %d times in a minute", writes)
	}
}
