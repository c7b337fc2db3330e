package leftovers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	realclock "k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	realhost "github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/consistency"
)

func installed() ([]remediation.Kind, error) {
	return []remediation.Kind{remediation.Metal3, remediation.Own}, nil
}

const holdOff = infrav1.PowerOffAnnotationPrefix

// server returns an API server with these objects.
func server(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Do(t, errors.Join(
		clientgoscheme.AddToScheme(scheme), bmov1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), infrav1.AddToScheme(scheme),
		mendv1.AddToScheme(scheme),
	))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&clusterv1.Machine{})
}

// sweeperOf returns a Sweep of one host with these annotations, and of these remediations.
func sweeperOf(
	t *testing.T, annotations map[string]string, remediations ...client.Object,
) (*Sweep, client.Client, *clocktesting.FakeClock) {
	t.Helper()
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host-1", UID: "host-uid", Annotations: annotations}}
	c := server(t, append(remediations, host)...).Build()
	clock := clocktesting.NewFakeClock(noon)
	return &Sweep{
		Remover:   Remover{Client: c, Live: c, Recorder: events.NewFakeRecorder(10), Hosts: &realhost.Hosts{Client: c, Live: c}},
		Installed: installed, Clock: clock, Grace: time.Minute,
	}, c, clock
}

// sweep sweeps once, and returns the annotations that are left on the host.
func sweep(t *testing.T, s *Sweep, c client.Client) (left []string) {
	t.Helper()
	must.Do(t, s.sweep(t.Context()))
	host := &bmov1alpha1.BareMetalHost{}
	must.Do(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "host-1"}, host))
	return slices.Sorted(maps.Keys(host.Annotations))
}

func TestW5OrphanedMarksAreSweptAfterAGracePeriod(t *testing.T) {
	metal3 := &infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "metal3"}}
	moved := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "b", UID: "new", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "machine-uid"},
		}, Annotations: map[string]string{mendv1.PowerCycleAnnotation: `{"state":"PoweringOff","uid":"old","machine":"m"}`},
	}}
	elsewhere := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "c", UID: "elsewhere"}}
	marks := map[string]string{
		holdOff + "metal3": "x", holdOff + "old": "x", holdOff + "new": "x", holdOff + "gone": "x", holdOff + "elsewhere": "x",
		mendv1.RebootedForAnnotation: "gone/1", "reboot.metal3.io/by-hand": "", infrav1.UnhealthyAnnotation: "x", "note": "x",
	}
	s, c, clock := sweeperOf(t, marks, metal3, moved, elsewhere)

	if left := sweep(t, s, c); len(left) != len(marks) {
		t.Errorf("at once %d of %d are left", len(left), len(marks))
	}
	clock.SetTime(noon.Add(time.Minute))
	left := sweep(t, s, c)
	want := []string{
		infrav1.UnhealthyAnnotation, "note", "reboot.metal3.io/by-hand", holdOff + "metal3", holdOff + "new", holdOff + "old",
	}
	slices.Sort(want)
	must.List(t, want, left, "left are")
}

func TestTheManagerSweepsAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, _ := sweeperOf(t, map[string]string{holdOff + "gone": "x"})
		s.Clock = realclock.RealClock{}
		ctx, end := context.WithTimeout(t.Context(), s.Grace+2*sweepEvery)
		defer end()
		must.Do(t, s.Start(ctx))
		host := &bmov1alpha1.BareMetalHost{}
		must.Do(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "host-1"}, host))
		must.Is(t, 0, len(host.Annotations), "annotations left")
	})
}

func TestAMarkWhoseRemediationComesLaterStays(t *testing.T) {
	s, c, clock := sweeperOf(t, map[string]string{holdOff + "late": "x"})
	sweep(t, s, c)
	late := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "late", UID: "late"}}
	must.Do(t, c.Create(context.Background(), late))
	clock.SetTime(noon.Add(time.Hour))
	if left := sweep(t, s, c); len(left) != 1 {
		t.Error("the mark of a remediation that exists was swept")
	}
	if len(s.since) != 0 {
		t.Error("it is still taken for an orphan: the next grace period would be short")
	}
}

func TestAnOrphanedRebootIsRemovedIfItIsInOurWords(t *testing.T) {
	for asked, left := range map[string]int{`{"mode":"hard"}`: 0, `{"mode":"soft"}`: 1} {
		s, c, clock := sweeperOf(t, map[string]string{mendv1.RebootedForAnnotation: "gone/1", infrav1.RebootAnnotation: asked})
		sweep(t, s, c)
		clock.SetTime(noon.Add(time.Hour))
		if got := sweep(t, s, c); len(got) != left {
			t.Errorf("of a reboot asked for with %s these are left: %v", asked, got)
		}
	}
}

