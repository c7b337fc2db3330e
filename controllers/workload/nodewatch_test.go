package workload

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	listwatch "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A machine can be judged by a node as soon as the cache shows it. If the node is deleted then, and the controller does not hear of it, the machine counts as
// healthy until something else happens in its cluster.
func TestAControllerHearsOfANodeThatIsDeletedAsSoonAsItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, node := listwatch.NewFakeControllerSource(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		defer server.Shutdown()
		server.Add(node)
		informer := toolscache.NewSharedIndexInformer(server, &corev1.Node{}, 0, nil)
		go informer.RunWithContext(t.Context())
		synctest.Wait()
		if !informer.HasSynced() {
			t.Fatal("the cache is not filled")
		}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		watch := NodeWatch{
			ID: "nodes", Controller: running(func(src source.TypedSource[reconcile.Request]) error { return src.Start(t.Context(), queue) }), Predicate: NodeChanges(),
			Hears: handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *corev1.Node) []reconcile.Request { return []reconcile.Request{{}} }),
		}

		if err := watch.Watch(filled{informer: informer}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for queue.Len() > 0 { // that it is there
			is, _ := queue.Get()
			queue.Done(is)
		}
		server.Delete(node)

		synctest.Wait()
		if _, shown, _ := informer.GetIndexer().GetByKey("n"); shown || queue.Len() != 1 {
			t.Errorf("shown: %t, %d requests; the deletion enqueues", shown, queue.Len())
		}
	})
}

// running is a controller that runs.
type running func(source.TypedSource[reconcile.Request]) error

// Watch starts src.
func (start running) Watch(src source.TypedSource[reconcile.Request]) error { return start(src) }

// filled is a cache of which everything was listed. A caller waits for it a tenth of a second, as for controller-runtime's.
type filled struct {
	cache.Cache
	informer toolscache.SharedIndexInformer
}

// GetInformer implements cache.Informers.
func (c filled) GetInformer(_ context.Context, _ client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	var asked cache.InformerGetOptions
	for _, option := range options {
		option(&asked)
	}
	if asked.BlockUntilSynced == nil || *asked.BlockUntilSynced {
		<-time.After(100 * time.Millisecond)
	}
	return c.informer, nil
}
