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
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/test/must"
)

// fixture is a management cluster with Cluster c1, and a manager.
type fixture struct {
	t      *testing.T
	c      client.WithWatch
	r      *Reconciler
	events *events.FakeRecorder
	clock  *clocktesting.FakePassiveClock
	claims int // how many claims were written
	says   []*policy.Policy
	// fails is the error of the next write.
	fails error
}

const person = client.FieldOwner("a-person")

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{t: t, events: events.NewFakeRecorder(100), clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	scheme := runtime.NewScheme()
	must.Do(t, clusterv1.AddToScheme(scheme))
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
	f.r = &Reconciler{Client: f.c, Ledger: &policy.Ledger{Clock: f.clock}, Recorder: f.events, Clock: f.clock}
	f.silent()
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
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c1", Labels: map[string]string{"tier": "prod"}}}
}

// check returns a MachineHealthCheck of c1 with these annotations.
func check(name string, annotations map[string]string) *clusterv1.MachineHealthCheck {
	return &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Annotations: annotations},
		Spec:       clusterv1.MachineHealthCheckSpec{ClusterName: "c1"},
	}
}

// patch changes an object as a user.
func (f *fixture) patch(o client.Object, format string, args ...any) {
	f.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":`+format+`}`, args...))
	must.Do(f.t, f.c.Patch(f.t.Context(), o, patch, person))
}

// policy adds RemediationPolicy kubemend-system/production with mode Act, which selects the Clusters with the label tier=prod.
func (f *fixture) policy(edits ...func(*mendv1.RemediationPolicy)) {
	made := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kubemend-system", Name: "production"}}
	made.Spec.Selector.Clusters, made.Spec.Mode = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}}, mendv1.PolicyActs
	for _, edit := range edits {
		edit(made)
	}
	f.says = append(f.says, policy.Read(made, "kubemend-system"))
	f.r.Ledger.Set(f.says)
}

// silent deletes all policies.
func (f *fixture) silent() {
	f.says = nil
	f.r.Ledger.Set(nil)
}

func named(namespace, name string) func(*mendv1.RemediationPolicy) {
	return func(p *mendv1.RemediationPolicy) { p.Namespace, p.Name = namespace, name }
}

func mode(mode mendv1.PolicyMode) func(*mendv1.RemediationPolicy) {
	return func(p *mendv1.RemediationPolicy) { p.Spec.Mode = mode }
}

// ofChecks makes a policy select checks by the label pool. The operator may be invalid.
func ofChecks(operator metav1.LabelSelectorOperator, values ...string) func(*mendv1.RemediationPolicy) {
	return func(p *mendv1.RemediationPolicy) {
		pool := metav1.LabelSelectorRequirement{Key: "pool", Operator: operator, Values: values}
		p.Spec.Selector.Checks = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{pool}}
	}
}

func (f *fixture) deleted(o client.Object) { must.Do(f.t, f.c.Delete(f.t.Context(), o)) }

// reconcile reconciles each check until it succeeds.
func (f *fixture) reconcile() {
	f.t.Helper()
	for _, req := range f.r.checksOf(f.t.Context(), client.ObjectKey{}) {
		succeeds := false
		for i := 0; i < 3 && !succeeds; i++ {
			result, err := f.r.Reconcile(f.t.Context(), req)
			succeeds = err == nil && result.RequeueAfter == 0
		}
		must.Is(f.t, true, succeeds, "it succeeds:")
	}
}

func (f *fixture) read(name string) *clusterv1.MachineHealthCheck {
	f.t.Helper()
	c := &clusterv1.MachineHealthCheck{}
	must.Do(f.t, f.c.Get(f.t.Context(), client.ObjectKey{Namespace: "fleet", Name: name}, c))
	return c
}

// wants compares the annotations of checks with want.
func (f *fixture) wants(want map[string]map[string]string) {
	f.t.Helper()
	got := map[string]map[string]string{}
	for name := range want {
		got[name] = f.read(name).Annotations
	}
	must.Equal(f.t, want, got, "annotations")
}

// told returns the events since its last call, as "Kind Reason Text".
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
	none            map[string]string
	claimedByPolicy = map[string]string{clusterv1.PausedAnnotation: "kubemend", mendv1.ClaimedByAnnotation: "RemediationPolicy"}
	byHand          = map[string]string{clusterv1.PausedAnnotation: "kubemend"}
	paused          = map[string]string{clusterv1.PausedAnnotation: "maintenance"}
	mark            = map[string]string{mendv1.ClaimedByAnnotation: "RemediationPolicy"}
	markedPaused    = map[string]string{clusterv1.PausedAnnotation: "maintenance", mendv1.ClaimedByAnnotation: "RemediationPolicy"}
)

type all = map[string]map[string]string

