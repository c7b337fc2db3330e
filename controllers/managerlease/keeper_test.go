package managerlease

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const namespace = "kubemend-system"

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fixture is a cluster with managers in one namespace. It records requests.
type fixture struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakeClock
	asked  []string
	broken error // what writes fail with
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{t: t, clock: clocktesting.NewFakeClock(noon)}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	s.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(bound(namespace)).WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				s.asked = append(s.asked, "get")
				return c.Get(ctx, key, o, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				s.asked = append(s.asked, "create")
				if s.broken != nil {
					return s.broken
				}
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				s.asked = append(s.asked, "update")
				if s.broken != nil {
					return s.broken
				}
				return c.Update(ctx, o, opts...)
			},
		}).Build()
	return s
}

func (s *fixture) keeper(identity string, elected bool) *Keeper {
	return &Keeper{
		Client: s.client, Clock: s.clock, Namespace: namespace, Identity: identity, Elected: elected,
		State: func() Announcement { return Announcement{Version: "of " + identity} },
	}
}

// renew lets a keeper renew the lease, and ignores errors.
func (s *fixture) renew(k *Keeper) { _, _ = k.renew(s.t.Context()) }

// manager returns the manager that Of finds.
func (s *fixture) manager() Manager {
	s.t.Helper()
	found, err := Of(s.t.Context(), s.client, s.clock.Now())
	if err != nil || len(found) != 1 {
		s.t.Fatalf("found %v, %v; want one manager", found, err)
	}
	return found[0]
}

// since returns the requests since its last call.
func (s *fixture) since() string {
	asked := strings.Join(s.asked, " ")
	s.asked = nil
	return asked
}

func TestASteadyManagerWritesOnceInTwentySeconds(t *testing.T) {
	s := newFixture(t)
	a := s.keeper("a", true)
	if next, err := a.renew(t.Context()); err != nil || next != every {
		t.Errorf("the next renewal is after %s, %v", next, err)
	}
	must.Is(t, "get create", s.since(), "at first it asked for")
	for range 3 {
		s.clock.Step(every)
		s.renew(a)
		must.Is(t, "get update", s.since(), "then it asked for")
	}
	want := Manager{Namespace: namespace, Holder: "a", Alive: true, Renewed: noon.Add(3 * every), Announcement: &Announcement{Version: "of a"}}
	must.Equal(t, want, s.manager(), "a reader sees")
}

func TestAManagerThatIsSilentIsGoneSinceItsLeaseRanOut(t *testing.T) {
	s := newFixture(t)
	s.renew(s.keeper("a", true))
	for after, alive := range map[time.Duration]bool{0: true, lasts - time.Nanosecond: true, lasts: false, time.Hour: false} {
		s.clock.SetTime(noon.Add(after))
		m := s.manager()
		if m.Alive != alive || m.Gone.IsZero() != alive {
			t.Errorf("after %s: alive %t, gone since %s", after, m.Alive, m.Gone)
		}
		if !alive && !m.Gone.Equal(noon.Add(lasts)) {
			t.Errorf("after %s: gone since %s", after, m.Gone)
		}
	}
}

func TestAManagerThatEndsSaysSo(t *testing.T) {
	s := newFixture(t)
	a := s.keeper("a", true)
	s.renew(a)
	s.clock.Step(time.Second)
	a.end(t.Context())
	want := Manager{Namespace: namespace, Renewed: noon.Add(time.Second), Gone: noon.Add(time.Second), Announcement: &Announcement{Version: "of a"}}
	must.Equal(t, want, s.manager(), "a reader sees")
	b := s.keeper("b", false)
	s.renew(b)
	if m := s.manager(); m.Holder != "b" || !m.Alive {
		t.Errorf("who comes then is not announced: %+v", m)
	}
	a.end(t.Context())
	if m := s.manager(); m.Holder != "b" || !m.Alive {
		t.Errorf("who has ended before has taken the lease of the next one: %+v", m)
	}
}

