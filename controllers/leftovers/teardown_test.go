package leftovers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/must"
)

// kinds is the discovery of an API server with custom resources.
type kinds struct {
	discovery.ServerResourcesInterface
}

func (kinds) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	resource := func(name, kind string) metav1.APIResource { return metav1.APIResource{Name: name, Kind: kind} }
	return []*metav1.APIResourceList{
		{GroupVersion: mendv1.GroupVersion.String(), APIResources: []metav1.APIResource{
			resource("hostremediations", "HostRemediation"), resource("hostremediations/status", "HostRemediation"),
			resource("hostremediationtemplates", "HostRemediationTemplate"),
		}},
		{GroupVersion: infrav1.GroupVersion.String(), APIResources: []metav1.APIResource{
			resource("metal3remediations", "Metal3Remediation"), resource("metal3remediationtemplates", "Metal3RemediationTemplate"),
		}},
	}, nil
}

// unreachable is a workload cluster that does not answer.
type unreachable struct{}

func (unreachable) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return nil, errors.New("no route to host")
}

func (unreachable) Unfence(context.Context, client.ObjectKey, *corev1.Node, fence.Owner) error {
	return nil
}

func (unreachable) Look(context.Context, client.ObjectKey, string, fence.Owner) (fence.Seen, error) {
	return fence.Seen{}, nil
}

// fails makes one patch fail if next is set.
type fails struct{ next bool }

func (f *fails) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
	if f.next {
		f.next = false
		return errors.New("etcd has no leader")
	}
	return c.Patch(ctx, o, p, options...)
}

// teardownOf returns a teardown in a cluster with these objects. Ours are the CRDs that kubemend serves.
func teardownOf(t *testing.T, ours []string, objects ...client.Object) (*Teardown, *fails, *clocktesting.FakeClock) {
	t.Helper()
	write, clock := &fails{}, clocktesting.NewFakeClock(noon)
	c := server(t, objects...).WithInterceptorFuncs(interceptor.Funcs{Patch: write.patch}).Build()
	return &Teardown{
		Remover:  Remover{Client: c, Live: c, Nodes: unreachable{}, Recorder: events.NewFakeRecorder(50)},
		Clusters: unreachable{}, Discovery: kinds{}, Clock: clock,
		LeaseNamespace: "leases",
		Serves: func(_ context.Context, crd string) (bool, error) {
			for _, name := range ours {
				if strings.HasPrefix(crd, name) {
					return true, nil
				}
			}
			return false, nil
		},
	}, write, clock
}

func called(name string, annotations map[string]string, edits ...func(*metav1.ObjectMeta)) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Annotations: annotations}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

func aClaim() *clusterv1.MachineHealthCheck {
	return &clusterv1.MachineHealthCheck{ObjectMeta: called("m", map[string]string{clusterv1.PausedAnnotation: mendv1.Claim})}
}

func aRequest(annotations map[string]string, edits ...func(*metav1.ObjectMeta)) *mendv1.HostRemediation {
	return &mendv1.HostRemediation{ObjectMeta: called("m", annotations, edits...)}
}

// aCluster returns a Cluster with an initialized control plane.
func aCluster(edits ...func(*metav1.ObjectMeta)) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: called("c", nil, edits...)}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue}}
	return c
}

func labelled(key, value string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.Labels = map[string]string{key: value} }
}

func kept(m *metav1.ObjectMeta) {
	m.Finalizers = []string{mendv1.HostRemediationFinalizer, "keep.me/too"}
}

// metaOf returns the metadata that is left on an object; nil if the object is gone.
func metaOf(t *testing.T, u *Teardown, o client.Object) map[string]any {
	t.Helper()
	err := u.Live.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	left := map[string]any{}
	for _, all := range []map[string]string{o.GetAnnotations(), o.GetLabels()} {
		for key, value := range all {
			left[key] = value
		}
	}
	for _, f := range o.GetFinalizers() {
		left[f] = true
	}
	return left
}

