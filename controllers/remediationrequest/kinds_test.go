package remediationrequest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubemend/kubemend/test/must"
)

// watching is a cache that counts the watches that begin, and calls before first.
type watching struct {
	cache.Cache
	watches int
	before  func() error
}

func (w *watching) GetInformer(ctx context.Context, obj client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if err := w.before(); err != nil {
		return nil, err
	}
	w.watches++
	return w.Cache.GetInformer(ctx, obj, options...)
}

// watchesOf puts a watching in place of the cache of k.
func watchesOf(k *Kinds[*Metadata]) *watching {
	w := &watching{Cache: k.cache, before: func() error { return nil }}
	k.cache = w
	return w
}

// kindsOf returns Kinds of a cluster with these kinds and no objects.
func kindsOf(t *testing.T, kinds ...schema.GroupVersionKind) *Kinds[*Metadata] {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, kind := range kinds {
		scheme.AddKnownTypeWithName(kind, &metav1.PartialObjectMetadata{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &metav1.PartialObjectMetadataList{})
	}
	synced := true
	informers := &informertest.FakeInformers{Scheme: scheme, Synced: &synced}
	return NewKinds(cache.Cache(informers), fake.NewClientBuilder().WithScheme(scheme).Build(), "", NewMetadata)
}

func TestAWatchThatFailsIsBegunAgain(t *testing.T) {
	k := kindsOf(t, things)
	w := watchesOf(k)
	works := w.before
	w.before = func() error { return errors.New("refused") }
	if _, err := k.Ready(t.Context(), things); err == nil {
		t.Fatal("a watch that was refused is no error")
	}
	w.before = works
	ready, err := k.Ready(t.Context(), things)
	must.Do(t, err)
	must.Is(t, true, ready && w.watches == 1, "it is watched:")
}

// If Watch waited until the controller has started, the test would not end: the controller waits for a list, and the list for Watch.
func TestAWatchBeginsBeforeAndWhileItsControllerStarts(t *testing.T) {
	other := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Other"}
	k := kindsOf(t, things, other)
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	c, err := controller.NewUnmanaged("starts", controller.Options{Reconciler: nothing, SkipNameValidation: new(true)})
	starts, listed, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	list := source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		close(starts)
		<-listed
		return nil
	})
	must.Do(t, errors.Join(err, c.Watch(k.Source(handler.TypedFuncs[*Metadata, reconcile.Request]{})), c.Watch(list)))
	_, before := k.Ready(t.Context(), things)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- c.Start(ctx) }()
	<-starts
	_, meanwhile := k.Ready(t.Context(), other)
	close(listed)
	stop()
	must.Do(t, errors.Join(before, meanwhile, <-ended))
}

func TestAKindInTwoVersionsIsInUseOnce(t *testing.T) {
	of := func(version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.org", Version: version, Kind: kind}
	}
	k := kindsOf(t, of("v1", "A"), of("v1", "B"), of("v2", "A"))
	for _, kind := range []schema.GroupVersionKind{of("v1", "A"), of("v1", "B"), of("v2", "A")} {
		if ready, err := k.Ready(t.Context(), kind); err != nil || !ready {
			t.Fatal(kind, ready, err)
		}
	}
	must.Equal(t, []schema.GroupVersionKind{of("v2", "A"), of("v1", "B")}, k.InUse(), "InUse()")
}

func TestKindsOfWhichThereAreMarkedObjectsAreDiscovered(t *testing.T) {
	of := func(group, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	}
	const example = "example.org"
	ours, theirs, reboot := of(example, "Ours"), of(example, "Theirs"), of("infrastructure.cluster.x-k8s.io", "Reboot")
	marks := map[schema.GroupVersionKind]string{
		ours: "our-mark", theirs: "their-mark", reboot: "our-mark",
		of(example, "Others"): "other-mark", of(example, "Alone"): "our-mark", // without a template
		of("", "Pod"): "our-mark", of("apps", "ReplicaSet"): "our-mark", of("resource.k8s.io", "ResourceClaim"): "our-mark", // which are Kubernetes' own
	}
	k := kindsOf(t, slices.Collect(maps.Keys(marks))...)
	objects := fake.NewClientBuilder().WithScheme(k.live.(client.Client).Scheme())
	var lists []*metav1.APIResourceList
	for kind, mark := range marks {
		obj := NewMetadata()
		obj.SetGroupVersionKind(kind)
		obj.Namespace, obj.Name, obj.Labels = "ns", "n", map[string]string{mark: ""}
		objects = objects.WithObjects(obj)
		list := &metav1.APIResourceList{GroupVersion: kind.GroupVersion().String(), APIResources: []metav1.APIResource{{Name: kind.Kind, Kind: kind.Kind}}}
		if kind.Kind != "Alone" {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind.Kind + "Template", Kind: kind.Kind + "Template"})
		}
		lists = append(lists, list)
	}
	k.live = objects.Build()
	must.Do(t, k.Discover(t.Context(), lists, client.HasLabels{"our-mark"}, client.HasLabels{"their-mark"}))
	must.Equal(t, []schema.GroupVersionKind{ours, theirs, reboot}, k.InUse(), "InUse()")
}

