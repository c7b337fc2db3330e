package remediationrequest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubemend/kubemend/controllers/enqueue"
)

// RBAC, as for Requests.
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations;hostremediationtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations;metal3remediationtemplates,verbs=list;watch

// Kinds knows which kinds of templates and requests are in use and watches them, as objects of type T: their metadata, or as much of them
// as the cache is configured to keep. Which there are is not known at compile time, and a kind may be installed after the manager started.
type Kinds[T client.Object] struct {
	cache     cache.Cache
	live      client.Reader
	namespace string
	empty     func() T
	listeners []*listener[T]
	mayWatch  MayWatch // nil: all may be watched
	clock     clock.PassiveClock

	mu    sync.Mutex // never held while a watch begins: see begin
	known map[schema.GroupVersionKind]*known
	begun int // how many watches were begun
}

// known is what is known of one kind.
type known struct {
	informer  cache.Informer // nil until all listeners hear of it
	begun     int            // the number of its watch
	beginning bool           // its watch is just begun; for other callers the kind is not ready meanwhile
	polled    bool           // see Polled
	// absent is why it could not be listed at asked, if it is not installed.
	absent error
	asked  time.Time
}

func (k *known) synced() bool { return k.informer != nil && k.informer.HasSynced() }

// believed is how long a kind that is not installed is not asked for again. Thousands of checks may name the same one.
const believed = 10 * time.Second

// NewKinds returns the kinds read through c, in one namespace or, if that is empty, in all. Before a kind is watched, live is
// asked whether it can be: an informer of a kind that may not be listed would try for ever and say nothing. Of the objects empty
// returns, such as &Metadata{}, each is read as one.
func NewKinds[T client.Object](c cache.Cache, live client.Reader, namespace string, empty func() T) *Kinds[T] {
	return &Kinds[T]{
		cache: c, live: live, namespace: namespace, empty: empty, clock: clock.RealClock{},
		known: map[schema.GroupVersionKind]*known{},
	}
}

// NewMetadata is what kinds are watched as of which no more than metadata is read.
func NewMetadata() *Metadata { return &Metadata{} }

// GoBy makes a clock say for how long the absence of a kind is believed.
func (k *Kinds[T]) GoBy(c clock.PassiveClock) { k.clock = c }

// Source makes the controller that has it hear, through h, of changes to objects of all kinds. It must be called before the first Watch.
func (k *Kinds[T]) Source(h handler.TypedEventHandler[T, reconcile.Request]) source.Source {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := &listener[T]{handler: h}
	k.listeners = append(k.listeners, l)
	return source.Func(l.start)
}

// listener is a controller that hears of objects of all kinds, of which watches begin before it starts, meanwhile, and later.
// Controller.Watch would wait for a lock that Start holds until all caches have synced, and who calls it may be what a cache waits for.
// (controller-runtime v0.24, pkg/internal/controller)
type listener[T client.Object] struct {
	handler handler.TypedEventHandler[T, reconcile.Request]

	mu      sync.Mutex
	add     func(source.Source) error // nil until the controller starts
	waiting []source.Source           // until then
}

func (l *listener[T]) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add = func(src source.Source) error { return src.Start(ctx, queue) }
	for _, src := range l.waiting {
		if err := l.add(src); err != nil {
			return err
		}
	}
	l.waiting = nil
	return nil
}

func (l *listener[T]) hear(informer cache.Informer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	src := enqueue.Informed(informer, l.handler)
	if l.add == nil {
		l.waiting = append(l.waiting, src)
		return nil
	}
	return l.add(src)
}

// of returns what is known of a kind, to be read and changed under the lock.
func (k *Kinds[T]) of(kind schema.GroupVersionKind) *known {
	if k.known[kind] == nil {
		k.known[kind] = &known{}
	}
	return k.known[kind]
}

// now returns what is known of a kind at this moment.
func (k *Kinds[T]) now(kind schema.GroupVersionKind) known {
	k.mu.Lock()
	defer k.mu.Unlock()
	if entry := k.known[kind]; entry != nil {
		return *entry
	}
	return known{}
}

