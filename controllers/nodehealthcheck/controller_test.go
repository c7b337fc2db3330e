package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// bad makes a node unhealthy, long enough for the default conditions.
func (k *fixture) bad(node string) {
	k.turn(node, corev1.ConditionUnknown)
	k.after(300 * time.Second)
}

func (k *fixture) wants(what string, want ...string) {
	k.t.Helper()
	if diff := cmp.Diff(want, k.requests(), cmpopts.EquateEmpty()); diff != "" {
		k.t.Fatalf("%s: requests (-want +got):\n%s", what, diff)
	}
}

func (k *fixture) told(reason string) bool {
	return slices.ContainsFunc(k.events(), func(e string) bool { return strings.Contains(e, " "+reason+" ") })
}

func TestRequestsThatMayNotBeReadAreNotTakenForNone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.turn("b", corev1.ConditionTrue)
	k.deny("Reboot")
	k.restart()
	k.settle("nhc")
	k.wants("it is left alone", "Reboot/b")
	is := k.check("nhc")
	if c := meta.FindStatusCondition(is.Status.Conditions, nhcv1.DisabledCondition); c.Reason != nhcv1.TemplateForbiddenReason {
		t.Errorf("Disabled says %+v", c)
	}
	if *is.Status.HealthyNodes != 2 || len(is.Status.UnhealthyNodes) != 1 || len(is.Status.UnhealthyNodes[0].Remediations) != 1 {
		t.Errorf("the request that cannot be read is forgotten: %+v", is.Status)
	}
	if len(k.leases()) != 1 {
		t.Error("its lease is given back")
	}
	k.denied = ""
	k.after(readRetry)
	k.settle("nhc")
	k.wants("it can be read again")
}

func TestWhatGoesOnIsReportedAgainWhenItsEventIsGone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"})
	badB(k)
	if !k.told(nhcv1.EventRemediationSkipped) {
		t.Fatal("no event says that it is skipped")
	}
	k.after(59 * time.Minute)
	k.settle("nhc")
	if k.told(nhcv1.EventRemediationSkipped) {
		t.Error("it is reported while the event is there")
	}
	k.after(time.Minute)
	k.settle("nhc")
	if !k.told(nhcv1.EventRemediationSkipped) {
		t.Error("after an hour nothing says why it is left alone")
	}
}

func named(lease *coordinationv1.Lease, name string) *coordinationv1.Lease {
	lease.Namespace, lease.Name = nhcv1.DefaultLeaseNamespace, name
	return lease
}

func TestWhenACheckIsReconciledAgain(t *testing.T) {
	conflict, broken := apierrors.NewConflict(schema.GroupResource{}, "x", nil), errors.New("broken")
	for name, tc := range map[string]struct {
		resync   time.Duration
		recheck  time.Time
		trouble  []error
		outcomes []outcome
		record   error
		want     time.Duration
	}{
		"a steady check is not":                             {outcomes: []outcome{{}}},
		"one with a resync is, once that is due":            {resync: time.Hour, want: time.Hour},
		"a moment that the plan waits for":                  {recheck: epoch.Add(time.Minute), want: time.Minute},
		"what could not be observed is tried again":         {trouble: []error{broken}, want: enqueue.Backoff(1)},
		"a step that failed is tried again":                 {outcomes: []outcome{{err: broken}}, want: enqueue.Backoff(1)},
		"so is one in which another controller was faster":  {outcomes: []outcome{{again: true}}, want: enqueue.Backoff(1)},
		"so is a status that could not be written":          {record: broken, want: enqueue.Backoff(1)},
		"so is one that another controller has written too": {record: conflict, want: enqueue.Backoff(1)},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(epoch), Resync: tc.resync}
			w := &observed{check: &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nhc"}}, facts: Facts{Now: epoch, Trouble: tc.trouble}}
			result := r.next(t.Context(), w, &Plan{Recheck: tc.recheck}, tc.outcomes, tc.record)
			if result.RequeueAfter != tc.want {
				t.Errorf("after %s, want after %s", result.RequeueAfter, tc.want)
			}
		})
	}
}

