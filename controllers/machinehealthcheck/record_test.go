package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestTheNumbersOfALargeCheckAreWrittenAtMostOnceInAWhile(t *testing.T) {
	fleet := func(size, pending int) *observed {
		targets := make([]Target, size)
		for i := range targets {
			if targets[i] = a(fmt.Sprintf("m%04d", i), health.Healthy, markedBefore); i < pending {
				targets[i] = a(fmt.Sprintf("m%04d", i), health.Pending)
			}
		}
		return aCheck(targets...).limited("40%")
	}
	for name, tc := range map[string]struct {
		size, pending int
		ago           time.Duration // since the status was written last
		want          time.Duration // from now; zero for at once
	}{
		"of a small check at once":                        {100, 1, time.Millisecond, 0},
		"of a large one two seconds after the last time":  {5000, 1, 400 * time.Millisecond, 1600 * time.Millisecond},
		"at once if the last time was longer ago":         {5000, 1, 2 * time.Second, 0},
		"at once if it turns what the check says":         {5000, 2001, 400 * time.Millisecond, 0},
		"never if nothing differs":                        {5000, 0, 400 * time.Millisecond, 0},
		"of one with a thousand machines a fifth of that": {1000, 1, 50 * time.Millisecond, 350 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			before := fleet(tc.size, 0)
			w := fleet(tc.size, tc.pending)
			w.Check.Status, w.before.statusAt = statusAfter(before, decide(before), nil).Status, w.Now.Add(-tc.ago)
			due, want := putOff(w, statusAfter(w, decide(w), nil)), time.Time{}
			if tc.want > 0 {
				want = w.Now.Add(tc.want)
			}
			if !due.Equal(want) {
				t.Errorf("written at %s, want %s; zero is at once", due, want)
			}
		})
	}
}

// A cache that lags behind shows a machine whose owner was not asked yet. A reconcile that decided on that would count no remediation.
// One that was requested in a write whose answer was lost counts as well.
func TestAReconcileWaitsForTheCacheToShowItsWrites(t *testing.T) {
	for name, lost := range map[string]bool{"with an answer": false, "whose answer was lost": true} {
		r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
		r.pass(0)
		before := r.machine()
		if lost {
			r.Client = interceptor.NewClient(r.api.(client.WithWatch), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
					return errors.Join(c.SubResource(sub).Patch(ctx, obj, p, opts...), errors.New("the answer was lost"))
				},
			})
		}
		if _, begun := r.pass(time.Second); !begun {
			t.Fatal("no remediation was requested")
		}
		r.Client, r.Live = outdatedReader{r.api, before}, r.api
		written := r.machine().ResourceVersion
		if next, _ := r.pass(2 * time.Second); next != consistency.Lag || r.machine().ResourceVersion != written {
			t.Errorf("%s: on what was before its write it acts, or waits %s", name, next)
		}
		r.Client = r.api
		if next, _ := r.pass(3 * time.Second); next < time.Minute {
			t.Errorf("%s: when the cache shows it, the next reconcile is in %s", name, next)
		}
	}
}

// That requests cannot be made, or can again, only a condition of the older flavour says, and only the reconcile that tried it knows. Put
// off, it would be lost.
func TestWhetherRequestsCanBeMadeIsWrittenAtOnce(t *testing.T) {
	w := aCheck(a("m1", health.Unhealthy), a("m2", health.Unhealthy)).external()
	w.Check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "1"}
	for len(w.Targets) < 5000 {
		w.also(a(fmt.Sprintf("n%04d", len(w.Targets)), health.Healthy, markedBefore))
	}
	before := statusAfter(w, decide(w), nil)
	refused := statusAfter(w, decide(w), []outcome{{refused: errors.New("no rights"), err: errors.New("no rights")}})
	for name, tc := range map[string]struct {
		was *clusterv1.MachineHealthCheck
		is  []outcome
	}{"they cannot": {before, []outcome{{refused: errors.New("no rights")}}}, "they can again": {refused, []outcome{{requested: true}}}} {
		w.Check.Status, w.before.statusAt = tc.was.Status, w.Now.Add(-time.Millisecond)
		w.Check.Status.ObservedGeneration = w.Check.Generation
		if due := putOff(w, statusAfter(w, decide(w), tc.is)); !due.IsZero() {
			t.Errorf("%s: written at %s, want at once", name, due)
		}
	}
}

// An API server that was restored from a backup has older versions than were written, and never shows the write.
func TestNoReconcileWaitsForAWriteThatIsGone(t *testing.T) {
	for name, restored := range map[string]bool{"the API server was restored from a backup": true, "the cache stands still": false} {
		t.Run(name, func(t *testing.T) {
			r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
			r.pass(0)
			before := r.machine()
			if _, begun := r.pass(time.Second); !begun {
				t.Fatal("no remediation was requested")
			}
			r.Client, r.Live = outdatedReader{r.Client, before}, r.api
			if restored {
				r.Live = outdatedReader{r.api, before}
			}
			waits := true
			for i := range 20 {
				next, _ := r.pass(time.Duration(2+i) * time.Second)
				waits = next == consistency.Wait(i+1)
			}
			if waits == restored {
				t.Errorf("after 20 reconciles it waits for the cache: %t", waits)
			}
		})
	}
}

// A machine whose owner may have been asked holds up the others of its check for seconds, also if it can never be read.
func TestNoReconcileWaitsForeverForAMachineThatCannotBeRead(t *testing.T) {
	r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
	r.pass(0)
	r.Client = interceptor.NewClient(r.api.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return errors.New("the answer was lost")
		},
	})
	r.pass(time.Second)
	r.Client, r.Live = r.api, interceptor.NewClient(r.api.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("it cannot be decoded")
		},
	})
	begun := false
	for i := range 20 {
		_, now := r.pass(time.Duration(2+i) * time.Second)
		begun = begun || now
	}
	if !begun {
		t.Error("after 20 reconciles nothing goes on")
	}
}

func TestTheLabelOfACheckIsWrittenEverMoreRarelyWhereAnotherClientRemovesIt(t *testing.T) {
	r, writes := reconciling(t, func(*clusterv1.MachineHealthCheck) {}), 0
	r.Client = interceptor.NewClient(r.api.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if obj.GetName() == r.check.Name {
				writes++
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	without := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null,"ownerReferences":null}}`))
	for i := range 600 {
		r.pass(time.Duration(i) * 100 * time.Millisecond)
		if err := r.api.Patch(t.Context(), r.check.DeepCopy(), without); err != nil {
			t.Fatal(err)
		}
	}
	if writes < 4 || writes > 8 { // after 1, 2, 4 ... seconds
		t.Errorf("they are written %d times in a minute", writes)
	}
}
