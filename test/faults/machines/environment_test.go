package machines

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faults"
	"github.com/kubemend/kubemend/test/inmemory"
	"github.com/kubemend/kubemend/test/must"
)

// most is how many reconciles the program may need to settle.
const most = 400

// environment is a management cluster with one Cluster, its workload cluster, and the controllers of MachineHealthChecks.
//
// The controllers run only in settle. Changes by others enqueue everything. The controllers' own writes enqueue only what they enqueue in
// the manager: a write of a machine's conditions enqueues only the releaser. So what a failed write leaves undone is completed only if the
// controller asks for a retry.
type environment struct {
	t         *testing.T
	ctx       context.Context
	namespace string
	clock     *clocktesting.FakePassiveClock
	api       client.WithWatch // for everything except the program
	there     *cluster
	writes    faults.Writes
	record    record

	// unrecorded are the UIDs of machines for which the program failed to write a record.
	unrecorded map[string]bool

	checks   *machinehealthcheck.Reconciler
	releaser *machinehealthcheck.Releaser
	link     *connection
	cache    *inmemory.Cache // of the management cluster
	due      map[work]time.Time
	failed   map[work]int
	coming   []time.Time // the times of events that enqueue the checks

	// reconciles is the number of reconciles. The program is restarted before reconcile number killBefore.
	reconciles, killBefore int
	killed                 bool

	// unknown makes new machines have no conditions of a check. Otherwise they are healthy, as they usually are.
	unknown bool
}

// work is an object in the queue of one of the controllers.
type work struct {
	releaser bool
	key      types.NamespacedName
}

var environments atomic.Int64

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	e := &environment{
		t: t, ctx: t.Context(), namespace: fmt.Sprintf("ns-%d", environments.Add(1)), clock: clocktesting.NewFakePassiveClock(noon),
		record: newRecord(), unrecorded: map[string]bool{},
	}
	e.there = &cluster{clock: e.clock, nodes: map[string]*corev1.Node{}, backAt: noon.Add(-time.Hour)}
	server, err := newServer(e.clock)
	e.must(err)
	e.api, e.cache = server, server.NewCache(nil)
	e.must(e.api.Create(e.ctx, builders.Namespace(e.namespace)))
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "c1"}}
	e.must(e.api.Create(e.ctx, c))
	for _, kind := range []string{clusterv1.ClusterInfrastructureReadyCondition, clusterv1.ClusterControlPlaneInitializedCondition} {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
		})
	}
	e.must(e.api.Status().Update(e.ctx, c))
	e.must(e.api.Create(e.ctx, aTemplate(e.namespace, "reboot")))
	t.Cleanup(e.forget)
	return e
}

func (e *environment) must(err error) {
	e.t.Helper()
	must.Do(e.t, err)
}

// start starts an instance of the program, without any memory.
func (e *environment) start() {
	e.t.Helper()
	e.writes.Restart()
	e.cache.CatchUp()
	api := e.missing(e.writes.Client(e.recorded()))
	live := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if m, is := obj.(*clusterv1.Machine); is && err == nil {
				ownedBy(mendv1.FieldOwner, m)
			}
			return err
		},
	})
	writer := client.WithFieldOwner(inmemory.Cached(api, e.cache, &e.writes), mendv1.FieldOwner)
	kinds := remediationrequest.NewKinds(syncedKinds{}, live, "", remediationrequest.NewMetadata)
	requests := &remediationrequest.Requests{Client: writer, Live: live}
	e.link = &connection{to: e.there}
	e.link.follow()
	e.due, e.failed = map[work]time.Time{}, map[work]int{}
	e.checks = &machinehealthcheck.Reconciler{
		Client: writer, Live: live, Clusters: workload.NewClusters(e.link), Requests: requests, Kinds: kinds,
		Recorder: recorder{e, &e.writes}, Clock: e.clock,
		Unclaimed: machinehealthcheck.Act, Ledger: e.newLedger(), Records: &records.Records{
			Client: writer, Live: live, Clock: e.clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
		},
	}
	e.releaser = &machinehealthcheck.Releaser{
		Client: writer, Live: live, Requests: requests, Kinds: kinds, Recorder: recorder{e, &e.writes}, Unclaimed: machinehealthcheck.Act,
	}
	e.must(kinds.Discover(e.ctx,
		[]*metav1.APIResourceList{{GroupVersion: requestKind.GroupVersion().String(), APIResources: []metav1.APIResource{
			{Name: "metal3remediations", Kind: requestKind.Kind}, {Name: "metal3remediationtemplates", Kind: templateKind.Kind},
		}}}, client.HasLabels{mendv1.MadeByUIDLabel}))
	e.enqueueAll()
}

// newLedger returns the ledger of a process that has read the policy for checks with oneAtATime.
func (e *environment) newLedger() *policy.Ledger {
	one := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "one"}}
	one.Spec.Selector.Checks = &metav1.LabelSelector{MatchLabels: map[string]string{atOnce: "1"}}
	one.Spec.Limits = []mendv1.PolicyLimit{{Name: "all", MaxInFlight: new(intstr.FromInt32(1))}}
	ledger := &policy.Ledger{Clock: e.clock}
	wake := func(check reconcile.Request, in time.Duration) { e.enqueue(work{false, check.NamespacedName}, in) }
	ledger.SetUp(policy.MachineHealthCheck, e.checkKeys, wake)
	ledger.Set([]*policy.Policy{policy.Read(one, e.namespace)})
	return ledger
}