func TestTriesGetRarerUntilOneSucceeds(t *testing.T) {
	r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(epoch)}
	w := &observed{check: &nhcv1.NodeHealthCheck{}, facts: Facts{Now: epoch}}
	for i, tries := range []int{1, 2, 3, 0, 1} {
		w.facts.Trouble = nil
		want := time.Duration(0)
		if tries > 0 {
			w.facts.Trouble, want = []error{errors.New("no")}, enqueue.Backoff(tries)
		}
		if result := r.next(t.Context(), w, &Plan{}, nil, nil); result.RequeueAfter != want {
			t.Errorf("reconcile %d: after %s, want after %s", i, result.RequeueAfter, want)
		}
	}
}

const grace = 50 * time.Second

// answers is an API server that answers with a status code, or not at all with an error.
type answers struct {
	status int
	err    error
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status, Body: http.NoBody}, nil
}

func TestWhenTheAPIServerWasOutOfReach(t *testing.T) {
	refused := errors.New("connection refused")
	for name, tc := range map[string]struct {
		meanwhile answers
		lasts     time.Duration
		want      int
	}{
		"it refuses connections":                 {answers{err: refused}, time.Minute, 1},
		"a proxy before it has no server to ask": {answers{status: http.StatusBadGateway}, time.Minute, 1},
		"for so short that no report is missing": {answers{err: refused}, 9 * time.Second, 0},
		"it only refuses what it is asked":       {answers{status: http.StatusForbidden}, time.Minute, 0},
		"it has too much to do, and says so":     {answers{status: http.StatusTooManyRequests}, time.Minute, 0},
		"it was not waited for":                  {answers{err: context.Canceled}, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(epoch)
			server := &answers{status: http.StatusOK}
			contact := &Contact{Clock: clock, Next: server}
			ask := func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				if resp, err := contact.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
			}
			ask()
			*server = tc.meanwhile
			ask()
			clock.SetTime(epoch.Add(tc.lasts))
			ask()
			*server = answers{status: http.StatusOK}
			ask()
			ask()
			past := contact.past()
			if len(past) != tc.want || tc.want > 0 && past[0] != (Outage{From: epoch, To: epoch.Add(tc.lasts)}) {
				t.Errorf("outages %v, want %d", past, tc.want)
			}
		})
	}
}

// cutOff makes the API server unreachable for a while, without reconciles.
func (k *fixture) cutOff(d time.Duration) {
	k.t.Helper()
	k.r.Contact.note(false)
	k.after(d)
	k.r.Contact.note(true)
}

// watching returns a fixture whose controller knows the outages of the API server and gives kubelets time to report.
func watching(t *testing.T, spec func(*nhcv1.NodeHealthCheckSpec)) *fixture {
	t.Helper()
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false), check("nhc", spec))...)
	k.r.Contact, k.r.Grace = &Contact{Clock: k.clock}, grace
	k.settle("nhc")
	k.after(grace)
	k.settle("nhc")
	return k
}

func classic(*nhcv1.NodeHealthCheckSpec) {}

func TestNothingBeginsBeforeKubeletsHadTimeToReport(t *testing.T) {
	for name, happens := range map[string]func(*fixture){
		"after a start, or a change of leader": func(k *fixture) { k.after(10 * time.Minute); k.restart() },
		"after an outage of the API server":    func(k *fixture) { k.cutOff(10 * time.Minute) },
		"when the checks are ours again":       func(k *fixture) { k.r.Serve(false); k.after(10 * time.Minute); k.r.Serve(true) },
	} {
		t.Run(name, func(t *testing.T) {
			k := watching(t, classic)
			k.turn("b", corev1.ConditionUnknown)
			k.turn("c", corev1.ConditionUnknown)
			happens(k)
			k.settle("nhc")
			k.wants("no kubelet could report")
			if c := conditionOf(k.check("nhc"), nhcv1.RemediationAllowedCondition); c.Reason != nhcv1.KubeletsAwaitedReason {
				t.Errorf("RemediationAllowed: %+v", c)
			}
			if is := k.look("nhc"); is.Reason != nhcv1.KubeletsAwaitedReason || is.Targets[1].Blockers[0].Until != k.clock.Now().Add(grace) {
				t.Errorf("explained by %q, %+v", is.Reason, is.Targets)
			}
			k.after(10 * time.Second)
			k.turn("c", corev1.ConditionTrue)
			k.settle("nhc")
			k.after(grace - 11*time.Second)
			k.settle("nhc")
			k.wants("kubelets have a second left")
			k.after(time.Second)
			k.settle("nhc")
			k.wants("b has not reported, and c has", "Reboot/b")
		})
	}
}