// A merge patch replaces all finalizers, so it would remove a finalizer that was added after the read.
func TestAnObjectThatHasChangedSinceItWasReadIsNotPatched(t *testing.T) {
	req := aRequest(map[string]string{mendv1.PowerCycleAnnotation: "{"}, kept)
	u, _, _ := teardownOf(t, nil, req)
	found, err := u.find(t.Context(), false)
	if err != nil || len(found) != 1 {
		t.Fatalf("found: %v, %v", found, err)
	}
	changed := &mendv1.HostRemediation{}
	must.Do(t, u.Client.Get(t.Context(), client.ObjectKeyFromObject(req), changed))
	changed.Finalizers = append(changed.Finalizers, "keep.me/as-well")
	must.Do(t, u.Client.Update(t.Context(), changed))
	must.Do(t, u.remove(t.Context(), found[0]))
	if left := metaOf(t, u, changed); left["keep.me/as-well"] == nil {
		t.Errorf("left: %v", left)
	}
	if told := u.Recorder.(*events.FakeRecorder).Events; len(told) > 0 {
		t.Errorf("nothing was removed, and it is told: %s", <-told)
	}
}

func TestWhatIsTakenOffAnObject(t *testing.T) {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: called("check", nil)}
	ours := []string{"hostremediations"}
	byCheck := map[string]string{mendv1.MadeByAnnotation: "check", mendv1.RecordAnnotation: "record", mendv1.PowerCycleAnnotation: `{"state":"MovingWorkload"}`}
	for name, tc := range map[string]struct {
		ours  []string
		given client.Object
		want  map[string]any
	}{
		"a claim goes, and what its user has set besides stays": {nil, &clusterv1.MachineHealthCheck{ObjectMeta: called("m", map[string]string{
			clusterv1.PausedAnnotation: mendv1.Claim, mendv1.ClaimedByAnnotation: "Cluster", "keep.me/too": "1",
		})}, map[string]any{"keep.me/too": "1"}},
		"a pause is no claim": {nil, &clusterv1.MachineHealthCheck{ObjectMeta: called("m", map[string]string{clusterv1.PausedAnnotation: "true"})},
			map[string]any{clusterv1.PausedAnnotation: "true"}},
		"a request loses the mark of its maker, and nothing of its power cycle": {ours, aRequest(byCheck, kept, labelled(mendv1.MadeByUIDLabel, "u")),
			map[string]any{mendv1.PowerCycleAnnotation: `{"state":"MovingWorkload"}`, mendv1.HostRemediationFinalizer: true, "keep.me/too": true}},
		"one whose check is gone is deleted": {ours, aRequest(map[string]string{mendv1.MadeByAnnotation: "gone"}), nil},
		"a remediation without a controller is forgotten": {nil, aRequest(map[string]string{
			mendv1.PowerCycleAnnotation: "{", mendv1.RecordAnnotation: "record", clusterctlv1.BlockMoveAnnotation: "kubemend",
		}, kept), map[string]any{"keep.me/too": true}},
		"one of CAPM3's keeps CAPM3's finalizer, and somebody else's block": {nil, &infrav1.Metal3Remediation{ObjectMeta: called("m",
			map[string]string{mendv1.PowerCycleAnnotation: "{}", clusterctlv1.BlockMoveAnnotation: ""},
			func(m *metav1.ObjectMeta) { m.Finalizers = []string{infrav1.RemediationFinalizer} },
		)}, map[string]any{clusterctlv1.BlockMoveAnnotation: "", infrav1.RemediationFinalizer: true}},
		"a request of NodeHealthChecks that are another's stays": {nil, aRequest(map[string]string{
			mendv1.MadeByNodeCheckAnnotation: "n", mendv1.RecordAnnotation: "record",
		}, labelled(mendv1.MadeByNodeCheckUIDLabel, "u")), map[string]any{}},
		"one of ours is left to their controller": {[]string{"nodehealthchecks"}, aRequest(map[string]string{mendv1.MadeByNodeCheckAnnotation: "n"}),
			map[string]any{mendv1.MadeByNodeCheckAnnotation: "n"}},
		"a host stays marked as unhealthy": {nil, &bmov1alpha1.BareMetalHost{ObjectMeta: called("m", map[string]string{
			mendv1.MarkedForAnnotation: "u", infrav1.UnhealthyAnnotation: "x",
		})}, map[string]any{infrav1.UnhealthyAnnotation: "x"}},
		"a hold is not cut": {nil, &bmov1alpha1.BareMetalHost{ObjectMeta: called("m", map[string]string{infrav1.PowerOffAnnotationPrefix + "u": "x"})},
			map[string]any{infrav1.PowerOffAnnotationPrefix + "u": "x"}},
	} {
		u, write, _ := teardownOf(t, tc.ours, check.DeepCopy(), tc.given)
		write.next = true // whatever fails is tried again
		_, _ = u.reconcile(t.Context(), true), u.reconcile(t.Context(), true)
		must.Equal(t, tc.want, metaOf(t, u, tc.given), "%s", name)
	}
}