// recorder records the events of a process until it crashes.
type recorder struct {
	*environment
	writes *faults.Writes
}

func (r recorder) Eventf(about, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	if r.writes.Crashed() {
		return
	}
	r.record.mu.Lock()
	defer r.record.mu.Unlock()
	r.record.Events[about.(client.Object).GetName()+" "+reason]++
}

// enqueue makes work due after a time, unless it is due before.
func (e *environment) enqueue(w work, after time.Duration) {
	at := e.clock.Now().Add(after)
	if was, waits := e.due[w]; !waits || at.Before(was) {
		e.due[w] = at
	}
}

// enqueueAll enqueues everything for both controllers, like events of all objects.
func (e *environment) enqueueAll() {
	e.enqueueChecks()
	for _, m := range e.allMachines() {
		e.enqueue(work{true, client.ObjectKeyFromObject(m)}, 0)
	}
}

func (e *environment) enqueueChecks() {
	for _, check := range e.checkKeys() {
		e.enqueue(work{false, check.NamespacedName}, 0)
	}
}

func (e *environment) checkKeys() []reconcile.Request {
	checks := &clusterv1.MachineHealthCheckList{}
	e.must(e.api.List(e.ctx, checks, client.InNamespace(e.namespace)))
	keys := make([]reconcile.Request, len(checks.Items))
	for i := range checks.Items {
		keys[i].NamespacedName = client.ObjectKeyFromObject(&checks.Items[i])
	}
	return keys
}

// settle lets the program work until nothing is due within that time, and moves the clock to its end.
func (e *environment) settle(within time.Duration) {
	e.t.Helper()
	until := e.clock.Now().Add(within)
	for n := 0; ; n++ {
		if n > most {
			e.t.Fatalf("the program does not come to rest: %s", e.record.history())
		}
		w, at, found := e.next()
		if !found || at.After(until) {
			break
		}
		if at.After(e.clock.Now()) {
			e.clock.SetTime(at)
		}
		e.deliver()
		if w != (work{}) {
			e.runOne(w)
		}
	}
	if e.clock.Now().Before(until) {
		e.clock.SetTime(until)
	}
}

// next returns the work that is due first; of several, checks first, then by name.
func (e *environment) next() (first work, at time.Time, found bool) {
	for _, event := range e.coming {
		if !found || event.Before(at) {
			at, found = event, true
		}
	}
	if _, due, waits := e.earliest(); !waits || found && at.Before(due) {
		return work{}, at, found
	}
	return e.earliest()
}

// deliver enqueues the checks if an event is due.
func (e *environment) deliver() {
	before := len(e.coming)
	e.coming = slices.DeleteFunc(e.coming, func(at time.Time) bool { return !at.After(e.clock.Now()) })
	if len(e.coming) < before {
		e.enqueueChecks()
	}
}

func (e *environment) earliest() (first work, at time.Time, found bool) {
	for w, due := range e.due {
		switch {
		case !found, due.Before(at):
		case due.After(at), !byName(w, first):
			continue
		}
		first, at, found = w, due, true
	}
	return first, at, found
}

func byName(a, b work) bool {
	if a.releaser != b.releaser {
		return b.releaser
	}
	return cmp.Less(a.key.Name, b.key.Name)
}

// runOne reconciles one object, and restarts the program if it has crashed.
func (e *environment) runOne(w work) {
	e.t.Helper()
	e.reconciles++
	if e.reconciles == e.killBefore {
		e.killed = true
		e.start()
		return
	}
	delete(e.due, w)
	e.link.follow()
	result, err := e.reconcile(w)
	e.count()
	if e.writes.Crashed() {
		e.start()
		return
	}
	if err != nil {
		e.failed[w]++
		e.enqueue(w, min(100*time.Millisecond<<min(e.failed[w], 10), time.Minute))
		return
	}
	delete(e.failed, w)
	if result.RequeueAfter > 0 {
		e.enqueue(w, result.RequeueAfter)
	}
}

func (e *environment) reconcile(w work) (ctrl.Result, error) {
	if w.releaser {
		return e.releaser.Reconcile(e.ctx, ctrl.Request{NamespacedName: w.key})
	}
	return e.checks.Reconcile(e.ctx, ctrl.Request{NamespacedName: w.key})
}

// lag makes the caches of the management cluster stale; catchUp ends that and delivers all events.
func (e *environment) lag() { e.cache.Lag() }

func (e *environment) catchUp() {
	e.cache.CatchUp()
	e.enqueueAll()
}

// forget removes the metrics of the checks, which would outlive the environment.
func (e *environment) forget() {
	e.cache.CatchUp()
	for _, name := range e.record.checks {
		_ = e.api.Delete(context.Background(),
			&clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}})
		if e.checks != nil {
			e.writes.Restart()
			_, _ = e.checks.Reconcile(context.Background(),
				ctrl.Request{NamespacedName: types.NamespacedName{Namespace: e.namespace, Name: name}})
		}
	}
}

// history returns what the program did, to explain a failure.
func (r *record) history() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return "\n  " + strings.Join(slices.Clone(r.log), "\n  ")
}
