package nodehealthcheck

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/consistency"
)

func TestARequestThatMayHaveBeenMadeKeepsTheOtherMembersWaiting(t *testing.T) {
	one, two := check("one"), check("two")
	one.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	two.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	k := newFixture(t, five(one, two)...)
	k.turn("m0", corev1.ConditionUnknown)
	k.turn("m1", corev1.ConditionUnknown)
	k.settle("one")
	k.settle("two")
	k.after(300 * time.Second)
	asked := 0
	k.fails = func(verb string, obj client.Object) error {
		if _, is := obj.(*unstructured.Unstructured); is && verb == "create" {
			asked++
			return errors.New("context deadline exceeded") // the API server still creates the request, a moment later
		}
		return nil
	}
	k.reconcile("one")
	if asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
	for range 20 {
		k.after(time.Second)
		k.reconcile("two")
	}
	if asked != 1 {
		t.Errorf("%d requests may be on their way", asked)
	}
	k.after(time.Minute)
	k.reconcile("two")
	if asked != 2 {
		t.Errorf("asked %d times: what has not appeared by now is waited for no longer", asked)
	}
}

func TestAMemberWaitsForNoOtherWhoseRequestWasNotAskedFor(t *testing.T) {
	one, two := check("one"), check("two")
	one.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	two.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	k := newFixture(t, five(one, two)...)
	k.turn("m0", corev1.ConditionUnknown)
	k.turn("m1", corev1.ConditionUnknown)
	k.settle("one")
	k.settle("two")
	k.after(300 * time.Second)
	live := k.r.Requests.Live
	k.r.Requests.Live = unreadable{live}
	k.reconcile("one")
	k.r.Requests.Live = live
	k.reconcile("two")
	if len(k.made) != 1 {
		t.Errorf("%q were made", k.made)
	}
}

// unreadable is an API server that does not answer reads.
type unreadable struct{ client.Reader }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("i/o timeout")
}

func (unreadable) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("i/o timeout")
}

// silent never answers; since is when it was called.
type silent struct{ since time.Time }

func (s *silent) Of(ctx context.Context, _ *clusterv1.Machine) (host.Found, error) {
	s.since = clock.RealClock{}.Now()
	<-ctx.Done()
	return host.Found{}, ctx.Err()
}

func TestAMemberBeginsThoughItsHostAndItsRecordDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := controlPlaneOfThree(t).recording()
		hosts := &silent{}
		k.r.Records.Hosts = hosts
		k.r.Records.Installed = func(ctx context.Context, _ string) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}
		k.fails = func(verb string, obj client.Object) error {
			if _, is := obj.(*unstructured.Unstructured); is && verb == "create" && (clock.RealClock{}).Since(hosts.since) >= begin.Within {
				return context.DeadlineExceeded
			}
			return nil
		}
		k.settle("nhc")
		if len(k.made) != 1 {
			t.Errorf("%q were made", k.made)
		}
	})
}

// live makes live reads go to another API server.
func (k *fixture) live(is client.Reader) { k.r.Live, k.r.Requests.Live = is, is }

func TestANodeIsReadPastTheCacheBeforeItsFirstRequest(t *testing.T) {
	objects := func() []client.Object {
		return append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))
	}
	for name, really := range map[string]func(*fixture){
		"it is healthy": func(*fixture) {},
		"it is gone":    func(k *fixture) { k.remove(node("b", nil)) },
		"its state is not known": func(k *fixture) {
			k.client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{Get: failingGet})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, server := newFixture(t, objects()...), newFixture(t, objects()...)
			really(server)
			k.live(server.client)
			k.bad("b")
			k.reconciles("nhc")
			k.wants("the cache is behind")
			if len(k.leases()) != 0 {
				t.Errorf("leased: %v", k.leases())
			}
			k.live(k.client)
			k.settle("nhc")
			k.wants("it was right after all", "Reboot/b")
		})
	}
}

func failingGet(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("no answer")
}

// The former leader has just created the request for m0. The cache of the new leader does not show it yet.
func TestANewLeaderSeesTheRequestForAMemberThatTheFormerOneMade(t *testing.T) {
	k := newFixture(t, five(check("nhc"), check("another", func(s *nhcv1.NodeHealthCheckSpec) {
		s.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	}))...)
	k.turn("m0", corev1.ConditionUnknown)
	k.after(time.Second)
	k.turn("m1", corev1.ConditionUnknown)
	k.after(299 * time.Second)
	k.settle("nhc")
	k.wants("m0 alone", "Reboot/m0")
	k.restart()
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if u, is := list.(*unstructured.UnstructuredList); is && u.GetKind() == "RebootList" {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	k.after(time.Second)
	k.reconciles("another")
	k.wants("one at a time", "Reboot/m0")
	k.r.Client = k.client
	k.remove(k.objects()[0])
	k.settle("another")
	k.wants("m0 is over", "Reboot/m1")
}

// lagging freezes the cache of requests of some kinds (all if empty) until the returned function is called.
func (k *fixture) lagging(kinds ...string) (catchUp func()) {
	shown := map[string]*unstructured.UnstructuredList{}
	lags := true
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			all, is := list.(*unstructured.UnstructuredList)
			if !is || !lags || len(kinds) > 0 && !slices.Contains(kinds, strings.TrimSuffix(all.GetKind(), "List")) {
				return c.List(ctx, list, opts...)
			}
			kind := all.GetKind()
			if shown[kind] == nil {
				if err := c.List(ctx, list, opts...); err != nil {
					return err
				}
				shown[kind] = all.DeepCopy()
			}
			all.Items = shown[kind].DeepCopy().Items
			return nil
		},
	})
	return func() { lags = false }
}