func TestOurConditionsAreTakenOffMachines(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: called("m", nil)}
	machine.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.MachineHealthCheckSucceededCondition}, {Type: mendv1.Remediation}, {Type: mendv1.SpareHostAvailable},
	}
	u, _, _ := teardownOf(t, nil, machine)
	for _, left := range []string{"Machine ns/m: no controller would update its conditions any more", "no replica in teardown"} {
		if err := u.reconcile(t.Context(), left[0] == 'M'); err == nil || !strings.Contains(err.Error(), left) {
			t.Errorf("left is %v, want %s", err, left)
		}
	}
	must.Do(t, u.Live.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
	if left := machine.Status.Conditions; len(left) != 1 || left[0].Type != clusterv1.MachineHealthCheckSucceededCondition {
		t.Errorf("left are %v, want HealthCheckSucceeded, which Cluster API core goes on with", left)
	}
}

// A manager serves its readiness checks before it starts its runnables.
func TestWhatIsLeft(t *testing.T) {
	cluster := aCluster()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "leases", Name: "node-a"}}
	lease.Spec.HolderIdentity = ptr.To(nhcv1.LeaseHolderPrefix + "n")
	hold := &bmov1alpha1.BareMetalHost{ObjectMeta: called("h", map[string]string{infrav1.PowerOffAnnotationPrefix + "capm3s": "x"})}
	capm3s := &infrav1.Metal3Remediation{ObjectMeta: called("r", nil, func(m *metav1.ObjectMeta) { m.UID = "capm3s" })}
	filtered := aClaim()
	for name, tc := range map[string]struct {
		ours    []string
		given   []client.Object
		follows bool // another replica leads
		after   time.Duration
		edit    func(*Teardown)
		left    string // a part of what is said; nothing is left if it is empty
	}{
		"nothing, where nothing was":                                   {},
		"a lease of ours":                                              {ours: []string{"nodehealthchecks"}, given: []client.Object{lease}, left: "Lease leases/node-a"},
		"not one of medik8s' operator":                                 {given: []client.Object{lease}},
		"a hold whose remediation is gone":                             {given: []client.Object{hold}, left: "BareMetalHost ns/h"},
		"not one of CAPM3's":                                           {given: []client.Object{hold, capm3s}},
		"a cluster whose nodes cannot be looked at":                    {given: []client.Object{cluster}, left: "Cluster ns/c"},
		"for a while":                                                  {given: []client.Object{cluster}, after: patience},
		"a claim, until a reconcile finds none":                        {given: []client.Object{filtered}, left: "MachineHealthCheck ns/m"},
		"not one of another manager's":                                 {given: []client.Object{filtered}, edit: func(u *Teardown) { u.WatchFilterValue = "ours" }},
		"nor one of another namespace":                                 {given: []client.Object{filtered}, edit: func(u *Teardown) { u.Namespace = "elsewhere" }},
		"unknown to who follows, if the leader does not tear down":     {follows: true, edit: heldBy("host_1"), left: "no replica in teardown is the leader"},
		"what it sees itself, if the leader does; it knows no nodes":   {follows: true, edit: heldBy(signed + "host_2"), given: []client.Object{cluster}},
		"also to who follows, what is on objects of this very cluster": {follows: true, edit: heldBy(signed + "host_2"), given: []client.Object{filtered}, left: "ns/m"},
	} {
		u, _, clock := teardownOf(t, tc.ours, tc.given...)
		if tc.edit != nil {
			tc.edit(u)
		}
		if u.Ready(nil) == nil {
			t.Errorf("%s: it is ready before it has looked, and a user who deletes it then would orphan claims", name)
		}
		left := u.reconcile(t.Context(), !tc.follows)
		if tc.after > 0 {
			clock.Step(tc.after)
			left = u.reconcile(t.Context(), !tc.follows)
		}
		u.keep(t.Context(), left)
		said := ""
		if err := u.Ready(nil); err != nil {
			said = err.Error()
		}
		if (said == "") != (tc.left == "") || !strings.Contains(said, tc.left) {
			t.Errorf("%s: %q, want %q in it", name, said, tc.left)
		}
	}
}

// heldBy sets the holder of the leader lease.
func heldBy(holder string) func(*Teardown) {
	return func(u *Teardown) { u.Lock = &Lock{holder: holder, Clock: u.Clock} }
}

