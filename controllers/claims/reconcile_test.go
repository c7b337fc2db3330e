package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// fixture is a management cluster with Namespace fleet, Cluster c1 in it, and a manager.
type fixture struct {
	t      *testing.T
	c      client.WithWatch
	r      *Reconciler
	events *events.FakeRecorder
	clock  *clocktesting.FakePassiveClock
	claims int // that were written
	// fails is why the next write fails.
	fails error
}

const person = client.FieldOwner("a-person")

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{t: t, events: events.NewFakeRecorder(100), clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	scheme := runtime.NewScheme()
	must.Do(t, errors.Join(clusterv1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	f.c = fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := f.fails; err != nil {
				f.fails = nil
				return err
			}
			f.claims++
			return c.Apply(ctx, o, opts...)
		},
	}).Build()
	f.r = &Reconciler{Client: f.c, Namespaces: f.c, Recorder: f.events, Clock: f.clock}
	f.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	f.create(theCluster())
	for _, o := range objects {
		f.create(o)
	}
	return f
}

func (f *fixture) create(o client.Object) {
	f.t.Helper()
	o.SetUID(types.UID("uid-of-" + o.GetName()))
	must.Do(f.t, f.c.Create(f.t.Context(), o, person))
}

func theCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c1"}}
}

// check is a MachineHealthCheck of c1 with these annotations.
func check(name string, annotations map[string]string) *clusterv1.MachineHealthCheck {
	return &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Annotations: annotations},
		Spec:       clusterv1.MachineHealthCheckSpec{ClusterName: "c1"},
	}
}

// patch has a person change an object.
func (f *fixture) patch(o client.Object, format string, args ...any) {
	f.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":`+format+`}`, args...))
	must.Do(f.t, f.c.Patch(f.t.Context(), o, patch, person))
}

// label gives the Cluster, or the Namespace, the label with a value; without one it removes it.
func (f *fixture) label(o client.Object, value ...string) {
	f.t.Helper()
	o.SetNamespace("fleet")
	o.SetName("c1")
	if _, is := o.(*corev1.Namespace); is {
		o.SetNamespace("")
		o.SetName("fleet")
	}
	if len(value) > 0 {
		f.patch(o, `{"labels":{%q:%q}}`, mendv1.ClaimLabel, value[0])
	} else {
		f.patch(o, `{"labels":{%q:null}}`, mendv1.ClaimLabel)
	}
}

// reconcile reconciles c1 until that succeeds.
func (f *fixture) reconcile() {
	f.t.Helper()
	for range 3 {
		result, err := f.r.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theCluster())})
		if err == nil && result.RequeueAfter == 0 {
			return
		}
	}
	f.t.Fatal("it does not succeed")
}

func (f *fixture) read(name string) *clusterv1.MachineHealthCheck {
	f.t.Helper()
	c := &clusterv1.MachineHealthCheck{}
	must.Do(f.t, f.c.Get(f.t.Context(), client.ObjectKey{Namespace: "fleet", Name: name}, c))
	return c
}

// wants compares what the checks say with what is wanted.
func (f *fixture) wants(want map[string]map[string]string) {
	f.t.Helper()
	got := map[string]map[string]string{}
	for name := range want {
		got[name] = f.read(name).Annotations
	}
	must.Equal(f.t, want, got, "annotations")
}

// told are the events since it was called last, as "Kind Reason Text".
func (f *fixture) told() []string {
	var all []string
	for {
		select {
		case e := <-f.events.Events:
			all = append(all, e)
		default:
			slices.Sort(all)
			return all
		}
	}
}

func (f *fixture) wantsTold(want ...string) {
	f.t.Helper()
	got := f.told()
	if !slices.EqualFunc(got, want, strings.Contains) {
		f.t.Errorf("told %q, want %q", got, want)
	}
}

var (
	none               map[string]string
	claimedByCluster   = map[string]string{clusterv1.PausedAnnotation: "kubemend", mendv1.ClaimedByAnnotation: "Cluster"}
	claimedByNamespace = map[string]string{clusterv1.PausedAnnotation: "kubemend", mendv1.ClaimedByAnnotation: "Namespace"}
	byHand             = map[string]string{clusterv1.PausedAnnotation: "kubemend"}
	paused             = map[string]string{clusterv1.PausedAnnotation: "maintenance"}
)

type all = map[string]map[string]string

