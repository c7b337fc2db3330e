package hostremediation

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// A webhook of remediations that is down must keep no host off; nor may the host be powered off again because it is not stored that it was released.
func TestAHostIsReleasedAlsoIfThatCannotBeStored(t *testing.T) {
	k := fixtureOf(t)
	k.reaches(powercycle.MovingWorkload)
	k.seen.Drained = true
	refused, refuses := errors.New("no endpoints available for the webhook"), true
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if refuses {
				return refused
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
	k.expects(powersOff, fences, releases, unfences)
	for range 2 {
		k.clock.SetTime(k.clock.Now().Add(time.Minute))
		if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k.key}); !errors.Is(err, refused) {
			t.Fatalf("Reconcile() = %v", err)
		}
	}
	k.power(true)
	refuses = false
	if status := k.pass(); status.Step != string(powercycle.Booting) {
		t.Errorf("in %s: %s", status.Step, status.Message)
	}
	if got := remediation.Remembered(k.remediation()); got.State != powercycle.Booting || got.Attempt != 1 {
		t.Errorf("it remembers %+v", got)
	}
}

func TestTheNodeIsAskedWhenItHasBootedBeforeItsHostIsSaidToBeOn(t *testing.T) {
	for boot, want := range map[string]bool{"before": false, "after": true} {
		w := &observed{}
		w.facts.State, w.record.BootID, w.record.Fencing, w.node = powercycle.PoweringOn, "before", true, &corev1.Node{}
		w.node.Status.NodeInfo.BootID = boot // it need not be Ready
		if got := needsNode(w); got != want {
			t.Errorf("%s: %t", boot, got)
		}
	}
}

func TestThePodsThatWereThereAreRememberedWithTheFence(t *testing.T) {
	k := fixtureOf(t)
	k.seen.Pods = []types.UID{"old"}
	k.expects(powersOff, fences)
	k.pass()
	k.power(false)
	k.pass()
	w := &observed{now: noon.Add(move), rem: mustWrap(k.remediation()), kind: k.r.Kind, record: remediation.Remembered(k.remediation())}
	if by := w.signs(); !slices.Equal(by.Found, k.seen.Pods) || !by.Long || !by.Fences {
		t.Errorf("it looks as %+v", by)
	}
}

func mustWrap(rem *mendv1.HostRemediation) remediation.Object {
	wrapped := remediation.Own.New()
	rem.DeepCopyInto(wrapped.Unwrapped().(*mendv1.HostRemediation))
	return wrapped
}
