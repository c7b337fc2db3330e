package remediationrequest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubemend/kubemend/controllers/enqueue"
)

// Watcher starts watches; every controller is one.
type Watcher interface {
	Watch(src source.TypedSource[reconcile.Request]) error
}

// RBAC, as for Requests.
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations;hostremediationtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations;metal3remediationtemplates,verbs=list;watch

// Kinds knows which kinds of templates and requests are in use and watches them, as objects of type T: their metadata, or as much of
// them as the cache is configured to keep. Which there are is not known at compile time, and a kind may be installed after the manager started.
type Kinds[T client.Object] struct {
	cache     cache.Cache
	live      client.Reader
	namespace string
	empty     func() T
	watchers  []Watcher
	handlers  []handler.TypedEventHandler[T, reconcile.Request]
	mayWatch  MayWatch // nil: all may be watched

	mu     sync.Mutex                       // never held while a watch begins: see begin
	polled map[schema.GroupVersionKind]bool // see Polled
	known  map[schema.GroupVersionKind]cache.Informer
	// latest is the version of a kind that was begun to be watched last.
	latest map[schema.GroupKind]string
	// begun is how many of the watchers watch a kind that is not known yet, and beginning says that the next of them is just told.
	begun     map[schema.GroupVersionKind]int
	beginning map[schema.GroupVersionKind]bool
	// ending says that the watch of a kind is just ended.
	ending map[schema.GroupVersionKind]bool
	absent map[schema.GroupVersionKind]absence
	names  names
	// anybodys says that also the requests of others keep a kind watched.
	anybodys bool
	ended    int // see Ended
	clock    clock.PassiveClock
}

// absence is that a kind is not installed.
type absence struct {
	err  error
	seen time.Time
}

// believed is how long a kind that is not installed is not asked for again. Thousands of checks may name the same one.
const believed = 10 * time.Second

// NewKinds returns the kinds read through c, in one namespace or, if that is empty, in all. Before a kind is watched, live is
// asked whether it can be: an informer of a kind that may not be listed would try for ever and say nothing. Of the objects empty
// returns, such as &Metadata{}, each is read as one.
func NewKinds[T client.Object](c cache.Cache, live client.Reader, namespace string, empty func() T) *Kinds[T] {
	return &Kinds[T]{
		cache: c, live: live, namespace: namespace, empty: empty, polled: map[schema.GroupVersionKind]bool{},
		known: map[schema.GroupVersionKind]cache.Informer{}, latest: map[schema.GroupKind]string{}, begun: map[schema.GroupVersionKind]int{},
		beginning: map[schema.GroupVersionKind]bool{}, ending: map[schema.GroupVersionKind]bool{}, absent: map[schema.GroupVersionKind]absence{},
		names: newNames(), clock: clock.RealClock{},
	}
}

// NewMetadata is what kinds are watched as of which no more than metadata is read.
func NewMetadata() *Metadata { return &Metadata{} }

// GoBy makes a clock say for how long the absence of a kind is believed.
func (k *Kinds[T]) GoBy(c clock.PassiveClock) { k.clock = c }

// Notify makes w hear, through h, of changes to objects of all kinds. It must be called before the first Watch.
func (k *Kinds[T]) Notify(w Watcher, h handler.TypedEventHandler[T, reconcile.Request]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watchers = append(k.watchers, w)
	k.handlers = append(k.handlers, h)
}

// Readable reports whether the objects of a kind can be read, from the cache or, if it is polled, live. It begins no watch. The error satisfies
// Missing if the kind is not installed, and apierrors.IsForbidden if it may not be listed.
func (k *Kinds[T]) Readable(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	if informer, busy := k.informer(kind); informer != nil || busy { // others ask for it, thousands perhaps, while a controller starts
		return informer != nil && informer.HasSynced(), nil
	}
	if err := k.listable(ctx, kind); err != nil {
		k.noteUnlisted(kind, err)
		return false, err
	}
	return k.poll(ctx, kind)
}

// Watch begins to watch a kind that is listable, unless it is watched already, or polled: that may not be watched. It does not wait for the first list:
// until that was read the kind is not readable, and the events of the objects in it reach the watchers.
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

// listable asks the API server whether kind can be listed, if it did not just say that it cannot.
func (k *Kinds[T]) listable(ctx context.Context, kind schema.GroupVersionKind) error {
	k.mu.Lock()
	is, known := k.absent[kind]
	k.mu.Unlock()
	if known && k.clock.Since(is.seen) < believed {
		return is.err
	}
	_, err := k.list(ctx, kind)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.absent, kind)
	if Missing(err) {
		k.absent[kind] = absence{err: err, seen: k.clock.Now()}
	}
	return err
}

