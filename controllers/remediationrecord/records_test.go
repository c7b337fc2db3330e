package remediationrecord

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// shelf is an API server with records, and a cache of the open ones that may lag behind.
type shelf struct {
	*Records
	server client.WithWatch
	clock  *clocktesting.FakePassiveClock
	// lags says that the cache shows nothing yet, breaks which write of the process is its last: it is killed before it.
	lags   bool
	breaks int
	absent bool
}

var errKilled = errors.New("the manager is killed")

func newShelf(t *testing.T, objects ...client.Object) *shelf {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := mendv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &shelf{clock: clocktesting.NewFakePassiveClock(noon), breaks: -1}
	s.server = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	s.restart()
	return s
}

// restart makes another process.
func (s *shelf) restart() {
	write := func() error {
		if s.breaks == 0 {
			return errKilled
		}
		s.breaks--
		return nil
	}
	cached := interceptor.NewClient(s.server, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if s.lags {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := write(); err != nil {
				return err
			}
			o.SetUID(types.UID("of " + o.GetName())) // which the fake does not do
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	s.Records = &Records{
		Client: cached, Live: s.server, Clock: s.clock,
		Installed: func(context.Context, string) (bool, error) { return !s.absent, nil },
	}
	s.Cached()
}

func (s *shelf) all(ctx context.Context, t *testing.T) []mendv1.RemediationRecord {
	t.Helper()
	list := &mendv1.RemediationRecordList{}
	if err := s.server.List(ctx, list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// close ends the only record.
func (s *shelf) close(ctx context.Context, t *testing.T) {
	t.Helper()
	all := s.all(ctx, t)
	is := &all[len(all)-1]
	is.Status.Ended, is.Status.Outcome = new(metav1.NewTime(s.clock.Now())), mendv1.RecordCancelled
	delete(is.Labels, mendv1.RecordOpenLabel)
	if err := s.server.Update(ctx, is); err != nil {
		t.Fatal(err)
	}
}

func about(machine, uid string) *mendv1.RemediationRecord {
	return &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal"},
		Spec: mendv1.RemediationRecordSpec{
			Remediator: mendv1.RemediatedByOwner, Decided: metav1.NewTime(noon),
			Target: mendv1.RecordTarget{Machine: &mendv1.RecordRef{Kind: "Machine", Name: machine, UID: uid}},
		},
	}
}

func TestARemediationHasOneRecord(t *testing.T) {
	ctx := t.Context()
	ofNode := func(name, uid, check string) *mendv1.RemediationRecord {
		is := about("", "")
		is.Spec.Target = mendv1.RecordTarget{Node: NodeRef(name, uid)}
		is.Spec.Requester.Check = &mendv1.RecordRef{Kind: "NodeHealthCheck", Name: check}
		return is
	}
	for name, tc := range map[string]struct {
		run  func(s *shelf)
		want int
	}{
		"one begins": {func(s *shelf) { _, _ = s.Begin(ctx, about("w1", "1"), "a") }, 1},
		"it is tried again": {func(s *shelf) {
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
		}, 1},
		"it is tried again after the first write of it, and the cache lags": {func(s *shelf) {
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			s.lags = true
			_, _ = s.Begin(ctx, about("w1", "1"), "b")
		}, 1},
		"the manager is restarted between the record and the first write": {func(s *shelf) {
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			s.restart()
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
		}, 1},
		"the manager is restarted after the first write": {func(s *shelf) {
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			s.restart()
			_, _ = s.Begin(ctx, about("w1", "1"), "b")
		}, 1},
		"the manager is killed before the record": {func(s *shelf) {
			s.breaks = 0
			if _, err := s.Begin(ctx, about("w1", "1"), "a"); !errors.Is(err, errKilled) {
				t.Errorf("it ends with %v", err)
			}
			s.breaks = -1
			s.restart()
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
		}, 1},
		"two managers begin it, as the old leader does not know that it is one no more": {func(s *shelf) {
			s.lags = true
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			s.restart()
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
		}, 1},
		"a remediation of the same machine after the first is closed": {func(s *shelf) {
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			s.close(ctx, t)
			_, _ = s.Begin(ctx, about("w1", "1"), "b")
		}, 2},
		"one that did not begin in time, and does now": {func(s *shelf) {
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			s.close(ctx, t)
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
		}, 2},
		"one of another machine of that name": {func(s *shelf) {
			_, _ = s.Begin(ctx, about("w1", "1"), "a")
			_, _ = s.Begin(ctx, about("w1", "2"), "a")
		}, 2},
		"clusterctl has moved its Cluster, so that all UIDs are others": {func(s *shelf) {
			owned := func(uid, cluster string) *mendv1.RemediationRecord {
				is := about("w1", uid)
				OwnedBy(is, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "c", UID: types.UID(cluster)}})
				return is
			}
			_, _ = s.Begin(ctx, owned("1", "before"), "a")
			moved := &s.all(ctx, t)[0]
			moved.OwnerReferences[0].UID = "after"
			if err := s.server.Update(ctx, moved); err != nil {
				t.Fatal(err)
			}
			s.restart()
			_, _ = s.Begin(ctx, owned("2", "after"), "b")
		}, 1},
		"its target came back with another UID, and the caller knows its record": {func(s *shelf) {
			first, _ := s.Begin(ctx, about("w1", "1"), "a")
			again := about("w1", "2")
			again.Name = first
			if second, err := s.Begin(ctx, again, "b"); err != nil || second != first {
				t.Errorf("it takes %q after %q: %v", second, first, err)
			}
		}, 1},
		"the record that the caller knows is closed": {func(s *shelf) {
			again := about("w1", "2")
			again.Name, _ = s.Begin(ctx, about("w1", "1"), "a")
			s.close(ctx, t)
			_, _ = s.Begin(ctx, again, "b")
		}, 2},
		"the record that the caller knows is gone": {func(s *shelf) {
			again := about("w1", "1")
			again.Name = "w1-gone"
			_, _ = s.Begin(ctx, again, "a")
		}, 1},
		"a remediator deletes a node, which comes back with another UID and is unhealthy still": {func(s *shelf) {
			_, _ = s.Begin(ctx, ofNode("n", "a", "nodes"), "1")
			_, _ = s.Begin(ctx, ofNode("n", "b", "nodes"), "2")
		}, 1},
		"that node, once the record has ended": {func(s *shelf) {
			_, _ = s.Begin(ctx, ofNode("n", "a", "nodes"), "1")
			s.close(ctx, t)
			_, _ = s.Begin(ctx, ofNode("n", "b", "nodes"), "2")
		}, 2},
		"that node for another check, and another node": {func(s *shelf) {
			_, _ = s.Begin(ctx, ofNode("n", "a", "nodes"), "1")
			_, _ = s.Begin(ctx, ofNode("n", "b", "others"), "2")
			_, _ = s.Begin(ctx, ofNode("m", "c", "nodes"), "2")
		}, 3},
		"the kind is not installed": {func(s *shelf) {
			s.absent = true
			if name, err := s.Begin(ctx, about("w1", "1"), "a"); name != "" || err != nil {
				t.Errorf("it returns %q, %v", name, err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			tc.run(s)
			if got := s.all(ctx, t); len(got) != tc.want {
				t.Errorf("there are %d records, want %d: %v", len(got), tc.want, got)
			}
		})
	}
}

func TestARecordSaysThatItIsStillAboutToBegin(t *testing.T) {
	s := newShelf(t)
	for _, after := range []time.Duration{0, 30 * time.Second, 90 * time.Second} {
		s.clock.SetTime(noon.Add(after))
		name, err := s.Begin(t.Context(), about("w1", "1"), "a")
		if err != nil || !strings.HasPrefix(name, "w1-") {
			t.Fatalf("it returns %q, %v", name, err)
		}
	}
	if got := s.all(t.Context(), t)[0].Status.Attempted.Time; !got.Equal(noon.Add(90 * time.Second)) {
		t.Errorf("it was last attempted at %s", got)
	}
}

// The cache of a manager with --namespace refuses to list another one; the requests of a NodeHealthCheck may be there.
func TestRecordsOfANamespaceThatTheCacheDoesNotHaveAreReadPastIt(t *testing.T) {
	s := newShelf(t)
	s.Namespace = "elsewhere"
	s.Client = interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("unknown namespace for the cache")
		},
	})
	first, err := s.Begin(t.Context(), about("w1", "1"), "a")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := s.Begin(t.Context(), about("w1", "1"), "b"); err != nil || second != first {
		t.Errorf("it takes %q after %q: %v", second, first, err)
	}
}

