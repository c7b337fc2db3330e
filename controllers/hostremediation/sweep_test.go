package hostremediation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

const holdOff = infrav1.PowerOffAnnotationPrefix

// sweeperOf has one host with these annotations, and remediations of both kinds.
func sweeperOf(t *testing.T, annotations map[string]string, remediations ...client.Object) (*Sweeper, client.Client, *clocktesting.FakePassiveClock) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(bmov1alpha1.AddToScheme(scheme), infrav1.AddToScheme(scheme), mendv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host-1", UID: "host-uid", Annotations: annotations}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(remediations, host)...).Build()
	clock := clocktesting.NewFakePassiveClock(noon)
	return &Sweeper{
		Installed: func() ([]Kind, error) { return []Kind{Metal3, Own}, nil }, Client: c, Live: c, Recorder: events.NewFakeRecorder(10), Clock: clock, Grace: time.Minute,
	}, c, clock
}

func sweep(t *testing.T, s *Sweeper, c client.Client) (left []string, again time.Duration) {
	t.Helper()
	key := client.ObjectKey{Namespace: "ns", Name: "host-1"}
	result, err := s.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		t.Fatal(err)
	}
	host := &bmov1alpha1.BareMetalHost{}
	if err := c.Get(t.Context(), key, host); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(host.Annotations)), result.RequeueAfter
}

func TestOrphanedMarksAreSweptAfterAGracePeriod(t *testing.T) {
	metal3 := &infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "metal3"}}
	moved := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "b", UID: "new", Annotations: map[string]string{mendv1.PowerCycleAnnotation: `{"state":"PoweringOff","uid":"old"}`},
	}}
	elsewhere := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "c", UID: "elsewhere"}}
	marks := map[string]string{
		holdOff + "metal3": "x", holdOff + "old": "x", holdOff + "new": "x", holdOff + "gone": "x", holdOff + "elsewhere": "x",
		mendv1.RebootedForAnnotation: "gone/1", "reboot.metal3.io/by-hand": "", infrav1.UnhealthyAnnotation: "x", "note": "x",
	}
	s, c, clock := sweeperOf(t, marks, metal3, moved, elsewhere)

	left, again := sweep(t, s, c)
	if len(left) != len(marks) || again != time.Minute {
		t.Errorf("at once %d of %d are left, and it looks again after %s; want all, and the grace period", len(left), len(marks), again)
	}
	clock.SetTime(noon.Add(time.Minute))
	left, again = sweep(t, s, c)
	want := []string{
		infrav1.UnhealthyAnnotation, "note", "reboot.metal3.io/by-hand", holdOff + "metal3", holdOff + "new", holdOff + "old",
	}
	slices.Sort(want)
	if !slices.Equal(left, want) || again != 0 {
		t.Errorf("left are %v, want %v; again after %s", left, want, again)
	}
}

func TestAMarkWhoseRemediationComesLaterStays(t *testing.T) {
	s, c, clock := sweeperOf(t, map[string]string{holdOff + "late": "x"})
	sweep(t, s, c)
	late := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "late", UID: "late"}}
	if err := c.Create(context.Background(), late); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(noon.Add(time.Hour))
	if left, _ := sweep(t, s, c); len(left) != 1 {
		t.Error("the mark of a remediation that exists was swept")
	}
	if len(s.since) != 0 {
		t.Error("it is still taken for an orphan: the next grace period would be short")
	}
}
