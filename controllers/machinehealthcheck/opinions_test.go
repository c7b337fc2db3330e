package machinehealthcheck

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// beside adds another check that finds the machine healthy.
func beside(t *Target) {
	t.Others = []Opinion{{Check: "other", Heard: true, Healthy: true}}
}

// If two checks ask the owner at the same moment, one write conflicts: that check has asked nobody.
func TestWhatIsToldOfARemediationWhoseBeginningFailed(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "m", errors.New("another check was faster"))
	for name, tc := range map[string]struct {
		err  error
		lost bool // the answer to the creation of a request was lost
		want bool
	}{
		"the write conflicted":        {conflict, false, false},
		"the answer was lost":         {context.DeadlineExceeded, false, true},
		"the answer to a request was": {nil, true, true},
		"no request could be made":    {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := aCheck(a("m", health.Unhealthy, beside)), memory{}
			m.recall(w)
			var o outcome
			if tc.err != nil {
				marked := false // the first write marks the machine
				fails := interceptor.Funcs{
					SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
						if marked {
							return tc.err
						}
						marked = true
						return nil
					},
				}
				r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(noon), Client: interceptor.NewClient(fake.NewClientBuilder().Build(), fails)}
				var plan *Plan
				plan, o = r.carries(t.Context(), w)
				m.leave(w, plan, o)
			} else {
				plan := decide(w.external())
				m.leave(w, plan, outcome{Decision: stepsOf(plan)[0], lost: tc.lost})
			}
			m.recall(w)
			got := w.before.decided.Opinions["uid-of-m"]
			if got.InFlight != tc.want || got.AskedOwner != (o.lost && tc.want) {
				t.Errorf("in flight %t, the owner is said to be asked %t", got.InFlight, got.AskedOwner)
			}
		})
	}
}

// othersWrites drops the event of the write, so the other checks have to be enqueued.
func TestOtherChecksAreToldThatARequestToTheOwnerIsWithdrawn(t *testing.T) {
	target := a("m", health.Healthy, beside)
	said := Opinion{Heard: true, Healthy: true, AskedOwner: true}
	for saved, news := range map[*clusterv1.Machine]bool{target.Machine: true, nil: false} { // nil: the write conflicted
		next := remembered{decided: Memory{Opinions: map[types.UID]Opinion{target.UID: said}}}
		next.note(aCheck(), outcome{Decision: &Decision{Target: &target}, saved: saved}, "")
		must.Is(t, news, !next.decided.Opinions[target.UID].Equal(said), "after a write of %v it is news to others:", saved)
	}
}

// faster is a cache in which another check acts just before its machines are listed.
type faster struct {
	toolscache.Indexer
	writes func()
}

func (f faster) ByIndex(index, value string) ([]any, error) {
	f.writes()
	return f.Indexer.ByIndex(index, value)
}

func TestNoOpinionIsOlderThanTheMachineThatItIsAbout(t *testing.T) {
	f, r := newFleet(), &Reconciler{}
	f.change("m", func(*clusterv1.Machine) {})
	r.machines = faster{f.machines, func() {
		r.memory.tell(types.NamespacedName{Namespace: "ns", Name: "other"}, map[types.UID]Opinion{"m": {Heard: true, InFlight: true}})
	}}
	w := f.check(noon)
	w.selector, w.Overlaps = labels.Everything(), []Overlap{{Name: "other", selector: labels.Everything(), Acting: true}}
	must.Do(t, r.observeMachines(t.Context(), w))
	if !w.Targets[0].Others[0].InFlight {
		t.Error("the machine may show what the other check has begun, which it is not said to have")
	}
}

// Otherwise the check would be reconciled ten times a second for ever.
func TestACheckThatIsOnlyObservedWaitsForNoOtherOne(t *testing.T) {
	for mode, heard := range map[Mode]bool{Active: false, Observed: true} {
		f, r := newFleet(), &Reconciler{}
		f.change("m", func(*clusterv1.Machine) {})
		r.machines = f.machines
		w := f.check(noon)
		w.Mode, w.before.lasts = mode, true
		w.selector, w.Overlaps = labels.Everything(), []Overlap{{Name: "other", selector: labels.Everything(), Acting: true}}
		must.Do(t, r.observeMachines(t.Context(), w))
		must.Is(t, heard, w.Targets[0].Others[0].Heard, "in mode %d the other check was heard:", mode)
	}
}

// Otherwise two checks whose requests are refused would try in turn, ten times a second.
func TestAnAttemptInVainWakesOtherChecksAsOftenAsItIsMade(t *testing.T) {
	uid := types.UID("m")
	waits := Opinion{Heard: true, State: health.Unhealthy}
	begins := waits
	begins.InFlight = true
	for name, tc := range map[string]struct {
		plan, end Opinion
		failed    int
		want      time.Duration // zero: not enqueued
	}{
		"nothing is news": {waits, waits, 0, 0},
		"one has begun":   {begins, begins, 0, enqueue.MergeWindow},
		"none began":      {begins, waits, 10, enqueue.Backoff(10)},
	} {
		opinions := func(opinion Opinion) map[types.UID]Opinion {
			return map[types.UID]Opinion{uid: opinion}
		}
		var got time.Duration
		r := &Reconciler{wake: func(_ types.NamespacedName, in time.Duration) { got = in }}
		w := aCheck()
		w.Overlaps = []Overlap{{Name: "other", Acting: true, Shared: 1}}
		w.before.decided.Opinions = opinions(waits)
		plan := &Plan{Memory: Memory{Opinions: opinions(tc.plan)}}
		r.wakeOthers(w, plan, &remembered{failed: tc.failed, decided: Memory{Opinions: opinions(tc.end)}})
		must.Is(t, tc.want, got, "%s: the other check is woken after", name)
	}
}