func TestAPolicyClaimsAndReleases(t *testing.T) {
	other := check("of-another-cluster", nil)
	other.Spec.ClusterName = "c2"
	c2 := theCluster()
	c2.Name, c2.Labels = "c2", nil
	f := newFixture(t, check("a", nil), check("b", nil), check("hand", maps.Clone(byHand)), check("paused", maps.Clone(paused)), other, c2)
	f.reconcile()
	f.wants(all{"a": none, "b": none, "hand": byHand, "paused": paused})
	f.wantsTold()

	f.policy()
	f.reconcile()
	f.wants(all{"a": claimedByPolicy, "b": claimedByPolicy, "hand": byHand, "paused": paused, "of-another-cluster": none})
	const claimed = "Normal CheckClaimed Claimed, since RemediationPolicy kubemend-system/production has mode Act"
	const refused = "Warning CheckNotClaimed Not claimed, although RemediationPolicy kubemend-system/production has mode Act"
	f.wantsTold(claimed, claimed, refused)
	if who := f.owners("a"); !slices.Contains(who, mendv1.ClaimFieldOwner) {
		t.Errorf("the claim is owned by %q", who)
	}

	version := f.read("a").ResourceVersion
	f.reconcile()
	must.Is(t, version, f.read("a").ResourceVersion, "a check that is claimed was written again: %s,", version)
	f.told()

	f.silent()
	f.reconcile()
	f.wants(all{"a": none, "b": none, "hand": byHand, "paused": paused, "of-another-cluster": none})
	const released = "Normal CheckReleased Released, since no RemediationPolicy with mode Act selects it any more"
	f.wantsTold(released, released)
}

func TestWhatPoliciesSayOfACheck(t *testing.T) {
	says := func(edits ...func(*mendv1.RemediationPolicy)) func(*fixture) {
		return func(f *fixture) { f.policy(edits...) }
	}
	act, observe := says(), says(named("kubemend-system", "trial"), mode(mendv1.PolicyObserves))
	gone := map[string]string{} // what there was of annotations
	in, unread := metav1.LabelSelectorOpIn, ofChecks("of")
	badWindow := func(p *mendv1.RemediationPolicy) { p.Spec.Windows = []mendv1.PolicyWindow{{Schedule: "soon"}} }
	ofNodes := func(p *mendv1.RemediationPolicy) { p.Spec.Selector.Kinds = []string{policy.NodeHealthCheck} }
	starts := func(f *fixture) { f.r.Ledger = &policy.Ledger{Clock: f.clock} }
	noCluster := func(f *fixture) { f.deleted(theCluster()) }
	leaves := func(f *fixture) {
		cluster := theCluster()
		f.patch(cluster, `{"finalizers":["a/finalizer"]}`)
		f.deleted(cluster)
	}
	checkLeaves := func(f *fixture) {
		f.patch(check("a", nil), `{"finalizers":["a/finalizer"]}`)
		f.deleted(check("a", nil))
	}
	type given = []func(*fixture)
	for name, tc := range map[string]struct {
		is    map[string]string
		given given
		want  map[string]string
	}{
		"a claim that somebody removed is made anew":          {mark, given{act}, claimedByPolicy},
		"so is one without its mark left alone":               {byHand, given{act}, byHand},
		"a check that was paused after its claim stays so":    {markedPaused, given{act}, markedPaused},
		"the mark alone is removed":                           {mark, nil, gone},
		"so is that of a check which somebody paused":         {markedPaused, nil, paused},
		"one by hand stays when no policy asks":               {byHand, nil, byHand},
		"a copied claim is released":                          {claimedByPolicy, nil, gone},
		"a policy of its namespace claims":                    {none, given{says(named("fleet", "own"))}, claimedByPolicy},
		"one of another does not":                             {none, given{says(named("elsewhere", "theirs"))}, none},
		"by the labels of the check":                          {none, given{says(ofChecks(in, "workers"))}, claimedByPolicy},
		"not by those of another":                             {none, given{says(ofChecks(in, "storage"))}, none},
		"a policy without a mode says nothing":                {none, given{says(mode(""))}, none},
		"observe goes before act":                             {none, given{act, observe}, none},
		"and releases":                                        {claimedByPolicy, given{act, observe}, gone},
		"but not what was claimed by hand":                    {byHand, given{observe}, byHand},
		"a selector that cannot be read claims nothing":       {none, given{says(unread)}, none},
		"and releases nothing":                                {claimedByPolicy, given{says(unread)}, claimedByPolicy},
		"but that of another namespace does":                  {claimedByPolicy, given{says(unread, named("elsewhere", "theirs"))}, gone},
		"and one that says nothing of it":                     {claimedByPolicy, given{says(unread, mode(""))}, gone},
		"another policy claims beside it":                     {none, given{says(unread, named("fleet", "own")), act}, claimedByPolicy},
		"another one to observe releases":                     {claimedByPolicy, given{says(unread, named("fleet", "own")), observe}, gone},
		"what is not read yet releases nothing":               {claimedByPolicy, given{starts}, claimedByPolicy},
		"nor does a policy with a field that is invalid":      {claimedByPolicy, given{says(badWindow)}, claimedByPolicy},
		"one for other kinds of checks says nothing":          {none, given{says(ofNodes)}, none},
		"without its Cluster nothing is claimed":              {none, given{act, noCluster}, none},
		"nor released":                                        {claimedByPolicy, given{noCluster}, claimedByPolicy},
		"in one that is being deleted nothing is claimed":     {none, given{act, leaves}, none},
		"nor released, since core would act on it at the end": {claimedByPolicy, given{leaves}, claimedByPolicy},
		"a check that is being deleted is not claimed":        {none, given{act, checkLeaves}, none},
		"nor is it released":                                  {claimedByPolicy, given{checkLeaves}, claimedByPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			c := check("a", maps.Clone(tc.is))
			c.Labels = map[string]string{"pool": "workers"}
			f := newFixture(t, c)
			for _, given := range tc.given {
				given(f)
			}
			f.reconcile()
			if got := f.read("a").Annotations; !maps.Equal(tc.want, got) {
				t.Errorf("annotations are %v, want %v", got, tc.want)
			}
			told := f.told()
			released := !maps.Equal(tc.is, tc.want) && len(tc.want) == 0 && len(tc.is) > 0
			if released != slices.ContainsFunc(told, func(e string) bool { return strings.HasPrefix(e, "Normal CheckReleased Released, since ") }) {
				t.Errorf("it is told %q", told)
			}
		})
	}
}