func TestALabelClaimsAndReleases(t *testing.T) {
	for name, o := range map[string]struct {
		labelled client.Object
		want     map[string]string
		says     string
	}{
		"on the Cluster":   {&clusterv1.Cluster{}, claimedByCluster, "since Cluster c1 has the label kubemend.io/machine-health-checks: act"},
		"on the Namespace": {&corev1.Namespace{}, claimedByNamespace, "since Namespace fleet has the label"},
	} {
		t.Run(name, func(t *testing.T) {
			other := check("of-another-cluster", nil)
			other.Spec.ClusterName = "c2"
			f := newFixture(t, check("a", nil), check("b", nil), check("hand", maps.Clone(byHand)), check("paused", maps.Clone(paused)), other)
			f.reconcile()
			f.wants(all{"a": none, "b": none, "hand": byHand, "paused": paused})
			f.wantsTold()

			f.label(o.labelled, mendv1.ClaimLabelAct)
			f.reconcile()
			f.wants(all{"a": o.want, "b": o.want, "hand": byHand, "paused": paused, "of-another-cluster": none})
			f.wantsTold("Normal CheckClaimed Claimed, "+o.says, "Normal CheckClaimed", `Warning CheckNotClaimed Not claimed, although`)
			if who := f.owners("a"); !slices.Contains(who, mendv1.ClaimFieldOwner) {
				t.Errorf("the claim is owned by %q", who)
			}

			version := f.read("a").ResourceVersion
			f.reconcile()
			must.Is(t, version, f.read("a").ResourceVersion, "a check that is claimed was written again: %s,", version)
			f.told()

			f.label(o.labelled)
			f.reconcile()
			f.wants(all{"a": none, "b": none, "hand": byHand, "paused": paused, "of-another-cluster": none})
			f.wantsTold("Normal CheckReleased Released, since neither Cluster c1 nor Namespace fleet has the label", "Normal CheckReleased")
		})
	}
}

// owners are the field managers of the annotation cluster.x-k8s.io/paused.
func (f *fixture) owners(name string) []string {
	var who []string
	for _, entry := range f.read(name).ManagedFields {
		if strings.Contains(string(entry.FieldsV1.GetRawBytes()), clusterv1.PausedAnnotation) {
			who = append(who, entry.Manager)
		}
	}
	return who
}

// A GitOps tool that applies the same claim keeps it.
func TestAClaimThatSomebodyElseOwnsAsWellStays(t *testing.T) {
	f := newFixture(t, check("a", nil))
	f.label(&clusterv1.Cluster{}, mendv1.ClaimLabelAct)
	f.reconcile()
	same := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineHealthCheck",
		"metadata": map[string]any{"namespace": "fleet", "name": "a", "annotations": map[string]any{clusterv1.PausedAnnotation: "kubemend"}},
	}}
	must.Do(t, f.c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(same), person))
	f.told()
	f.label(&clusterv1.Cluster{})
	f.reconcile()
	f.wants(all{"a": byHand})
	f.wantsTold()
}

// clusterctl move and restored backups make objects anew, and own all fields of the copy.
func TestAClaimThatWasCopiedIsReleased(t *testing.T) {
	f := newFixture(t, check("a", maps.Clone(claimedByCluster)), check("b", maps.Clone(claimedByNamespace)), check("hand", maps.Clone(byHand)))
	f.label(&clusterv1.Cluster{}, mendv1.ClaimLabelAct)
	f.reconcile()
	f.wants(all{"a": claimedByCluster, "b": claimedByNamespace, "hand": byHand})
	f.label(&clusterv1.Cluster{})
	f.reconcile()
	f.wants(all{"a": none, "b": none, "hand": byHand})
}

func TestACopyWithoutItsClusterIsLeftAlone(t *testing.T) {
	f := newFixture(t, check("a", maps.Clone(claimedByCluster)))
	must.Do(t, f.c.Delete(t.Context(), theCluster()))
	f.reconcile()
	f.wants(all{"a": claimedByCluster})
}

func TestAnInvalidLabelChangesNothingAndIsReported(t *testing.T) {
	f := newFixture(t, check("a", nil), check("b", maps.Clone(claimedByCluster)))
	f.label(&clusterv1.Cluster{}, "yes")
	f.reconcile()
	f.wants(all{"a": none, "b": claimedByCluster})
	f.wantsTold(`Warning InvalidClaimLabel metadata.labels[kubemend.io/machine-health-checks] of Cluster c1 is "yes": expected "act"`)
	f.label(&clusterv1.Cluster{})
	f.label(&corev1.Namespace{}, "")
	f.reconcile()
	f.wants(all{"a": none, "b": claimedByCluster})
	f.wantsTold(`Warning InvalidClaimLabel metadata.labels[kubemend.io/machine-health-checks] of Namespace fleet is "": expected "act"`)
}