// Readable reports whether the objects of a kind can be read, from the cache or, if it is polled, live. It begins no watch. The error
// satisfies Missing if the kind is not installed, and apierrors.IsForbidden if it may not be listed.
func (k *Kinds[T]) Readable(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	now := k.now(kind)
	if now.informer != nil || now.beginning { // others ask for it, thousands perhaps, while a controller starts
		return now.synced(), nil
	}
	if now.absent != nil && k.clock.Since(now.asked) < believed {
		return false, now.absent
	}
	_, err := k.list(ctx, kind)
	k.mu.Lock()
	entry := k.of(kind)
	entry.absent = nil
	if Missing(err) { // any kind may be named: what was absent before is forgotten
		now := k.clock.Now()
		maps.DeleteFunc(k.known, func(_ schema.GroupVersionKind, other *known) bool {
			return other.absent != nil && other.informer == nil && !other.beginning && now.Sub(other.asked) >= believed
		})
		entry.absent, entry.asked = err, now
	}
	if Missing(err) || apierrors.IsForbidden(err) { // a remediator that is uninstalled takes its role away, and often leaves its kinds
		entry.polled = false
	}
	k.mu.Unlock()
	if err != nil || k.mayWatch == nil {
		return false, err
	}
	may, err := k.mayWatch(ctx, kind)
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of(kind).polled = !may
	return !may, nil
}

// Watch begins to watch a kind that is listable, unless it is watched already, or polled: that may not be watched. It does not wait for the
// first list: until that was read the kind is not readable, and the events of the objects in it reach the listeners.
func (k *Kinds[T]) Watch(ctx context.Context, kind schema.GroupVersionKind) error {
	if k.Polled(kind) {
		return nil
	}
	_, err := k.begin(ctx, kind)
	return err
}

// Ready is Readable, and begins to watch the kind if it is neither watched nor polled yet.
func (k *Kinds[T]) Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	ready, err := k.Readable(ctx, kind)
	if ready || err != nil {
		return ready, err
	}
	return k.begin(ctx, kind)
}

// begin begins to watch kind. While one caller does that, the kind is not ready for the others: to begin it asks the API server, which may
// take long.
func (k *Kinds[T]) begin(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	k.mu.Lock()
	entry := k.of(kind)
	if entry.informer != nil || entry.beginning {
		defer k.mu.Unlock()
		return entry.synced(), nil
	}
	entry.beginning = true
	k.mu.Unlock()

	informer, err := k.tell(ctx, kind)
	if err == nil {
		k.dropUnserved(ctx, kind)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if entry.beginning = false; err != nil {
		k.forget(ctx, kind) // the listeners that were told are told again, of another informer
		return false, fmt.Errorf("watch %s: %w", kind, err)
	}
	k.begun++
	entry.informer, entry.begun = informer, k.begun
	return entry.synced(), nil
}

// tell makes the listeners hear of kind.
func (k *Kinds[T]) tell(ctx context.Context, kind schema.GroupVersionKind) (cache.Informer, error) {
	obj := k.empty()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	informer, err := k.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	for _, l := range k.listeners {
		if err := l.hear(informer); err != nil {
			return nil, err
		}
	}
	return informer, nil
}

// dropUnserved ends the watches of the other versions of kind that are not served any more. What was read of one stays as it was for ever,
// and counts as read: requests that are long gone would be deleted again and again, and new ones not be seen.
func (k *Kinds[T]) dropUnserved(ctx context.Context, kind schema.GroupVersionKind) {
	for _, other := range k.kinds(func(other schema.GroupVersionKind, entry *known) bool {
		return entry.informer != nil && other.GroupKind() == kind.GroupKind() && other != kind
	}) {
		if _, err := k.list(ctx, other); Missing(err) {
			k.mu.Lock()
			if entry := k.known[other]; entry != nil && !entry.beginning {
				k.forget(ctx, other)
			}
			k.mu.Unlock()
		}
	}
}

// forget ends the watch of a kind. The mutex is held.
func (k *Kinds[T]) forget(ctx context.Context, kind schema.GroupVersionKind) {
	delete(k.known, kind)
	obj := k.empty()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	_ = k.cache.RemoveInformer(ctx, obj) // it fails for objects whose kind is unknown alone, and those are not watched
}

// list asks the API server itself for one object of a kind.
func (k *Kinds[T]) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]Metadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := k.live.List(ctx, list, append(options, client.InNamespace(k.namespace), client.Limit(1))...); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	return list.Items, nil
}