// A check also waits for the kinds that other checks name, and such a kind may be polled.
func TestAKindThatMayNotBeWatchedIsPolledUntilItMay(t *testing.T) {
	for name, look := range map[string]func(*Kinds[*Metadata]) (bool, error){
		"by who uses it": func(k *Kinds[*Metadata]) (bool, error) { return k.Ready(context.Background(), things) },
		"by who waits for it": func(k *Kinds[*Metadata]) (bool, error) {
			_, err := k.Readable(t.Context(), things)
			err = errors.Join(err, k.Watch(t.Context(), things))
			ready, again := k.Readable(t.Context(), things)
			return ready, errors.Join(err, again)
		},
	} {
		k := kindsOf(t, things)
		w, may := watchesOf(k), false
		k.AskFirst(func(context.Context, schema.GroupVersionKind) (bool, error) { return may, nil })
		for _, row := range []struct {
			may     bool
			watches int
		}{{false, 0}, {false, 0}, {true, 1}, {false, 1}} { // what is watched is not asked about again
			may = row.may
			ready, err := look(k)
			if err != nil || !ready || w.watches != row.watches || k.Polled(things) != (row.watches == 0) {
				t.Errorf("%s, may watch: %v; ready %v, %v, %d watches, polled %v", name, may, ready, err, w.watches, k.Polled(things))
			}
			must.Equal(t, []schema.GroupVersionKind{things}, k.InUse(), "%s, in use", name)
		}
	}
}

func TestWhetherAKindMayBeWatchedIsAskedOfTheAPIServer(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(things, meta.RESTScopeNamespace)
	for name, row := range map[string]struct {
		allowed bool
		err     error
		want    bool
		fails   bool
	}{
		"it may":                          {allowed: true, want: true},
		"it may not":                      {allowed: false, want: false},
		"it may not be asked":             {err: apierrors.NewForbidden(schema.GroupResource{}, "", nil), want: true},
		"the API server does not respond": {err: errors.New("timeout"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := authorizationv1.ResourceAttributes{}
			c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
					review := obj.(*authorizationv1.SelfSubjectAccessReview)
					asked, review.Status.Allowed = *review.Spec.ResourceAttributes, row.allowed
					return row.err
				},
			}).Build()
			got, err := MayWatchAll(c, mapper)(context.Background(), things)
			if got != row.want || (err != nil) != row.fails {
				t.Errorf("got %v, %v", got, err)
			}
			if diff := cmp.Diff(authorizationv1.ResourceAttributes{Verb: "watch", Group: "example.org", Version: "v1", Resource: "things"}, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// Thousands of checks may name a kind that is not installed, and each looks for it every half minute.
func TestAKindThatIsNotInstalledIsAskedForOnce(t *testing.T) {
	k := kindsOf(t)
	asked := 0
	k.live = interceptor.NewClient(k.live.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			asked++
			return &meta.NoKindMatchError{}
		},
	})
	for range 1000 {
		if _, err := k.Ready(t.Context(), things); !Missing(err) {
			t.Fatalf("got %v, want that the kind is missing", err)
		}
	}
	if asked != 1 {
		t.Errorf("the API server was asked %d times, want once", asked)
	}
	// The author of a check may name any kind.
	for i := range 10 {
		k.GoBy(clocktesting.NewFakePassiveClock(k.clock.Now().Add(believed)))
		if _, err := k.Ready(t.Context(), things.GroupVersion().WithKind(fmt.Sprint("Thing", i))); !Missing(err) || len(k.known) != 1 {
			t.Fatalf("%d kinds are known that are not installed, %v", len(k.known), err)
		}
	}
}

// After an upgrade a provider serves only a new version, and the checks name it. The cache of the old version does not change any more.
func TestAVersionThatIsNotServedAnyMoreIsNotInUse(t *testing.T) {
	of := func(version string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.org", Version: version, Kind: "Thing"}
	}
	k := kindsOf(t, of("v1"), of("v2"))
	served := map[string]bool{"v1": true, "v2": true}
	k.live = interceptor.NewClient(k.live.(client.WithWatch), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if kind := list.GetObjectKind().GroupVersionKind(); !served[kind.Version] {
				return &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
			}
			return nil
		},
	})
	ready := func(version string) error {
		_, err := k.Ready(t.Context(), of(version))
		return err
	}
	must.Do(t, ready("v1"))
	served["v1"] = false
	must.Do(t, ready("v2"))
	must.Equal(t, []schema.GroupVersionKind{of("v2")}, k.InUse(), "InUse()")
	if err := ready("v1"); !Missing(err) {
		t.Errorf("the version that is not served is ready: %v", err)
	}
	served["v1"] = true
	k.GoBy(clocktesting.NewFakePassiveClock(k.clock.Now().Add(believed)))
	if err := ready("v1"); err != nil {
		t.Errorf("it is served again, and %v", err)
	}
}

func TestAKindOfWhichAWatchIsJustBeginningIsNotListedAgain(t *testing.T) {
	k := kindsOf(t, things)
	var lists atomic.Int64
	k.live = interceptor.NewClient(k.live.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists.Add(1)
			return nil
		},
	})
	told, begins := make(chan struct{}), make(chan struct{})
	watchesOf(k).before = func() error {
		close(told)
		<-begins
		return nil
	}
	ended := make(chan error, 1)
	go func() {
		_, err := k.Ready(context.Background(), things)
		ended <- err
	}()
	<-told
	for range 100 {
		// Nor does any caller wait for the watch.
		if ready, err := k.Ready(t.Context(), things); ready || err != nil || len(k.InUse()) > 0 {
			t.Fatal(ready, err)
		}
	}
	close(begins)
	must.Do(t, <-ended)
	if n := lists.Load(); n != 1 {
		t.Errorf("the kind is listed %d times, want once", n)
	}
}

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