func TestAReconcileWaitsForACacheThatDoesNotShowWhatWasWritten(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.read("nhc")
	catchUp := k.lagging()
	k.bad("b")
	k.reconcile("nhc")
	k.wants("a request is made", "Reboot/b")
	writes := k.writes
	must.Is(t, staleFor, k.reconcile("nhc").RequeueAfter, "looked at again after")
	if k.writes != writes || len(k.made) != 1 {
		t.Errorf("%d writes, and %v were made", k.writes-writes, k.made)
	}
	catchUp()
	if result := k.reconcile("nhc"); result.RequeueAfter <= staleFor {
		t.Errorf("looked at again after %s although the cache has caught up", result.RequeueAfter)
	}
}

func TestARequestThatIsGoneBeforeTheCacheHasShownItIsNotWaitedFor(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.lagging()
	k.bad("b")
	k.reconciles("nhc")
	for _, obj := range k.objects() {
		k.remove(obj)
	}
	k.turn("b", corev1.ConditionTrue)
	k.settle("nhc")
	if n := len(k.check("nhc").Status.UnhealthyNodes); n != 0 {
		t.Errorf("%d nodes are listed", n)
	}
}

func TestACheckSaysThatACacheDoesNotShowWhatWasWritten(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.read("nhc")
	catchUp := k.lagging()
	k.bad("b")
	reconcile := func() error {
		_, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}})
		return err
	}
	must.Do(t, errors.Join(reconcile(), reconcile()))
	k.after(slowRead + time.Second)
	if err := reconcile(); !errors.Is(err, consistency.ErrStale) {
		t.Errorf("failed with: %v", err)
	}
	allowed := conditionOf(k.check("nhc"), nhcv1.RemediationAllowedCondition)
	if allowed == nil || allowed.Reason != nhcv1.KindUnreadReason || !strings.Contains(allowed.Message, "Reboot.remediator.example.org") {
		t.Errorf("the check says %v", allowed)
	}
	catchUp()
	k.settle("nhc")
	if allowed := conditionOf(k.check("nhc"), nhcv1.RemediationAllowedCondition); allowed.Status != metav1.ConditionTrue {
		t.Errorf("then the check says %v", allowed)
	}
}

func TestACheckThatIsGoneWaitsForACacheThatDoesNotShowWhatWasWritten(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.read("nhc")
	k.lagging()
	k.bad("b")
	k.reconcile("nhc")
	k.remove(k.check("nhc"))
	must.Is(t, staleFor, k.reconcile("nhc").RequeueAfter, "looked at again after")
}

func TestANodeThatTurnsWhileACacheCatchesUpWasNotHealthyInBetween(t *testing.T) {
	for name, tc := range map[string]struct {
		lags time.Duration
		want bool
	}{
		"a cache that catches up at once":   {100 * time.Millisecond, true},
		"one that does not for ten seconds": {10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), check("nhc"))...)
			k.turn("c", corev1.ConditionUnknown)
			k.settle("nhc")
			k.after(100 * time.Second)
			k.turn("b", corev1.ConditionUnknown)
			k.settle("nhc")
			k.after(200 * time.Second)
			catchUp := k.lagging()
			k.reconcile("nhc")
			k.wants("c is due", "Reboot/c")
			k.reconcile("nhc")
			k.after(tc.lags)
			k.turn("b", corev1.ConditionFalse)
			k.reconcile("nhc")
			catchUp()
			k.settle("nhc")
			k.after(100 * time.Second)
			k.settle("nhc")
			must.Is(t, tc.want, len(k.requests()) == 2, "b, which has been bad for 300 s, is remediated:")
		})
	}
}

func TestACacheThatIsStaleBlocksNoCheckOfOtherKinds(t *testing.T) {
	one, two := check("one"), check("two")
	one.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "m1"}},
	}
	two.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "m0"}},
	}
	none := intstr.FromInt32(0)
	one.Spec.MinHealthy, two.Spec.MinHealthy = &none, &none
	pray := refTo("Pray", "pray")
	two.Spec.RemediationTemplate = &pray
	k := newFixture(t, append(workers("a", "b", "c"), member("m0"), member("m1"), member("m2"),
		template("Reboot", "reboot", false), template("Pray", "pray", false), one, two)...)
	catchUp := k.lagging("Reboot")
	k.turn("a", corev1.ConditionUnknown)
	k.turn("b", corev1.ConditionUnknown)
	k.bad("m1")
	k.reconciles("one")
	k.wants("what no cache shows is made", "Reboot/a", "Reboot/m1")
	k.bad("m0")
	k.reconciles("two")
	k.wants("another check goes on, but for the control plane", "Pray/b", "Reboot/a", "Reboot/m1")
	catchUp()
	k.reconciles("two")
	k.wants("where one member is remediated", "Pray/b", "Reboot/a", "Reboot/m1")
}