func single(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
}

func TestARequestThatIsRefusedKeepsNoLease(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "reboots"}, "b", errors.New("exceeded quota"))
	k := single(t)
	k.refuses("create", "b", refused)
	k.bad("b")
	k.reconciles("nhc")
	k.wants("the API server refuses it")
	if len(k.leases()) != 0 {
		t.Error("no remediator is at work, and the node is leased")
	}
	if !slices.ContainsFunc(k.events(), func(e string) bool {
		return strings.HasPrefix(e, "Warning RemediationFailed") && strings.Contains(e, "No remediation object could be created for node b") &&
			strings.Contains(e, "exceeded quota")
	}) {
		t.Error("no event says why")
	}
	k.fails = nil
	k.settle("nhc")
	k.wants("it does no more", "Reboot/b")
	if len(k.leases()) != 1 {
		t.Error("the node is remediated, and not leased")
	}
}

func TestNothingIsMadeForRequestsThatCannotBeRead(t *testing.T) {
	k := single(t)
	k.settle("nhc")
	k.deny("Reboot")
	k.bad("b")
	if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}}); !apierrors.IsForbidden(err) {
		t.Errorf("a reconcile that cannot read the requests returns %v", err)
	}
	k.wants("the requests that there are cannot be read")
	k.deny("")
	k.after(time.Minute)
	k.settle("nhc")
	k.wants("they can be read", "Reboot/b")
}

// A node is unhealthy for half a minute, healthy for a while, and unhealthy again with another status.
func TestARecoveryThatNoPassCouldSeeEndsAStreak(t *testing.T) {
	for name, meanwhile := range map[string]func(*fixture){
		"no pass was made for hours": func(k *fixture) { k.after(2 * time.Hour) },
		"passes failed": func(k *fixture) {
			k.after(4 * time.Minute)
			k.r.Installed = func(context.Context, string) (bool, error) { return false, errors.New("no answer") }
			_, _ = k.r.Reconcile(k.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}})
			k.r.Installed = func(context.Context, string) (bool, error) { return false, nil }
			k.after(30 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := single(t)
			k.turn("b", corev1.ConditionFalse)
			k.settle("nhc")
			k.after(30 * time.Second)
			k.turn("b", corev1.ConditionTrue)
			meanwhile(k)
			k.turn("b", corev1.ConditionUnknown)
			k.after(time.Second)
			k.settle("nhc")
			k.after(40 * time.Second)
			k.settle("nhc")
			k.wants("it is bad for less than a minute")
			k.after(260 * time.Second)
			k.settle("nhc")
			k.wants("now it was bad for long enough", "Reboot/b")
		})
	}
}

// five returns a control plane of five nodes, and checks with limits that allow two remediations.
func five(checks ...*nhcv1.NodeHealthCheck) []client.Object {
	objects := []client.Object{template("Reboot", "reboot", false), template("Replace", "replace", false)}
	for _, c := range checks {
		c.Spec.MaxUnhealthy = ptr.To(intstr.FromInt32(5))
		objects = append(objects, c)
	}
	for _, name := range []string{"m0", "m1", "m2", "m3", "m4"} {
		objects = append(objects, member(name))
	}
	return objects
}

func TestACheckSaysForWhichKindItWaits(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	slow := controllertest.NewFakeInformer()
	kind := schema.GroupVersionKind{Group: remediatorGroup, Version: "v1", Kind: "RebootTemplate"}
	k.informers.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{kind: slow}
	k.bad("b")
	look := func() error {
		_, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}})
		return err
	}
	if err := look(); err != nil {
		t.Fatal("that a kind is being read is no error:", err)
	}
	k.after(slowRead + time.Second)
	if err := look(); err == nil {
		t.Error("nothing is logged")
	}
	c := conditionOf(k.check("nhc"), nhcv1.RemediationAllowedCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != nhcv1.KindUnreadReason || !strings.Contains(c.Message, "RebootTemplate.remediator.example.org") {
		t.Errorf("the check says %+v", c)
	}
	k.wants("nothing is decided")
	slow.Synced()
	k.settle("nhc")
	k.wants("then it goes on", "Reboot/b")
	if c := conditionOf(k.check("nhc"), nhcv1.RemediationAllowedCondition); c.Status != metav1.ConditionTrue {
		t.Errorf("the check says %+v", c)
	}
}