// unread is a client whose reads fail.
type unread struct {
	client.Client
	err error
}

func (u unread) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return u.err
}

func (u unread) List(context.Context, client.ObjectList, ...client.ListOption) error { return u.err }

func TestAGracePeriodGoesOnWhileAHostCannotBeRead(t *testing.T) {
	down := errors.New("etcd has no leader")
	for name, fails := range map[string]func(*Sweep, client.Client){
		"the cache of hosts is stale": func(s *Sweep, c client.Client) {
			s.Hosts = &realhost.Hosts{Client: unread{c, consistency.ErrStale}, Live: c}
		},
		"hosts cannot be listed": func(s *Sweep, c client.Client) { s.Client = unread{c, down} },
		"remediations cannot be listed": func(s *Sweep, _ client.Client) {
			s.Installed = func() ([]remediation.Kind, error) { return nil, down }
		},
	} {
		s, c, clock := sweeperOf(t, map[string]string{holdOff + "gone": "x"})
		hosts, reads := s.Hosts, s.Client
		sweep(t, s, c)
		fails(s, c)
		_ = s.sweep(t.Context())
		s.Hosts, s.Client, s.Installed = hosts, reads, installed
		clock.SetTime(noon.Add(time.Minute))
		if left := sweep(t, s, c); len(left) != 0 {
			t.Errorf("%s at one look: %v stays after the grace period", name, left)
		}
	}
}

// changing is a live reader. During each list the host changes.
type changing struct {
	client.Reader
	change func()
}

func (c changing) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.change()
	return c.Reader.List(ctx, list, options...)
}

// All remediations use the same annotation to name the one that asked for a reboot.
func TestARebootThatARemediationAsksForMeanwhileStays(t *testing.T) {
	another := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", UID: "another"}}
	s, c, clock := sweeperOf(t, map[string]string{mendv1.RebootedForAnnotation: "gone/1", infrav1.RebootAnnotation: `{"mode":"hard"}`}, another)
	sweep(t, s, c)
	clock.SetTime(noon.Add(time.Hour))
	s.Live = changing{c, func() {
		h := &bmov1alpha1.BareMetalHost{}
		must.Do(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "host-1"}, h))
		must.Do(t, s.Hosts.Reboot(t.Context(), h, realhost.Remediation{UID: "another"}, 1))
	}}
	if left, want := sweep(t, s, c), []string{mendv1.RebootedForAnnotation, infrav1.RebootAnnotation}; !slices.Equal(left, want) {
		t.Errorf("%v are left, want %v", left, want)
	}
	s.Live = c
	if left := sweep(t, s, c); len(left) != 2 {
		t.Errorf("%v are left once the change is seen", left)
	}
}

func TestARequestIsWithdrawnWhenTheMachineIsHealthyAfterAll(t *testing.T) {
	marked := map[string]string{
		mendv1.MarkedForAnnotation: "machine", infrav1.UnhealthyAnnotation: infrav1.UnhealthyAnnotationValue,
		infrav1.LegacyUnhealthyAnnotation: infrav1.UnhealthyAnnotationValue,
	}
	anotherRemediation := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "r", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "machine"},
	}}}
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "check"}}
	check.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "none", Operator: metav1.LabelSelectorOpDoesNotExist}} // all machines
	for name, tc := range map[string]struct {
		uid     types.UID
		checked metav1.ConditionStatus
		reason  string
		node    metav1.ConditionStatus
		others  []client.Object
		back    bool
	}{
		"the health check says so":        {uid: "machine", checked: metav1.ConditionTrue, back: true},
		"its node shows it, and no check": {uid: "machine", node: metav1.ConditionTrue, back: true},
		"but the health check goes first": {uid: "machine", checked: metav1.ConditionFalse, node: metav1.ConditionTrue, others: []client.Object{check}},
		"as long as there is one":         {uid: "machine", checked: metav1.ConditionFalse, node: metav1.ConditionTrue, back: true},
		"what we said ourselves to hand it over is none": {
			uid: "machine", checked: metav1.ConditionFalse, reason: mendv1.PowerCycleFailedReason, node: metav1.ConditionTrue, others: []client.Object{check}, back: true,
		},
		"nor is it well because of that":                  {uid: "machine", checked: metav1.ConditionFalse, reason: mendv1.PowerCycleFailedReason},
		"one of which nothing is known is not":            {uid: "machine"},
		"nor does another machine's being well count":     {uid: "another", checked: metav1.ConditionTrue},
		"nor is a machine touched that is remediated now": {uid: "machine", checked: metav1.ConditionTrue, others: []client.Object{anotherRemediation}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: tc.uid}}
			for kind, status := range map[string]metav1.ConditionStatus{
				clusterv1.MachineHealthCheckSucceededCondition: tc.checked, clusterv1.MachineNodeHealthyCondition: tc.node,
			} {
				if status != "" {
					conditions.Set(m, metav1.Condition{Type: kind, Status: status, Reason: cmp.Or(tc.reason, "R")})
				}
			}
			conditions.Set(m, metav1.Condition{
				Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
			})
			s, c, _ := sweeperOf(t, marked, append(tc.others, m)...)
			left := sweep(t, s, c)
			must.Do(t, c.Get(t.Context(), client.ObjectKeyFromObject(m), m))
			if back := len(left) == 0; back != tc.back {
				t.Errorf("the host keeps %v", left)
			}
			if asked := conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition); asked == tc.back {
				t.Errorf("its owner is asked: %t", asked)
			}
			if tc.back && conditions.Has(m, clusterv1.MachineHealthCheckSucceededCondition) && tc.reason != "" {
				t.Error("we call it bad still")
			}
		})
	}
}