// owners returns the field managers of the annotation cluster.x-k8s.io/paused.
func (f *fixture) owners(name string) []string {
	var who []string
	for _, entry := range f.read(name).ManagedFields {
		if strings.Contains(string(entry.FieldsV1.GetRawBytes()), clusterv1.PausedAnnotation) {
			who = append(who, entry.Manager)
		}
	}
	return who
}

// The other owner is a GitOps tool that applies the same claim.
func TestAClaimThatSomebodyElseOwnsAsWellStays(t *testing.T) {
	f := newFixture(t, check("a", nil))
	f.policy()
	f.reconcile()
	same := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineHealthCheck",
		"metadata": map[string]any{"namespace": "fleet", "name": "a", "annotations": map[string]any{clusterv1.PausedAnnotation: "kubemend"}},
	}}
	must.Do(t, f.c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(same), person))
	f.told()
	f.silent()
	f.reconcile()
	f.wants(all{"a": byHand})
	f.wantsTold()
}

// Each of two managers watches only its own shard.
func TestAManagerClaimsOnlyWhatItLooksAt(t *testing.T) {
	own := check("by-its-own-label", nil)
	own.Labels = map[string]string{clusterv1.WatchLabel: "west"}
	f := newFixture(t, own, check("by-its-cluster", nil))
	f.policy()
	f.patch(theCluster(), `{"labels":{%q:"east"}}`, clusterv1.WatchLabel)
	f.r.WatchFilterValue = "east"
	f.reconcile()
	f.wants(all{"by-its-own-label": none, "by-its-cluster": claimedByPolicy})
	f.silent()
	f.r.WatchFilterValue = "west"
	f.reconcile()
	f.wants(all{"by-its-own-label": none, "by-its-cluster": claimedByPolicy})
	f.r.WatchFilterValue = "east"
	f.reconcile()
	f.wants(all{"by-its-own-label": none, "by-its-cluster": none})
}

func TestEachWriteMayFail(t *testing.T) {
	conflict := apierrors.NewConflict(clusterv1.GroupVersion.WithResource("machinehealthchecks").GroupResource(), "a", errors.New("somebody was faster"))
	for name, err := range map[string]error{"with an error": errors.New("no"), "with a conflict": conflict} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, check("a", nil))
			f.policy()
			f.fails = err
			if result, got := f.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(check("a", nil))}); got == nil &&
				result.RequeueAfter == 0 {
				t.Error("nothing says that it is to be tried again")
			}
			f.wants(all{"a": none})
			f.reconcile()
			f.wants(all{"a": claimedByPolicy})

			f.silent()
			f.fails = err
			f.reconcile()
			f.wants(all{"a": none})
		})
	}
}

// The other client is a tool that applies a check from a file without the claim.
func TestAClaimThatIsRemovedAgainAndAgainIsMadeEverMoreRarely(t *testing.T) {
	f := newFixture(t, check("mhc", nil))
	f.policy()
	for range 600 { // ten minutes
		if _, err := f.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(check("mhc", nil))}); err != nil {
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

func TestOfACheckThatIsGoneNothingIsKept(t *testing.T) {
	f := newFixture(t, check("mhc", nil))
	f.policy()
	reconcile := func() {
		_, err := f.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(check("mhc", nil))})
		must.Do(t, err)
	}
	reconcile()
	f.deleted(check("mhc", nil))
	again := check("mhc", nil)
	again.UID = "another"
	must.Do(t, f.c.Create(t.Context(), again))
	reconcile()
	must.Is(t, 2, f.claims, "another one of its name is claimed at once:")
	f.deleted(again)
	reconcile()
	f.r.did.Range(func(key, did any) bool {
		t.Error("kept is", key, did)
		return true
	})
}