// If requests of another check cannot be read yet, this only blocks remediations of control-plane nodes that have not begun.
func TestRequestsOfOtherChecksHoldUpNothingThatGoesOn(t *testing.T) {
	for name, row := range map[string]struct {
		begins func(*fixture)
		then   func(*fixture)
		want   string
	}{
		"the next step of a member": {
			func(k *fixture) { k.bad("m0"); k.settle("nhc"); k.wants("the first step", "Reboot/m0") }, func(*fixture) {}, "Replace/m0",
		},
		"a worker beside a member that is excluded": {func(k *fixture) {
			excluded := k.node("m0")
			metav1.SetMetaDataLabel(&excluded.ObjectMeta, nhcv1.ExcludeLabel, nhcv1.ExcludeValue)
			k.update(excluded)
			k.bad("m0")
			k.settle("nhc")
		}, func(k *fixture) { k.turn("w", corev1.ConditionUnknown) }, "Reboot/w"},
	} {
		t.Run(name, func(t *testing.T) {
			ofBoth := check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace")))
			k := newFixture(t, append(append(five(ofBoth), workers("w")...), template("Pray", "pray", false))...)
			row.begins(k)
			slow := schema.GroupVersionKind{Group: remediatorGroup, Version: "v1", Kind: "Pray"}
			k.informers.InformersByGVK[slow] = controllertest.NewFakeInformer()
			other := check("other", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = new(refTo("Pray", "pray")) })
			if err := k.client.Create(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			row.then(k)
			for range 20 {
				k.after(time.Minute)
				_, _ = k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}}) // fails for slow kinds
			}
			if !slices.Contains(k.made, row.want) {
				t.Errorf("made %v", k.made)
			}
		})
	}
}

func TestAMemberThatIsRefusedHoldsUpNoOther(t *testing.T) {
	k := newFixture(t, five(check("nhc"))...)
	k.refuses("create", "m0", apierrors.NewForbidden(schema.GroupResource{Resource: "reboots"}, "m0", nil))
	k.bad("m0")
	k.turn("m1", corev1.ConditionUnknown)
	k.after(300 * time.Second)
	for range 3 {
		k.reconciles("nhc")
	}
	k.wants("the next one goes first", "Reboot/m1")
	if diff := k.leases(); len(diff) != 1 || diff[0] != "node-m1" {
		t.Errorf("leases %v, want that of m1 alone", diff)
	}
}

func TestTeardownRemovesTheRequestsOfAllChecks(t *testing.T) {
	for name, strip := range map[string]func(*unstructured.Unstructured){
		"by their mark": func(*unstructured.Unstructured) {},
		"without mark and owner, by the status": func(obj *unstructured.Unstructured) {
			obj.SetAnnotations(nil)
			obj.SetLabels(nil)
			obj.SetOwnerReferences(nil)
		},
	} {
		for _, lets := range []bool{true, false} {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
			badB(k)
			k.atWork()
			for _, obj := range k.objects() {
				strip(obj)
				k.update(obj)
			}
			k.restart()
			k.r.Teardown = true
			k.settle("nhc")
			if k.objects()[0].GetDeletionTimestamp() == nil || len(k.leases()) != 1 || len(k.made) != 1 {
				t.Errorf("%s: requests %v, leases %v: want the request to end, and the lease to stay until it has", name, k.objects(), k.leases())
			}
			if lets {
				k.over()
			} else {
				k.clock.SetTime(k.objects()[0].GetDeletionTimestamp().Add(remediationrequest.ClingingFor))
			}
			k.search()
			k.settle("nhc")
			if len(k.leases()) > 0 {
				t.Errorf("%s, released %t: leases %v are left", name, lets, k.leases())
			}
			said := k.check("nhc").Status
			disabled := conditionOf(k.check("nhc"), nhcv1.DisabledCondition)
			if said.Phase != nhcv1.PhaseDisabled || disabled == nil || disabled.Reason != nhcv1.TeardownReason || lets != (len(said.UnhealthyNodes) == 0) {
				t.Errorf("%s, released %t: the check says %+v", name, lets, said)
			}
		}
	}
}

