package inmemory

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Cache is the cache of one instance of a program. It has the objects of the server, or older ones while it lags.
type Cache struct {
	cache.Cache // nil: programs call only the methods below
	server      *Server
	// transform is applied to each object that is read or watched.
	transform func(client.Object) error

	mu        sync.Mutex
	informers map[schema.GroupVersionKind]*informer
	late      *store   // the objects of a cache that lags; nil if it does not
	missed    []Change // the changes that it has not delivered yet
}

// NewCache returns a cache of the objects of s, which applies transform to each object.
func (s *Server) NewCache(transform func(client.Object) error) *Cache {
	return &Cache{server: s, transform: transform, informers: map[schema.GroupVersionKind]*informer{}}
}

func (c *Cache) source() *store {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late != nil {
		return c.late
	}
	return c.server.store
}

// Get reads an object.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.source().Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	return c.transformed(obj)
}

// List reads objects.
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.source().List(ctx, list, opts...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(o runtime.Object) error { return c.transformed(o.(client.Object)) })
}

func (c *Cache) transformed(obj client.Object) error {
	if c.transform == nil {
		return nil
	}
	return c.transform(obj)
}

// Lag makes the cache keep the objects of now, whatever changes.
func (c *Cache) Lag() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = c.server.store.copied()
}

// CatchUp gives the cache the objects of the server, and delivers the missed changes to the handlers.
func (c *Cache) CatchUp() {
	c.mu.Lock()
	missed := c.missed
	c.late, c.missed = nil, nil
	c.mu.Unlock()
	c.hear(missed)
}

// Late reports whether the cache lags.
func (c *Cache) Late() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late != nil
}

// hear delivers changes to the handlers, or keeps them for CatchUp.
func (c *Cache) hear(changes []Change) {
	c.mu.Lock()
	if c.late != nil {
		c.missed = append(c.missed, changes...)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	for _, ch := range changes {
		c.informer(ch.Kind).hear(ch)
	}
}

func (c *Cache) informer(kind schema.GroupVersionKind) *informer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.informers[kind] == nil {
		c.informers[kind] = &informer{cache: c, kind: kind}
	}
	return c.informers[kind]
}

// GetInformer returns the informer of the kind of obj.
func (c *Cache) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	kind, err := apiutil.GVKForObject(obj, c.server.scheme)
	if err != nil {
		return nil, fmt.Errorf("find the kind to watch: %w", err)
	}
	return c.informer(kind), nil
}

// RemoveInformer removes the handlers of the kind of obj.
func (c *Cache) RemoveInformer(_ context.Context, obj client.Object) error {
	kind, err := apiutil.GVKForObject(obj, c.server.scheme)
	if err != nil {
		return fmt.Errorf("find the kind that is watched: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.informers, kind)
	return nil
}

// WaitForCacheSync returns at once: the cache is always in sync.
func (c *Cache) WaitForCacheSync(context.Context) bool { return true }

// informer is the informer of one kind.
type informer struct {
	cache.Informer // nil: programs call only the methods below
	cache          *Cache
	kind           schema.GroupVersionKind

	mu       sync.Mutex
	handlers []toolscache.ResourceEventHandler
}

// copied returns a transformed copy of an object for a handler.
func (i *informer) copied(obj client.Object) client.Object {
	shown := obj.DeepCopyObject().(client.Object)
	_ = i.cache.transformed(shown) // an object that cannot be transformed is delivered unchanged
	return shown
}

func (i *informer) hear(ch Change) {
	i.mu.Lock()
	handlers := i.handlers
	i.mu.Unlock()
	for _, h := range handlers {
		switch {
		case ch.Was == nil || ch.Is != nil && ch.Was.GetUID() != ch.Is.GetUID():
			h.OnAdd(i.copied(ch.Is), false)
		case ch.Is == nil:
			h.OnDelete(i.copied(ch.Was))
		default:
			h.OnUpdate(i.copied(ch.Was), i.copied(ch.Is))
		}
	}
}

// AddEventHandlerWithOptions adds a handler, and calls it for all existing objects.
func (i *informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	i.handlers = append(i.handlers, h)
	i.mu.Unlock()
	for _, obj := range i.cache.server.Of(i.kind) {
		h.OnAdd(i.copied(obj), true)
	}
	return synced{}, nil
}

// HasSynced returns true: the informer is always in sync.
func (i *informer) HasSynced() bool { return true }

// synced is the registration of a handler that was called for all existing objects.
type synced struct {
	toolscache.ResourceEventHandlerRegistration // nil: programs call only the methods below
}

// HasSynced returns true.
func (synced) HasSynced() bool { return true }

// queue is the work queue of a controller on a virtual clock. It returns an item only when the test calls give.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // nil: controllers call only the methods below

	clock   *clocktesting.FakePassiveClock
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	out     chan reconcile.Request
	done    chan struct{}
	ready   func() // called when the controller asks for its first item

	mu     sync.Mutex
	due    map[reconcile.Request]time.Time
	counts map[reconcile.Request]int
	ended  bool
}

func newQueue(clock *clocktesting.FakePassiveClock, limiter workqueue.TypedRateLimiter[reconcile.Request], ready func()) *queue {
	return &queue{
		clock: clock, limiter: limiter, out: make(chan reconcile.Request), done: make(chan struct{}), ready: sync.OnceFunc(ready),
		due: map[reconcile.Request]time.Time{}, counts: map[reconcile.Request]int{},
	}
}

// next returns the item that is due first and its time; of several, the one whose name comes first.
func (q *queue) next() (first reconcile.Request, at time.Time, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for item, due := range q.due {
		if !found || cmp.Or(due.Compare(at), cmp.Compare(item.Name, first.Name)) < 0 {
			first, at, found = item, due, true
		}
	}
	return first, at, found
}

// give makes the controller reconcile an item, and returns when it has.
func (q *queue) give(item reconcile.Request) {
	q.mu.Lock()
	delete(q.due, item)
	q.counts[item]++
	q.mu.Unlock()
	q.out <- item
	<-q.done
}

// Get returns the next item of give.
func (q *queue) Get() (item reconcile.Request, shutdown bool) {
	q.ready()
	item, open := <-q.out
	return item, !open
}

// Done makes give return.
func (q *queue) Done(reconcile.Request) { q.done <- struct{}{} }

// Add makes an item due.
func (q *queue) Add(item reconcile.Request) { q.AddAfter(item, 0) }

// AddAfter makes an item due after a time, unless it is due before.
func (q *queue) AddAfter(item reconcile.Request, after time.Duration) {
	at := q.clock.Now().Add(after)
	q.mu.Lock()
	defer q.mu.Unlock()
	if was, waits := q.due[item]; !waits || at.Before(was) {
		q.due[item] = at
	}
}

// AddRateLimited makes an item due after the delay of the rate limiter.
func (q *queue) AddRateLimited(item reconcile.Request) { q.AddAfter(item, q.limiter.When(item)) }

// Forget makes the limiter forget the failures of an item.
func (q *queue) Forget(item reconcile.Request) { q.limiter.Forget(item) }

// ShutDown ends the controller.
func (q *queue) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		close(q.out)
	}
	q.ended = true
}