// begin makes the watchers watch kind. While one caller does that, the kind is not ready for the others.
//
// No lock is held meanwhile. A controller that starts takes no watch before its handlers have seen all objects there are, and those handlers
// ask which kinds are in use: with a lock, each would wait for the other until the manager gives up. (controller-runtime v0.24,
// pkg/internal/controller: Start holds the lock that Watch takes until every source has synced.)
func (k *Kinds[T]) begin(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	k.mu.Lock()
	informer, begun, busy := k.known[kind], k.begun[kind], k.beginning[kind] || k.ending[kind]
	if informer != nil || busy {
		k.mu.Unlock()
		return informer != nil && informer.HasSynced(), nil
	}
	k.beginning[kind] = true
	k.mu.Unlock()

	informer, begun, err := k.watch(ctx, kind, begun)
	if err == nil {
		k.dropUnserved(ctx, kind)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.beginning, kind)
	if k.begun[kind] = begun; err != nil {
		return false, fmt.Errorf("watch %s: %w", kind, err)
	}
	k.known[kind], k.latest[kind.GroupKind()] = informer, kind.Version
	return informer.HasSynced(), nil
}

// dropUnserved ends the watches of the other versions of kind that are not served any more. What was read of one stays as it was for ever, and
// counts as read: requests that are long gone would be deleted again and again, and new ones not be seen.
func (k *Kinds[T]) dropUnserved(ctx context.Context, kind schema.GroupVersionKind) {
	k.mu.Lock()
	var others []schema.GroupVersionKind
	for other := range k.known {
		if other.GroupKind() == kind.GroupKind() && other != kind {
			others = append(others, other)
		}
	}
	k.mu.Unlock()
	for _, other := range others {
		if _, err := k.list(ctx, other); Missing(err) {
			k.drop(ctx, other, func() bool { return false })
		}
	}
}

// watch tells the watchers of kind, but for the first few, which were told before one failed. It returns how many have been told by now.
func (k *Kinds[T]) watch(ctx context.Context, kind schema.GroupVersionKind, begun int) (cache.Informer, int, error) {
	obj := k.empty()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	informer, err := k.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, begun, err
	}
	for ; begun < len(k.watchers); begun++ {
		if err := k.watchers[begun].Watch(enqueue.Informed(informer, k.handlers[begun])); err != nil {
			return nil, begun, err
		}
	}
	return informer, begun, nil
}

// informer returns the informer of a kind, nil if it is not known yet, and whether a watch of it is just beginning or ending.
func (k *Kinds[T]) informer(kind schema.GroupVersionKind) (informer cache.Informer, busy bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[kind], k.beginning[kind] || k.ending[kind]
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

// InUse returns the kinds of requests that are watched and read, or polled, in a stable order; each in one of its versions, which is the one that was
// begun to be watched last: one that checks have turned away from may not be served for much longer.
func (k *Kinds[T]) InUse() []schema.GroupVersionKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	kinds := make([]schema.GroupVersionKind, 0, len(k.known))
	for kind, informer := range k.known {
		if !strings.HasSuffix(kind.Kind, TemplateSuffix) && informer.HasSynced() {
			kinds = append(kinds, kind)
		}
	}
	for kind := range k.polled {
		if !strings.HasSuffix(kind.Kind, TemplateSuffix) {
			kinds = append(kinds, kind)
		}
	}
	isLatest := func(kind schema.GroupVersionKind) int {
		if kind.Version == k.latest[kind.GroupKind()] {
			return 1
		}
		return 0
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { // the versions of a kind beside each other, since Compact sees no further
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind), isLatest(b)-isLatest(a), strings.Compare(a.Version, b.Version))
	})
	return slices.CompactFunc(kinds, func(a, b schema.GroupVersionKind) bool { return a.GroupKind() == b.GroupKind() })
}

// Unread returns the kinds of requests that are watched, or begin to be, and of which the first list was not read yet.
func (k *Kinds[T]) Unread() []schema.GroupVersionKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	var kinds []schema.GroupVersionKind
	for kind := range k.beginning {
		if !strings.HasSuffix(kind.Kind, TemplateSuffix) {
			kinds = append(kinds, kind)
		}
	}
	for kind, informer := range k.known {
		if !strings.HasSuffix(kind.Kind, TemplateSuffix) && !informer.HasSynced() {
			kinds = append(kinds, kind)
		}
	}
	return kinds
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

// KindsIn are the kinds in a list that may be kinds of requests: those with a sibling in the same group and version that is named like them,
// with the suffix Template (the contract of external remediation). Those of Kubernetes itself are none, although some are named like that, such
// as Pod and PodTemplate. They are in the order of their names.
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
			k.found(kind)
			return err
		}
	}
	return nil
}
