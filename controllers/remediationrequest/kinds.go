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
	toolscache "k8s.io/client-go/tools/cache"
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

// Kinds finds out which kinds of templates and requests are in use, and watches them as objects of type T. The kinds are not known at
// compile time, and a kind may be installed after the manager has started.
type Kinds[T client.Object] struct {
	cache     cache.Cache
	live      client.Reader
	namespace string
	empty     func() T
	listeners []*listener[T]
	mayWatch  MayWatch // nil: all may be watched
	clock     clock.PassiveClock

	mu    sync.Mutex // not held while a watch begins: see begin
	known map[schema.GroupVersionKind]*known
	begun int // how many watches have begun
}

// known is what Kinds knows about one kind.
type known struct {
	informer  cache.Informer // nil until all listeners have it
	begun     int            // the number of its watch, in the order in which watches began
	beginning bool           // a goroutine is beginning the watch; until then the kind is not ready
	polled    bool           // see Polled
	absent    error          // why the list at asked failed; nil if the kind is installed
	asked     time.Time
}

func (k *known) synced() bool { return k.informer != nil && k.informer.HasSynced() }

// believed is how long a kind that is not installed is not looked for again, because thousands of checks may name it.
const believed = 10 * time.Second

// NewKinds returns Kinds that reads through c, in one namespace or, if it is empty, in all. Before it watches a kind, it lists the kind
// with live, because the informer of a kind that may not be listed would retry for ever and return no error. empty returns a new T for c,
// such as &Metadata{}.
func NewKinds[T client.Object](c cache.Cache, live client.Reader, namespace string, empty func() T) *Kinds[T] {
	return &Kinds[T]{
		cache: c, live: live, namespace: namespace, empty: empty, clock: clock.RealClock{},
		known: map[schema.GroupVersionKind]*known{},
	}
}

// NewMetadata returns an empty Metadata. Pass it to NewKinds for kinds of which only metadata is read.
func NewMetadata() *Metadata { return &Metadata{} }

// GoBy sets a clock in place of the real clock.
func (k *Kinds[T]) GoBy(c clock.PassiveClock) { k.clock = c }

// Source returns a source for one controller, which passes the events of all watched kinds to h. It must be called before the first Watch.
func (k *Kinds[T]) Source(h handler.TypedEventHandler[T, reconcile.Request]) source.Source {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := &listener[T]{handler: h}
	k.listeners = append(k.listeners, l)
	return source.Func(l.start)
}

