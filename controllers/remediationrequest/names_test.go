package remediationrequest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var (
	things    = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Thing"}
	templates = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "ThingTemplate"}
	aCheck    = types.NamespacedName{Namespace: "ns", Name: "a"}
	another   = types.NamespacedName{Namespace: "ns", Name: "b"}
)

// listing is a cache that lists what a client has. It has an informer for each kind that is watched.
type listing struct {
	*informertest.FakeInformers
	client.Reader
	informers map[schema.GroupVersionKind]cache.Informer
}

func (l listing) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	l.informers[obj.GetObjectKind().GroupVersionKind()] = controllertest.NewFakeInformer(controllertest.Synced)
	return l.informers[obj.GetObjectKind().GroupVersionKind()], nil
}

func (l listing) RemoveInformer(_ context.Context, obj client.Object) error {
	delete(l.informers, obj.GetObjectKind().GroupVersionKind())
	return nil
}

func (l listing) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return l.Reader.Get(ctx, key, obj, opts...)
}

func (l listing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.Reader.List(ctx, list, opts...)
}

// listed are those kinds, whose cache sees what the API server has. The latter is counted how often it is asked.
func listed(t *testing.T, asked *int, kinds ...schema.GroupVersionKind) (*Kinds[*Metadata], client.WithWatch) {
	t.Helper()
	k := kindsOf(t, kinds...)
	c := k.live.(client.WithWatch)
	k.cache = listing{k.cache.(*informertest.FakeInformers), c, map[schema.GroupVersionKind]cache.Informer{}}
	k.live = interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		*asked++
		return c.List(ctx, list, o...)
	}})
	return k, c
}

// nameAndWatch makes a check name kinds, and watches them.
func (k *Kinds[T]) nameAndWatch(t *testing.T, check types.NamespacedName, kinds ...schema.GroupVersionKind) {
	t.Helper()
	if err := k.Named(t.Context(), check, kinds...); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		if ready, err := k.Ready(t.Context(), kind); !ready || err != nil {
			t.Fatalf("%s is ready: %v, %v", kind, ready, err)
		}
	}
}

// watched says which kinds k watches, and whether the cache does.
func (k *Kinds[T]) watched(t *testing.T) map[string]bool {
	t.Helper()
	is := map[string]bool{}
	for _, kind := range k.kinds(func(_ schema.GroupVersionKind, is *known) bool { return is.informer != nil }) {
		is[kind.Kind] = true
	}
	if inCache := len(k.cache.(listing).informers); inCache != len(is) {
		t.Errorf("the cache has %d informers, and %v are known", inCache, is)
	}
	return is
}

func marked(name string) *Metadata {
	req := &Metadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, Labels: map[string]string{mendv1.MadeByUIDLabel: "uid"}, Annotations: map[string]string{mendv1.MadeByAnnotation: "a"},
	}}
	req.SetGroupVersionKind(things)
	return req
}

func TestTheWatchOfAKindEndsWithTheLastCheckThatNamesIt(t *testing.T) {
	asked := 0
	k, _ := listed(t, &asked, things, templates)
	w := &watcher{}
	k.Notify(w, nil)
	k.nameAndWatch(t, aCheck, templates, things)
	k.nameAndWatch(t, another, templates, things)
	k.nameAndWatch(t, another)
	if diff := cmp.Diff(map[string]bool{"Thing": true, "ThingTemplate": true}, k.watched(t)); diff != "" {
		t.Errorf("while one names them (-want +got):\n%s", diff)
	}
	k.nameAndWatch(t, aCheck)
	if diff := cmp.Diff(map[string]bool{}, k.watched(t)); diff != "" {
		t.Errorf("when no check names them (-want +got):\n%s", diff)
	}
	k.nameAndWatch(t, aCheck, templates, things)
	if diff := cmp.Diff(map[string]bool{"Thing": true, "ThingTemplate": true}, k.watched(t)); diff != "" || w.watches != 4 {
		t.Errorf("when one names them again, with %d watches, want 2 twice (-want +got):\n%s", w.watches, diff)
	}
}

