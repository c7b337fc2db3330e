package remediationrequest

import (
	"context"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// starting is a controller that takes no watch before it has started.
type starting struct{ told, started chan struct{} }

func (s starting) Watch(source.TypedSource[reconcile.Request]) error {
	close(s.told)
	<-s.started
	return nil
}

func TestAKindOfWhichAWatchIsJustBeginningIsNotListedAgain(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Thing"}
	k := kindsOf(t, kind)
	var lists atomic.Int64
	k.live = interceptor.NewClient(k.live.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists.Add(1)
			return nil
		},
	})
	w := starting{told: make(chan struct{}), started: make(chan struct{})}
	k.Notify(w, nil)
	ended := make(chan error, 1)
	go func() {
		_, err := k.Ready(context.Background(), kind)
		ended <- err
	}()
	<-w.told
	for range 100 {
		if ready, err := k.Ready(t.Context(), kind); ready || err != nil {
			t.Fatal(ready, err)
		}
	}
	close(w.started)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := lists.Load(); n != 1 {
		t.Errorf("the kind is listed %d times, want once", n)
	}
}