// kinds returns the kinds that are so.
func (k *Kinds[T]) kinds(so func(schema.GroupVersionKind, *known) bool) []schema.GroupVersionKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	var kinds []schema.GroupVersionKind
	for kind, entry := range k.known {
		if so(kind, entry) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// InUse returns the kinds of requests that are watched and read, or polled, in a stable order; each in one of its versions, which is the
// one that was begun to be watched last: one that checks have turned away from may not be served for much longer.
func (k *Kinds[T]) InUse() []schema.GroupVersionKind {
	begun := map[schema.GroupVersionKind]int{}
	kinds := k.kinds(func(kind schema.GroupVersionKind, entry *known) bool {
		begun[kind] = entry.begun
		return !isTemplate(kind) && (entry.synced() || entry.polled)
	})
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { // the versions of a kind beside each other, since Compact sees no further
		return cmp.Or(
			strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind), begun[b]-begun[a], strings.Compare(a.Version, b.Version),
		)
	})
	return slices.CompactFunc(kinds, func(a, b schema.GroupVersionKind) bool { return a.GroupKind() == b.GroupKind() })
}

// Unread returns the kinds of requests that are watched, or begin to be, and of which the first list was not read yet.
func (k *Kinds[T]) Unread() []schema.GroupVersionKind {
	return k.kinds(func(kind schema.GroupVersionKind, entry *known) bool {
		return !isTemplate(kind) && (entry.beginning || entry.informer != nil && !entry.synced())
	})
}

func isTemplate(kind schema.GroupVersionKind) bool {
	return strings.HasSuffix(kind.Kind, TemplateSuffix)
}

// Discover finds, of the kinds in lists, those of requests of which there are some with one of the marks, and watches them. It is for the
// start of the manager: a check that was deleted while no manager ran can no longer say of what kind its requests were.
//
// Kinds that may not be listed are passed over: no request of ours can be there. What cannot be looked at holds up nothing else, and is in
// the error.
func (k *Kinds[T]) Discover(ctx context.Context, lists []*metav1.APIResourceList, marks ...client.ListOption) error {
	var errs []error
	for _, list := range lists {
		kinds, err := KindsIn(list)
		errs = append(errs, err)
		for _, kind := range kinds {
			errs = append(errs, k.discover(ctx, schema.FromAPIVersionAndKind(list.GroupVersion, kind.Kind), marks))
		}
	}
	return errors.Join(errs...)
}

// KindsIn are the kinds in a list that may be kinds of requests: those with a sibling in the same group and version that is named like
// them, with the suffix Template (the contract of external remediation). Those of Kubernetes itself are none, although some are named like
// that, such as Pod and PodTemplate. They are in the order of their names.
func KindsIn(list *metav1.APIResourceList) ([]metav1.APIResource, error) {
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return nil, fmt.Errorf("discover kinds of remediation requests: %w", err)
	}
	if ofKubernetes(gv.Group) {
		return nil, nil
	}
	kinds := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		if subresource := strings.Contains(r.Name, "/"); !subresource {
			kinds[r.Kind] = r
		}
	}
	var found []metav1.APIResource
	for kind, r := range kinds {
		if _, templated := kinds[kind+TemplateSuffix]; templated {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b metav1.APIResource) int { return cmp.Compare(a.Kind, b.Kind) })
	return found, nil
}

func (k *Kinds[T]) discover(ctx context.Context, kind schema.GroupVersionKind, marks []client.ListOption) error {
	for _, mark := range marks {
		marked, err := k.list(ctx, kind, mark)
		switch {
		case apierrors.IsForbidden(err), Missing(err):
			return nil
		case err != nil:
			return err
		case len(marked) > 0:
			_, err = k.Ready(ctx, kind)
			return err
		}
	}
	return nil
}