func TestTeardownStartsNothing(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.r.Teardown = true
	badB(k)
	k.wants("none was made")
	if len(k.leases()) > 0 {
		t.Errorf("leases %v", k.leases())
	}
}

func TestWeaknessesThatMedik8sHas(t *testing.T) {
	for name, isNotThere := range map[string]func(*testing.T){
		"W19: how much a reconcile reads does not depend on the number of nodes":    fewReads,
		"W25: nothing is decided before the MachineHealthChecks were read":          unreadConflict,
		"W25: a conflict that cannot be looked for is not none":                     unknownConflict,
		"W29: nothing begins while it is not known whether the cluster is upgraded": unknownUpgrade,
	} {
		t.Run(name, isNotThere)
	}
}

func (k *fixture) annotateNode(name string, annotations map[string]string) {
	k.t.Helper()
	n := k.node(name)
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
	}
	k.update(n)
}

// medik8s lists the requests of each kind once for each healthy node.
func fewReads(t *testing.T) {
	reads := func(n int) (lists, gets int) {
		objects := []client.Object{template("Reboot", "reboot", false), template("Replace", "replace", false),
			check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace")))}
		for i := range n {
			objects = append(objects, node(fmt.Sprintf("n%d", i), nil))
		}
		k := newFixture(t, objects...)
		k.bad("n0")
		k.settle("nhc")
		k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				lists++
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				gets++
				return c.Get(ctx, key, obj, opts...)
			},
		})
		k.r.Live = nil // a live read would panic
		k.reconcile("nhc")
		return lists, gets
	}
	lists, gets := reads(3)
	if lists != 4 {
		t.Errorf("a reconcile makes %d lists, want one of the nodes, one of the leases and one for each of the two kinds of requests", lists)
	}
	if moreLists, moreGets := reads(300); moreLists != lists || moreGets != gets {
		t.Errorf("for 3 nodes it makes %d lists and reads %d objects, for 300 it makes %d and reads %d", lists, gets, moreLists, moreGets)
	}
}

// If medik8s cannot read whether the cluster is being upgraded, it assumes that it is not.
func unknownUpgrade(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	knows := k.r.Installed
	k.r.Installed = func(_ context.Context, crd string) (bool, error) {
		if crd == "clusterversions.config.openshift.io" {
			return false, errors.New("the API server is out of order")
		}
		return false, nil
	}
	k.bad("b")
	k.reconciles("nhc")
	k.wants("it may be upgraded")
	c := meta.FindStatusCondition(k.check("nhc").Status.Conditions, nhcv1.RemediationAllowedCondition)
	if c.Reason != string(Upgrading) || c.Status != metav1.ConditionFalse {
		t.Errorf("RemediationAllowed says %+v", c)
	}
	k.r.Installed = knows
	k.settle("nhc")
	k.wants("it is not", "Reboot/b")
}

// Until MachineHealthChecks are read, medik8s ignores all nodes with the condition Terminating, and no MachineHealthCheck disables it.
func unreadConflict(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.installs("machinehealthchecks.machine.openshift.io")
	informer := controllertest.NewFakeInformer()
	k.informers.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{MachineHealthChecks: informer}
	k.bad("b")
	k.reconciles("nhc")
	k.wants("what was not read is not none")
	if got := k.check("nhc").Status; got.Phase != "" {
		t.Errorf("it says %+v", got)
	}
	informer.Synced()
	k.settle("nhc")
	k.wants("there is none", "Reboot/b")
}

// installs installs CustomResourceDefinitions of OpenShift.
func (k *fixture) installs(crds ...string) {
	k.r.Installed = func(_ context.Context, crd string) (bool, error) { return slices.Contains(crds, crd), nil }
}

func unknownConflict(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.r.Installed = func(context.Context, string) (bool, error) {
		return false, errors.New("the API server is out of order")
	}
	k.bad("b")
	if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}}); err == nil {
		t.Error("no event says so")
	}
	k.wants("somebody else may act on it")
}