// CAPM3 before v1.13 serves its kind only in v1beta1, of which kubemend reads only metadata.
func TestMarksOfAKindOfWhichOnlyMetadataIsKnownAreNotOrphaned(t *testing.T) {
	old := remediation.MetadataOnly(remediation.Metal3.GroupKind().WithVersion("v1beta1"))
	rem := old.Watched().(*metav1.PartialObjectMetadata)
	rem.Namespace, rem.Name, rem.UID = "ns", "a", "old"
	scheme := runtime.NewScheme()
	must.Do(t, bmov1alpha1.AddToScheme(scheme))
	scheme.AddKnownTypeWithName(old.GroupVersionKind, &metav1.PartialObjectMetadata{})
	scheme.AddKnownTypeWithName(old.GroupVersion().WithKind(old.Kind+"List"), &metav1.PartialObjectMetadataList{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(rem).Build()
	s := &Sweep{Installed: func() ([]remediation.Kind, error) { return []remediation.Kind{old}, nil }}
	missing, err := s.missing(t.Context(), c, "ns", []types.UID{"old", "other"})
	if err != nil || !slices.Equal(missing, []types.UID{"other"}) {
		t.Errorf("missing are %v, %v; want the other remediation", missing, err)
	}
}

func TestTeardownSweepsAlsoWhatARemediationHasForgotten(t *testing.T) {
	forgotten := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "forgotten"}}
	working := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", UID: "working", Finalizers: []string{mendv1.HostRemediationFinalizer}}}
	for name, tc := range map[string]struct {
		leaving bool
		want    []string
	}{
		"it begins anew, and takes its hold up again": {false, []string{holdOff + "forgotten", holdOff + "working"}},
		"nothing begins during a teardown anew":       {true, []string{holdOff + "working"}},
	} {
		s, c, clock := sweeperOf(t, map[string]string{holdOff + "forgotten": "x", holdOff + "working": "x"}, forgotten, working)
		s.Teardown = tc.leaving
		sweep(t, s, c)
		clock.SetTime(noon.Add(time.Minute))
		if left := sweep(t, s, c); !slices.Equal(left, tc.want) {
			t.Errorf("%s: %v are left, want %v", name, left, tc.want)
		}
	}
}

func TestAnExhaustedHostIsExportedUntilItIsRepairedOrGone(t *testing.T) {
	marks := map[string]string{infrav1.UnhealthyAnnotation: "x", mendv1.MarkedForAnnotation: "machine-that-was-replaced"}
	for does, ends := range map[string]func(context.Context, client.Client, *bmov1alpha1.BareMetalHost) error{
		"C11: a person repairs it": func(ctx context.Context, c client.Client, h *bmov1alpha1.BareMetalHost) error {
			delete(h.Annotations, infrav1.UnhealthyAnnotation)
			return c.Update(ctx, h)
		},
		"it is deleted": func(ctx context.Context, c client.Client, h *bmov1alpha1.BareMetalHost) error {
			return c.Delete(ctx, h)
		},
	} {
		t.Run(does, func(t *testing.T) {
			s, c, _ := sweeperOf(t, marks)
			sweep(t, s, c)
			must.Is(t, 1, testutil.ToFloat64(exhausted), "the only host")
			must.Is(t, 1, testutil.ToFloat64(exhausted.WithLabelValues("ns", "host-1")), "the host")
			h := &bmov1alpha1.BareMetalHost{}
			key := client.ObjectKey{Namespace: "ns", Name: "host-1"}
			must.Do(t, errors.Join(c.Get(t.Context(), key, h), ends(t.Context(), c, h)))
			must.Do(t, s.sweep(t.Context()))
			must.Is(t, 0, testutil.CollectAndCount(exhausted), "hosts afterwards")
		})
	}
}