func TestAPausedCheckKeepsItsValueAndLosesTheMark(t *testing.T) {
	marked := map[string]string{clusterv1.PausedAnnotation: "maintenance", mendv1.ClaimedByAnnotation: "Cluster"}
	f := newFixture(t, check("a", marked))
	f.reconcile()
	f.wants(all{"a": paused})
	f.wantsTold()
}

// Each of two managers looks at its own shard alone.
func TestAManagerClaimsOnlyWhatItLooksAt(t *testing.T) {
	own := check("by-its-own-label", nil)
	own.Labels = map[string]string{clusterv1.WatchLabel: "west"}
	f := newFixture(t, own, check("by-its-cluster", nil))
	f.label(&clusterv1.Cluster{}, mendv1.ClaimLabelAct)
	f.patch(theCluster(), `{"labels":{%q:"east"}}`, clusterv1.WatchLabel)
	f.r.WatchFilterValue = "east"
	f.reconcile()
	f.wants(all{"by-its-own-label": none, "by-its-cluster": claimedByCluster})
	f.label(&clusterv1.Cluster{})
	f.r.WatchFilterValue = "west"
	f.reconcile()
	f.wants(all{"by-its-own-label": none, "by-its-cluster": claimedByCluster})
	f.r.WatchFilterValue = "east"
	f.reconcile()
	f.wants(all{"by-its-own-label": none, "by-its-cluster": none})
}

func TestEachWriteMayFail(t *testing.T) {
	conflict := apierrors.NewConflict(clusterv1.GroupVersion.WithResource("machinehealthchecks").GroupResource(), "a", errors.New("somebody was faster"))
	for name, err := range map[string]error{"with an error": errors.New("no"), "with a conflict": conflict} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, check("a", nil), check("b", nil))
			f.label(&clusterv1.Cluster{}, mendv1.ClaimLabelAct)
			f.fails = err
			if result, got := f.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theCluster())}); got == nil &&
				result.RequeueAfter == 0 {
				t.Error("nothing says that it is to be tried again")
			}
			f.wants(all{"a": none, "b": claimedByCluster})
			f.reconcile()
			f.wants(all{"a": claimedByCluster, "b": claimedByCluster})

			f.label(&clusterv1.Cluster{})
			f.fails = err
			f.reconcile()
			f.wants(all{"a": none, "b": none})
		})
	}
}

// What cannot be read of a Namespace claims nothing, and releases nothing that its label claimed.
func TestAManagerOfOneNamespaceReadsItsOwn(t *testing.T) {
	f := newFixture(t, check("a", nil))
	var fails error
	f.r.Namespaces = interceptor.NewClient(f.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if fails != nil {
				return fails
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	f.r.RereadEvery = time.Minute
	reconcile := func() error {
		t.Helper()
		result, err := f.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theCluster())})
		if err == nil && result.RequeueAfter != time.Minute {
			t.Errorf("it is read again after %s", result.RequeueAfter)
		}
		return err
	}
	forbidden := apierrors.NewForbidden(corev1.Resource("namespaces"), "fleet", errors.New("no"))
	for i, step := range []struct {
		fails    error
		labelled bool
		want     all
	}{
		{forbidden, true, all{"a": none}},
		{nil, true, all{"a": claimedByNamespace}},
		{errors.New("no"), false, all{"a": claimedByNamespace}},
		{forbidden, false, all{"a": claimedByNamespace}},
		{nil, false, all{"a": none}},
	} {
		if f.label(&corev1.Namespace{}); step.labelled {
			f.label(&corev1.Namespace{}, mendv1.ClaimLabelAct)
		}
		fails = step.fails
		if err := reconcile(); (err == nil) != (fails == nil || apierrors.IsForbidden(fails)) {
			t.Errorf("step %d: %v", i, err)
		}
		f.wants(step.want)
	}
}

// A tool that applies a check from a file in which it is not claimed.
func TestAClaimThatIsRemovedAgainAndAgainIsMadeEverMoreRarely(t *testing.T) {
	f := newFixture(t, check("mhc", nil))
	f.label(theCluster(), mendv1.ClaimLabelAct)
	for range 600 { // ten minutes
		if _, err := f.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theCluster())}); err != nil {
			t.Fatal(err)
		}
		f.patch(check("mhc", nil), `{"annotations":{%q:null,"applied":"%d"}}`, clusterv1.PausedAnnotation, f.claims)
		f.clock.SetTime(f.clock.Now().Add(time.Second))
	}
	if f.claims < 8 || f.claims > 12 {
		t.Errorf("it is claimed %d times", f.claims)
	}
	var told []string
	for len(f.events.Events) > 0 {
		if event := <-f.events.Events; strings.Contains(event, mendv1.EventUndone) {
			told = append(told, event)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "likely a-person, removes the claim") {
		t.Errorf("told: %v", told)
	}
}