func TestTheFenceOfARemediationThatAnotherManagerEndsIsLeft(t *testing.T) {
	remembers := func(filter string) map[string]string {
		return map[string]string{mendv1.PowerCycleAnnotation: `{"state":"MovingWorkload","filter":"` + filter + `"}`}
	}
	u, _, _ := teardownOf(t, []string{"hostremediations"}, aCluster(labelled(clusterv1.WatchLabel, "east")),
		&mendv1.HostRemediation{ObjectMeta: called("east", remembers("east"))}, &mendv1.HostRemediation{ObjectMeta: called("west", remembers("west"))})
	u.WatchFilterValue = "east"
	there := fake.NewClientBuilder()
	for _, by := range []string{"east", "west", "no-check"} {
		there.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: by, Annotations: map[string]string{fence.FencedByAnnotation: "uid-of-" + by}}})
	}
	u.Clusters = plainCluster{there.Build()}
	found, err := u.find(t.Context(), true)
	must.Do(t, err)
	orphaned := map[string]bool{}
	for _, l := range found {
		if l.on.Kind == "Node" {
			orphaned[l.on.Name] = l.do == unfence
		}
	}
	must.Equal(t, map[string]bool{"east": false, "no-check": true}, orphaned, "fences that are ours, and whether they are orphaned")
}

func TestTheLeaseGoesWithThePodWhenNothingIsLeft(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "leader"}}
	claimed := aClaim()
	u, _, _ := teardownOf(t, nil, lease, claimed)
	u.Lock = &Lock{Lease: client.ObjectKeyFromObject(lease)}
	u.Pod = &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}

	owners := func() []metav1.OwnerReference {
		now := &coordinationv1.Lease{}
		must.Do(t, u.Live.Get(t.Context(), u.Lock.Lease, now))
		return now.OwnerReferences
	}
	if err := u.reconcile(t.Context(), true); err == nil || len(owners()) != 0 {
		t.Errorf("something is left, and the lease goes: %v", err)
	}
	must.Do(t, u.reconcile(t.Context(), true))
	must.Equal(t, []metav1.OwnerReference{*u.Pod}, owners(), "owners")
}

// together lets no cluster fail before all of them are read.
type together struct{ arrive chan struct{} }

func (c together) GetUncachedClient(ctx context.Context, _ client.ObjectKey) (client.Client, error) {
	select {
	case c.arrive <- struct{}{}:
	case <-c.arrive:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, errors.New("silent")
}

func TestClustersAreReadSideBySide(t *testing.T) {
	a, b := aCluster(), aCluster()
	b.Name = "b"
	u, _, _ := teardownOf(t, nil, a, b)
	u.Clusters = together{make(chan struct{})}
	left, err := u.find(t.Context(), true)
	must.Do(t, err)
	for _, l := range left {
		if !strings.Contains(l.cause.Error(), "silent") {
			t.Errorf("%s: %v", l, l.cause)
		}
	}
	must.Equal(t, 2, len(left))
}

// withoutHosts is a reader without the right to list hosts.
type withoutHosts struct {
	client.Reader
	kind bool // whether there are HostRemediations
}

func (r withoutHosts) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, is := list.(*bmov1alpha1.BareMetalHostList); is {
		return apierrors.NewForbidden(schema.GroupResource{Group: "metal3.io", Resource: "baremetalhosts"}, "", nil)
	}
	if l, is := list.(*metav1.PartialObjectMetadataList); is && !r.kind && l.GroupVersionKind().Group == mendv1.GroupVersion.Group {
		return &meta.NoKindMatchError{GroupKind: l.GroupVersionKind().GroupKind()}
	}
	return r.Reader.List(ctx, list, opts...)
}

// If a user removes the rights too early, a host that is off must not be overlooked.
func TestHostsThatMayNotBeLookedAt(t *testing.T) {
	for name, row := range map[string]struct {
		kind    bool
		objects []client.Object
		says    string
	}{
		"where there is the kind that holds them, they may be off": {true, nil, "list BareMetalHosts"},
		"where there never was, none is":                           {false, nil, ""},
		"unless a remediation of the other kind has a power cycle": {false, []client.Object{&infrav1.Metal3Remediation{
			ObjectMeta: called("m", map[string]string{mendv1.PowerCycleAnnotation: `{"state":"MovingWorkload"}`}),
		}}, "list BareMetalHosts"},
	} {
		t.Run(name, func(t *testing.T) {
			u, _, _ := teardownOf(t, nil, row.objects...)
			u.Live = withoutHosts{u.Live, row.kind}
			_, err := u.find(t.Context(), false)
			if (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v, want %q", err, row.says)
			}
		})
	}
}
