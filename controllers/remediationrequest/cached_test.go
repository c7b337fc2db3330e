package remediationrequest

import (
	"context"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var things = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Thing"}

// stored is a cache with one informer, which may not have synced.
type stored struct {
	cache.Cache
	toolscache.SharedIndexInformer
	store  toolscache.Indexer
	synced bool
}

func (s *stored) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return s, nil
}
func (s *stored) RemoveInformer(context.Context, client.Object) error { return nil }
func (s *stored) GetIndexer() toolscache.Indexer                      { return s.store }
func (s *stored) HasSynced() bool                                     { return s.synced }
func (s *stored) AddIndexers(indexers toolscache.Indexers) error {
	return s.store.AddIndexers(indexers)
}

func TestRequestsAreReadFromTheStoreOfAWatch(t *testing.T) {
	indexers := toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}
	is := &stored{store: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers)}
	for _, name := range []string{"ns/a", "ns/b", "elsewhere/c"} {
		namespace, name, _ := toolscache.SplitMetaNamespaceKey(name)
		must.Do(t, is.store.Add(&Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
	}
	k := kindsOf(t, things)
	k.cache = is
	cached := func() (int, bool) {
		all, has, err := k.Cached(t.Context(), things, "ns")
		must.Do(t, err)
		return len(all), has
	}
	if _, has := cached(); has {
		t.Error("a kind that is not watched is in the cache")
	}
	must.Do(t, k.Watch(t.Context(), things))
	if _, has := cached(); has {
		t.Error("a kind whose first list was not read is in the cache")
	}
	is.synced = true
	if all, has := cached(); all != 2 || !has {
		t.Errorf("the cache has %d requests, %t; want 2", all, has)
	}
	k.forget(t.Context(), things)
	if _, has := cached(); has {
		t.Error("a kind whose watch has ended is in the cache")
	}
}
