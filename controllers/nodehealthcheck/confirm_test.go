package nodehealthcheck

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// live replaces what is read past the caches by what the API server of another fixture shows.
func (k *fixture) live(is client.Reader) { k.r.Live, k.r.Requests.Live = is, is }

func TestANodeIsReadPastTheCacheBeforeItsFirstRequest(t *testing.T) {
	objects := func() []client.Object {
		return append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))
	}
	for name, really := range map[string]func(*fixture){
		"it is healthy": func(*fixture) {},
		"it is gone":    func(k *fixture) { k.remove(node("b", nil)) },
		"its state is not known": func(k *fixture) {
			k.client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{Get: failingGet})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, server := newFixture(t, objects()...), newFixture(t, objects()...)
			really(server)
			k.live(server.client)
			k.bad("b")
			k.reconciles("nhc")
			k.wants("the cache is behind")
			if len(k.leases()) != 0 {
				t.Errorf("leased: %v", k.leases())
			}
			k.live(k.client)
			k.settle("nhc")
			k.wants("it was right after all", "Reboot/b")
		})
	}
}

func failingGet(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("no answer")
}

// The former leader has asked for m0 a moment ago; the cache of the new one does not show it yet.
func TestANewLeaderSeesTheRequestForAMemberThatTheFormerOneMade(t *testing.T) {
	k := newFixture(t, five(check("nhc"), check("another", func(s *nhcv1.NodeHealthCheckSpec) {
		s.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	}))...)
	k.turn("m0", corev1.ConditionUnknown)
	k.after(time.Second)
	k.turn("m1", corev1.ConditionUnknown)
	k.after(299 * time.Second)
	k.settle("nhc")
	k.wants("m0 alone", "Reboot/m0")
	k.restart()
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if u, is := list.(*unstructured.UnstructuredList); is && u.GetKind() == "RebootList" {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	k.after(time.Second)
	k.reconciles("another")
	k.wants("one at a time", "Reboot/m0")
	k.r.Client = k.client
	k.remove(k.objects()[0])
	k.settle("another")
	k.wants("m0 is over", "Reboot/m1")
}