func TestWhatIsTooLongIsCut(t *testing.T) {
	r := about("w1", "1")
	long := strings.Repeat("ä", 1000)
	r.Spec.Cause = long
	for range 100 {
		r.Spec.Evidence = append(r.Spec.Evidence, mendv1.RecordEvidence{Type: "Ready", Message: long})
		r.Status.Steps = append(r.Status.Steps, mendv1.RecordStep{Reason: "Begun", Message: long})
	}
	r.Status.Steps[99].Reason = "Ended"
	r.Status.Waits = []mendv1.RecordWait{{Reason: "DrainingNode", Seconds: -1}, {Reason: "NoHost", Seconds: 1}}
	Bound(r)
	if n := len([]rune(r.Spec.Cause)); n != 333 {
		t.Errorf("the cause has %d characters", n)
	}
	if len(r.Spec.Evidence) != mendv1.MaxRecordEvidence || len(r.Status.Steps) != mendv1.MaxRecordSteps || r.Status.Steps[63].Reason != "Ended" {
		t.Errorf("%d findings and %d steps, of which the last is %s", len(r.Spec.Evidence), len(r.Status.Steps), r.Status.Steps[len(r.Status.Steps)-1].Reason)
	}
	if n := len([]rune(r.Status.Steps[0].Message)); n != mendv1.MaxRecordText {
		t.Errorf("a step has %d characters", n)
	}
	if r.Status.Waits[0].Seconds != 0 || r.Status.Waits[1].Seconds != 1 {
		t.Errorf("the waits are %+v", r.Status.Waits)
	}
}
