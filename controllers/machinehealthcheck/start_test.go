package machinehealthcheck

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// While the controller that releases machines starts, it asks for each check which kinds of requests are in use, and takes no watch. At
// the same time the manager finds a request of before the start, and begins to watch its kind. Neither may wait for the other.
func TestAManagerWithARequestAndManyChecksBecomesReady(t *testing.T) {
	const checks, listing, patience = 3000, 100 * time.Microsecond, 30 * time.Second
	objects := &sourceCache{sources: map[string]*fcache.FakeControllerSource{}, informers: map[string]toolscache.SharedIndexInformer{}}
	for i := range checks {
		objects.source(&clusterv1.MachineHealthCheck{}).Add(&clusterv1.MachineHealthCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("check-", i)}, Spec: clusterv1.MachineHealthCheckSpec{ClusterName: "c1"},
		})
	}
	mgr, c := managerOf(t, objects, patience, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			<-time.After(listing) // as long as it takes to list the machines of one cluster
			return nil
		},
	})
	live := oneRequest{}
	kinds := remediationrequest.NewKinds(mgr.GetCache(), client.Reader(live), "", remediationrequest.NewMetadata)
	r := &Releaser{Client: c, Live: live, Requests: &remediationrequest.Requests{Client: c, Live: live}, Kinds: kinds, Discovery: ownKind{}}
	if err := r.SetupWithManager(mgr, controller.Options{MaxConcurrentReconciles: 10}); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithTimeout(t.Context(), 2*patience)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	for len(kinds.InUse()) == 0 { // the watch is taken when the controller has started
		select {
		case err := <-ended:
			t.Fatalf("the manager ended before it was ready: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}
}

// managerOf returns a real manager over these objects, whose controllers have so long to start. No API server stands behind it.
func managerOf(t *testing.T, objects *sourceCache, patience time.Duration, calls interceptor.Funcs) (ctrl.Manager, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(calls).Build()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{CacheSyncTimeout: patience, SkipNameValidation: ptr.To(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return objects, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return c, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr, c
}

// sourceCache is a cache with real informers, which list and watch what its sources hold.
type sourceCache struct {
	cache.Cache
	mu        sync.Mutex
	done      <-chan struct{} // of the context it runs in; nil before
	sources   map[string]*fcache.FakeControllerSource
	informers map[string]toolscache.SharedIndexInformer
}

// listed is a source that is listed first and watched then.
type listed struct{ *fcache.FakeControllerSource }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

func (c *sourceCache) source(obj client.Object) *fcache.FakeControllerSource {
	kind := fmt.Sprintf("%T", obj)
	if c.sources[kind] == nil {
		c.sources[kind] = fcache.NewFakeControllerSource()
	}
	return c.sources[kind]
}

func (c *sourceCache) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := fmt.Sprintf("%T", obj)
	informer := c.informers[kind]
	if informer == nil {
		informer = toolscache.NewSharedIndexInformer(listed{c.source(obj)}, obj, 0, toolscache.Indexers{})
		c.informers[kind] = informer
		if c.done != nil {
			go informer.Run(c.done)
		}
	}
	return informer, nil
}

func (c *sourceCache) Start(ctx context.Context) error {
	c.mu.Lock()
	c.done = ctx.Done()
	for _, informer := range c.informers {
		go informer.Run(ctx.Done())
	}
	c.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (c *sourceCache) WaitForCacheSync(ctx context.Context) bool {
	c.mu.Lock()
	synced := make([]toolscache.InformerSynced, 0, len(c.informers))
	for _, informer := range c.informers {
		synced = append(synced, informer.HasSynced)
	}
	c.mu.Unlock()
	return toolscache.WaitForCacheSync(ctx.Done(), synced...)
}

// ownKind is an API server that knows the kind HostRemediation, and takes as long to say so as one does.
type ownKind struct {
	discovery.ServerResourcesInterface
}

func (ownKind) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	<-time.After(100 * time.Millisecond)
	return []*metav1.APIResourceList{{GroupVersion: "kubemend.io/v1alpha1", APIResources: []metav1.APIResource{
		{Name: "hostremediations", Kind: "HostRemediation"}, {Name: "hostremediationtemplates", Kind: "HostRemediationTemplate"},
	}}}, nil
}

// oneRequest is an API server with one request, which bears our mark.
type oneRequest struct {
	client.Reader
}

func (oneRequest) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if requests, is := list.(*metav1.PartialObjectMetadataList); is {
		requests.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}}
	}
	return nil
}