func TestTwoManagersInANamespace(t *testing.T) {
	s := newFixture(t)
	first, second, leader := s.keeper("first", false), s.keeper("second", false), s.keeper("leader", true)
	s.renew(first)
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"who comes second waits", func() { s.renew(second) }, "first"},
		{"while the first one goes on", func() { s.clock.Step(every); s.renew(first); s.renew(second) }, "first"},
		{"when the first is silent it is the second's", func() { s.clock.Step(lasts); s.renew(second) }, "second"},
		{"the first does not take it back", func() { s.renew(first) }, "second"},
		{"the leader takes it from its holder", func() { s.renew(leader) }, "leader"},
		{"and the former holder does not write", func() { s.renew(second) }, "leader"},
	} {
		step.do()
		if m := s.manager(); m.Holder != step.want || m.Announcement.Version != "of "+step.want {
			t.Errorf("%s: %s holds the lease with the words of %q, want %s", step.name, m.Holder, m.Announcement.Version, step.want)
		}
	}
}

func TestTheNextManagerAnnouncesItselfWhenTheLeaseOfACrashedOneEnds(t *testing.T) {
	s := newFixture(t)
	s.renew(s.keeper("crashed", false))
	for _, step := range []struct{ after, wait time.Duration }{{15 * time.Second, every}, {lasts - time.Second, time.Second}, {lasts, every}} {
		s.clock.SetTime(noon.Add(step.after))
		if wait, err := s.keeper("next", false).renew(t.Context()); wait != step.wait || (err == nil) != (step.after == lasts) {
			t.Errorf("%s after the last renewal it tries again in %s, %v", step.after, wait, err)
		}
	}
}

func TestWhatCannotBeWrittenIsTriedAgainSoonAndWhatWasDeletedIsMadeAnew(t *testing.T) {
	s := newFixture(t)
	a := s.keeper("a", true)
	for _, broken := range []error{errors.New("broken"), apierrors.NewForbidden(coordinationv1.Resource("leases"), LeaseName, nil)} {
		s.broken = broken
		if next, err := a.renew(t.Context()); !errors.Is(err, broken) || next != again {
			t.Errorf("%v: the next renewal is after %s, %v", broken, next, err)
		}
	}
	s.broken = nil
	for _, is := range []string{"first", "anew"} {
		if next, err := a.renew(t.Context()); err != nil || next != every || !s.manager().Alive {
			t.Errorf("%s, the next renewal is after %s, %v, and a reader sees %+v", is, next, err, s.manager())
		}
		if err := s.client.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALeaseGoesWithItsOwnerWhileThereIsOne(t *testing.T) {
	s := newFixture(t)
	leaving := s.keeper("leaving", true)
	leaving.Owner = &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "leaving", UID: "1"}
	for _, step := range []struct {
		who    *Keeper
		owners int
	}{{leaving, 1}, {s.keeper("back", true), 0}} {
		s.renew(step.who)
		lease := &coordinationv1.Lease{}
		if err := s.client.Get(t.Context(), step.who.key(), lease); err != nil || len(lease.OwnerReferences) != step.owners {
			t.Errorf("of %s there are the owners %v (%v), want %d", step.who.Identity, lease.OwnerReferences, err, step.owners)
		}
	}
}

func TestAChangeIsAnnouncedAtOnceAndTheEndAsWell(t *testing.T) {
	s := newFixture(t)
	changed := make(chan struct{})
	said := make(chan string, 100)
	a := s.keeper("a", true)
	a.Changed = changed
	renewals := 0
	a.State = func() Announcement {
		renewals++
		v := fmt.Sprintf("word %d", renewals)
		said <- v
		return Announcement{Version: v}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Start(ctx) }()
	must.Is(t, "word 1", <-said, "at first it said")
	changed <- struct{}{} // no time goes by
	must.Is(t, "word 2", <-said, "after the change it said")
	// The keeper sets a new timer after the change. A step of the clock before that would have no effect.
	for len(said) == 0 {
		s.clock.Step(every)
		runtime.Gosched()
	}
	must.Is(t, "word 3", <-said, "after %s it said", every)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if m := s.manager(); m.Alive || m.Holder != "" {
		t.Errorf("after the end a reader sees %+v", m)
	}
}
