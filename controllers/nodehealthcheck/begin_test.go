package nodehealthcheck

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/begin"
)

func TestARequestThatMayHaveBeenMadeKeepsTheOtherMembersWaiting(t *testing.T) {
	one, two := check("one"), check("two")
	one.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	two.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	k := newFixture(t, five(one, two)...)
	k.turn("m0", corev1.ConditionUnknown)
	k.turn("m1", corev1.ConditionUnknown)
	k.settle("one")
	k.settle("two")
	k.after(300 * time.Second)
	asked := 0
	k.fails = func(verb string, obj client.Object) error {
		if _, is := obj.(*unstructured.Unstructured); is && verb == "create" {
			asked++
			return errors.New("context deadline exceeded") // and it is made all the same, a moment later
		}
		return nil
	}
	k.reconcile("one")
	if asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
	for range 20 {
		k.after(time.Second)
		k.reconcile("two")
	}
	if asked != 1 {
		t.Errorf("%d requests may be on their way", asked)
	}
	k.after(time.Minute)
	k.reconcile("two")
	if asked != 2 {
		t.Errorf("asked %d times: what has not appeared by now is waited for no longer", asked)
	}
}

func TestAMemberWaitsForNoOtherWhoseRequestWasNotAskedFor(t *testing.T) {
	one, two := check("one"), check("two")
	one.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	two.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	k := newFixture(t, five(one, two)...)
	k.turn("m0", corev1.ConditionUnknown)
	k.turn("m1", corev1.ConditionUnknown)
	k.settle("one")
	k.settle("two")
	k.after(300 * time.Second)
	live := k.r.Requests.Live
	k.r.Requests.Live = unreadable{live}
	k.reconcile("one")
	k.r.Requests.Live = live
	k.reconcile("two")
	if len(k.made) != 1 {
		t.Errorf("%q were made", k.made)
	}
}

// unreadable is an API server that does not answer reads.
type unreadable struct{ client.Reader }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("i/o timeout")
}

// silent answers for no host; since is when it was asked.
type silent struct{ since time.Time }

func (s *silent) Of(ctx context.Context, _ *clusterv1.Machine) (host.Found, error) {
	s.since = clock.RealClock{}.Now()
	<-ctx.Done()
	return host.Found{}, ctx.Err()
}

func TestAMemberBeginsThoughItsHostAndItsRecordDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := controlPlaneOfThree(t).recording()
		hosts := &silent{}
		k.r.Metal = hosts
		k.r.Records.Installed = func(ctx context.Context, _ string) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}
		k.fails = func(verb string, obj client.Object) error {
			if _, is := obj.(*unstructured.Unstructured); is && verb == "create" && (clock.RealClock{}).Since(hosts.since) >= begin.Within {
				return context.DeadlineExceeded
			}
			return nil
		}
		k.settle("nhc")
		if len(k.made) != 1 {
			t.Errorf("%q were made", k.made)
		}
	})
}