// listener is a controller that gets the events of all kinds, whether their watches begin before or after the controller starts. It does
// not use Controller.Watch, which waits for a lock that Start holds until all caches have synced: if a cache waits for the caller of Watch,
// both wait for ever. (controller-runtime v0.24, pkg/internal/controller)
type listener[T client.Object] struct {
	handler handler.TypedEventHandler[T, reconcile.Request]

	mu      sync.Mutex
	add     func(source.Source) error // nil until the controller starts
	waiting []source.Source           // to be added when the controller starts
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

// of returns the entry of a kind, and adds it if it is missing. The mutex must be held.
func (k *Kinds[T]) of(kind schema.GroupVersionKind) *known {
	if k.known[kind] == nil {
		k.known[kind] = &known{}
	}
	return k.known[kind]
}

// now returns a copy of the entry of a kind.
func (k *Kinds[T]) now(kind schema.GroupVersionKind) known {
	k.mu.Lock()
	defer k.mu.Unlock()
	if entry := k.known[kind]; entry != nil {
		return *entry
	}
	return known{}
}

// Readable reports whether the objects of a kind can be read: from the cache or, if the kind is polled, from the API server. It begins no
// watch. The error satisfies Missing if the kind is not installed, and apierrors.IsForbidden if it may not be listed.
func (k *Kinds[T]) Readable(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	now := k.now(kind)
	if now.informer != nil || now.beginning { // without a request: thousands of checks may call this while a controller starts
		return now.synced(), nil
	}
	if now.absent != nil && k.clock.Since(now.asked) < believed {
		return false, now.absent
	}
	_, err := k.list(ctx, kind)
	k.mu.Lock()
	entry := k.of(kind)
	entry.absent = nil
	if Missing(err) { // forget the kinds that were absent before, because users may name any kind
		now := k.clock.Now()
		maps.DeleteFunc(k.known, func(_ schema.GroupVersionKind, other *known) bool {
			return other.absent != nil && other.informer == nil && !other.beginning && now.Sub(other.asked) >= believed
		})
		entry.absent, entry.asked = err, now
	}
	if Missing(err) || apierrors.IsForbidden(err) { // when a remediator is uninstalled, its role goes, but its CRDs often stay
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

// Watch begins to watch a kind that may be listed, unless the kind is watched already or is polled. It does not wait for the first list.
// Until then the kind is not readable; then the listeners get an event for each listed object.
func (k *Kinds[T]) Watch(ctx context.Context, kind schema.GroupVersionKind) error {
	if k.Polled(kind) {
		return nil
	}
	_, err := k.begin(ctx, kind)
	return err
}

// Ready is Readable, but also begins to watch the kind if it is neither watched nor polled.
func (k *Kinds[T]) Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	ready, err := k.Readable(ctx, kind)
	if ready || err != nil {
		return ready, err
	}
	return k.begin(ctx, kind)
}

// begin begins to watch a kind. It does not hold the mutex meanwhile, because requests to the API server may take long. For other callers
// the kind is not ready until then.
func (k *Kinds[T]) begin(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	k.mu.Lock()
	entry := k.of(kind)
	if entry.informer != nil || entry.beginning {
		defer k.mu.Unlock()
		return entry.synced(), nil
	}
	entry.beginning = true
	k.mu.Unlock()

	informer, err := k.informer(ctx, kind)
	if err == nil {
		k.dropUnserved(ctx, kind)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if entry.beginning = false; err != nil {
		k.forget(ctx, kind) // the next try adds another informer to all listeners
		return false, fmt.Errorf("watch %s: %w", kind, err)
	}
	k.begun++
	entry.informer, entry.begun = informer, k.begun
	return entry.synced(), nil
}

// informer returns the informer of a kind, and adds it to all listeners.
func (k *Kinds[T]) informer(ctx context.Context, kind schema.GroupVersionKind) (cache.Informer, error) {
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

// dropUnserved ends the watches of other versions of kind that the API server does not serve any more. The cache of such a version never
// changes but counts as synced: controllers would delete requests that are long gone again and again, and not see new requests.
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

// forget ends the watch of a kind. The mutex must be held.
func (k *Kinds[T]) forget(ctx context.Context, kind schema.GroupVersionKind) {
	delete(k.known, kind)
	obj := k.empty()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	_ = k.cache.RemoveInformer(ctx, obj) // fails only if the kind of obj is unknown, and such a kind is not watched
}

// list reads at most one object of a kind from the API server.
func (k *Kinds[T]) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]Metadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := k.live.List(ctx, list, append(options, client.InNamespace(k.namespace), client.Limit(1))...); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	return list.Items, nil
}

// kinds returns the kinds for which matches is true.
func (k *Kinds[T]) kinds(matches func(schema.GroupVersionKind, *known) bool) []schema.GroupVersionKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	var kinds []schema.GroupVersionKind
	for kind, entry := range k.known {
		if matches(kind, entry) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// InUse returns, sorted, the kinds of requests that are polled or whose watch has synced. Of several versions of a kind it returns the one
// whose watch began last, because the versions that checks used before may soon not be served any more.
func (k *Kinds[T]) InUse() []schema.GroupVersionKind {
	begun := map[schema.GroupVersionKind]int{}
	kinds := k.kinds(func(kind schema.GroupVersionKind, entry *known) bool {
		begun[kind] = entry.begun
		return !isTemplate(kind) && (entry.synced() || entry.polled)
	})
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { // CompactFunc needs the versions of a kind next to each other
		return cmp.Or(
			strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind), begun[b]-begun[a], strings.Compare(a.Version, b.Version),
		)
	})
	return slices.CompactFunc(kinds, func(a, b schema.GroupVersionKind) bool { return a.GroupKind() == b.GroupKind() })
}

// Unread returns the kinds of requests whose watch has begun but has not synced yet.
func (k *Kinds[T]) Unread() []schema.GroupVersionKind {
	return k.kinds(func(kind schema.GroupVersionKind, entry *known) bool {
		return !isTemplate(kind) && (entry.beginning || entry.informer != nil && !entry.synced())
	})
}

func isTemplate(kind schema.GroupVersionKind) bool {
	return strings.HasSuffix(kind.Kind, TemplateSuffix)
}

// Discover watches the kinds of requests in lists that have an object that one of marks selects. It is for the start of the manager: a
// check that was deleted while no manager ran can no longer name the kind of its requests.
//
// Discover skips kinds that may not be listed, because kubemend cannot have made such requests. An error of one kind does not stop the
// others.
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

// KindsIn returns, sorted, the kinds in a list that may be kinds of requests: the list also has a kind with the same name and the suffix
// Template (Cluster API, the contract of external remediation). Kinds of Kubernetes itself do not count, although some have such names, as
// Pod and PodTemplate.
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

// Cached returns the requests of a kind in a namespace from its informer, or false if the kind is not watched or not synced. It does not
// read through the cache, because that would begin a watch, also of a kind that may not be watched. The objects must not be changed.
func (k *Kinds[T]) Cached(_ context.Context, kind schema.GroupVersionKind, namespace string) (all []client.Object, has bool, err error) {
	now := k.now(kind)
	store, one := now.informer.(toolscache.SharedIndexInformer) // false for a cache of several namespaces
	if now.beginning || !one || !now.synced() {
		return nil, false, nil
	}
	objects, err := store.GetIndexer().ByIndex(toolscache.NamespaceIndex, namespace)
	if err != nil {
		return nil, false, fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
	}
	for _, o := range objects {
		if obj, known := o.(T); known {
			all = append(all, obj)
		}
	}
	return all, true, nil
}
