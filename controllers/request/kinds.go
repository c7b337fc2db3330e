package request

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Watcher starts watches; every controller is one.
type Watcher interface {
	Watch(src source.TypedSource[reconcile.Request]) error
}

// Kinds knows which kinds of templates and requests are in use and watches their metadata. Which
// there are is not known at compile time, and a kind may be installed after the manager started.
type Kinds struct {
	cache    cache.Cache
	watchers []Watcher
	handlers []handler.TypedEventHandler[*Metadata, reconcile.Request]

	mu    sync.Mutex
	known map[schema.GroupVersionKind]cache.Informer
}

// NewKinds returns the kinds read through c.
func NewKinds(c cache.Cache) *Kinds {
	return &Kinds{cache: c, known: map[schema.GroupVersionKind]cache.Informer{}}
}

// Notify makes w hear, through h, of changes to objects of all kinds. It must be called before the first Ready.
func (k *Kinds) Notify(w Watcher, h handler.TypedEventHandler[*Metadata, reconcile.Request]) {
	k.watchers = append(k.watchers, w)
	k.handlers = append(k.handlers, h)
}

// Ready reports whether kind can be read from the cache, and begins to watch it if it is not watched
// yet. It does not wait: while the first list is being read it returns false, and the
// events of the objects in it wake the watchers. The error satisfies Missing if the kind is not installed.
func (k *Kinds) Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if informer, found := k.known[kind]; found {
		return informer.HasSynced(), nil
	}
	obj := &Metadata{}
	obj.SetGroupVersionKind(kind)
	informer, err := k.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return false, fmt.Errorf("watch %s: %w", kind, err)
	}
	for i, w := range k.watchers {
		if err := w.Watch(source.TypedKind(k.cache, obj, k.handlers[i])); err != nil {
			return false, fmt.Errorf("watch %s: %w", kind, err)
		}
	}
	k.known[kind] = informer
	return informer.HasSynced(), nil
}

// InUse returns the kinds of requests that are watched and read, in a stable order.
func (k *Kinds) InUse() []schema.GroupVersionKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	kinds := make([]schema.GroupVersionKind, 0, len(k.known))
	for kind, informer := range k.known {
		if !strings.HasSuffix(kind.Kind, TemplateSuffix) && informer.HasSynced() {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

// Discover finds the kinds of which there are requests with our mark, and watches them. It is for the start of the
// manager: a check that was deleted while nobody ran can no longer say of what kind its requests were.
//
// A kind of requests is one that has a sibling named like it with the suffix Template, in the same group and version
// (the contract of external remediation). Kinds that may not be listed are passed over: no request of ours can be there.
func (k *Kinds) Discover(ctx context.Context, api discovery.ServerResourcesInterface, live client.Reader, namespace string) error {
	lists, err := api.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("discover kinds of remediation requests: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("discover kinds of remediation requests: %w", err)
		}
		for _, name := range withTemplate(list.APIResources) {
			if err := k.discover(ctx, live, gv.WithKind(name), namespace); err != nil {
				return err
			}
		}
	}
	return nil
}

func withTemplate(resources []metav1.APIResource) []string {
	kinds := sets.New[string]()
	for _, r := range resources {
		if r.Namespaced && !strings.Contains(r.Name, "/") {
			kinds.Insert(r.Kind)
		}
	}
	var found []string
	for kind := range kinds {
		if kinds.Has(kind + TemplateSuffix) {
			found = append(found, kind)
		}
	}
	slices.Sort(found)
	return found
}

func (k *Kinds) discover(ctx context.Context, live client.Reader, kind schema.GroupVersionKind, namespace string) error {
	marked := &metav1.PartialObjectMetadataList{}
	marked.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := live.List(ctx, marked, client.InNamespace(namespace), client.HasLabels{mendv1.MadeByUIDLabel}, client.Limit(1))
	if apierrors.IsForbidden(err) || Missing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for requests of kind %s: %w", kind, err)
	}
	if len(marked.Items) == 0 {
		return nil
	}
	_, err = k.Ready(ctx, kind)
	return err
}