// A node of the control plane that somebody else remediates keeps NodeHealthChecks from another one.
func TestAKindIsWatchedUntilTheLastRequestThatCountsIsGone(t *testing.T) {
	named := func(k *Kinds[*Metadata]) error {
		k.nameAndWatch(t, aCheck, templates, things)
		return nil
	}
	for name, tc := range map[string]struct {
		begins         func(*Kinds[*Metadata]) error
		others, counts bool
		watched        bool
	}{
		"that of a check":                       {begins: named, watched: true},
		"that of others, where it counts":       {begins: named, others: true, counts: true, watched: true},
		"not that of others, where it does not": {begins: named, others: true},
		"that of a check, of a kind that was found": {begins: func(k *Kinds[*Metadata]) error {
			list := &metav1.APIResourceList{GroupVersion: "example.org/v1", APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing"}, {Name: "ts", Kind: "ThingTemplate"}}}
			return k.Discover(t.Context(), []*metav1.APIResourceList{list}, client.HasLabels{mendv1.MadeByUIDLabel})
		}, watched: true},
	} {
		t.Run(name, func(t *testing.T) {
			k, c := listed(t, new(int), things, templates)
			if tc.counts {
				k.KeepWhileAny()
			}
			req := marked("m")
			if tc.others {
				req.Labels, req.Annotations = nil, nil
			}
			if err := errors.Join(c.Create(t.Context(), req), tc.begins(k)); err != nil {
				t.Fatal(err)
			}
			k.nameAndWatch(t, aCheck)
			if watched := k.watched(t); watched["Thing"] != tc.watched || watched["ThingTemplate"] {
				t.Errorf("while there is one, %v are watched", watched)
			}
			if err := c.Delete(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			k.nameAndWatch(t, aCheck)
			k.nameAndWatch(t, another) // woken by its deletion
			if diff := cmp.Diff(map[string]bool{}, k.watched(t)); diff != "" {
				t.Errorf("when it is gone (-want +got):\n%s", diff)
			}
		})
	}
}

// The cache may be behind: what a reconcile made a moment ago is to be deleted by the next one, which has to see it.
func TestARequestThatTheCacheHasNotSeenKeepsTheWatch(t *testing.T) {
	asked := 0
	k, _ := listed(t, &asked, things, templates)
	k.nameAndWatch(t, aCheck, templates, things)
	_, behind := listed(t, new(int), things)
	if err := k.live.(client.Client).Create(t.Context(), marked("m")); err != nil {
		t.Fatal(err)
	}
	is := k.cache.(listing)
	k.cache = listing{is.FakeInformers, behind, is.informers}
	k.nameAndWatch(t, aCheck)
	if diff := cmp.Diff(map[string]bool{"Thing": true}, k.watched(t)); diff != "" {
		t.Errorf("what is watched (-want +got):\n%s", diff)
	}
}

func TestNothingIsReadWhileTheSameKindsAreNamed(t *testing.T) {
	asked := 0
	k, _ := listed(t, &asked, things, templates)
	k.nameAndWatch(t, aCheck, templates, things)
	asked = 0
	for range 100 {
		k.nameAndWatch(t, aCheck, templates, things)
		k.nameAndWatch(t, another)
	}
	if asked != 0 {
		t.Errorf("the API server was asked %d times, want never", asked)
	}
}

// Controllers of hosts read them from the same cache.
func TestTheKindsThatKubemendServesStayWatched(t *testing.T) {
	own, metal3 := mendv1.GroupVersion.WithKind("HostRemediation"), infrav1.GroupVersion.WithKind("Metal3Remediation")
	k, _ := listed(t, new(int), own, metal3)
	k.nameAndWatch(t, aCheck, own, metal3)
	k.nameAndWatch(t, aCheck)
	if diff := cmp.Diff(map[string]bool{"HostRemediation": true, "Metal3Remediation": true}, k.watched(t)); diff != "" {
		t.Errorf("what is watched (-want +got):\n%s", diff)
	}
}

// stored is a cache with the store of one informer, which may not have read its first list.
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
	is := &stored{store: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})}
	for _, name := range []string{"ns/a", "ns/b", "elsewhere/c"} {
		namespace, name, _ := toolscache.SplitMetaNamespaceKey(name)
		if err := is.store.Add(&Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	k := kindsOf(t, things)
	k.cache = is
	cached := func() (int, bool) {
		all, has, err := k.Cached(t.Context(), things, "ns")
		if err != nil {
			t.Fatal(err)
		}
		return len(all), has
	}
	if _, has := cached(); has {
		t.Error("a kind that is not watched is in the cache")
	}
	if err := k.Named(t.Context(), aCheck, things); err != nil {
		t.Fatal(err)
	}
	if err := k.Watch(t.Context(), things); err != nil {
		t.Fatal(err)
	}
	if _, has := cached(); has {
		t.Error("a kind whose first list was not read is in the cache")
	}
	is.synced = true
	if all, has := cached(); all != 2 || !has {
		t.Errorf("the cache has %d requests, %t; want 2", all, has)
	}
	k.drop(t.Context(), things, false)
	if _, has := cached(); has {
		t.Error("a kind whose watch has ended is in the cache")
	}
}
