package inmemory

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubemend/kubemend/test/faults"
)

// nowhere is where clients would connect to that nothing uses: a manager asks for their configuration.
var nowhere = &rest.Config{Host: "https://in-memory.invalid"}

// Manager is a manager of controller-runtime whose API server is in memory: the controllers run with the queues, watches and caches that they have in the
// binary. It is for tests in a bubble of testing/synctest, where time passes when all of them wait.
type Manager struct {
	manager.Manager
	// Writes are those of the program. Reads counts what it reads past its caches.
	Writes *faults.Writes
	Reads  *Reads
	// Recorder is where its events go.
	Recorder events.EventRecorder
	// Shown is called with each object that is read past the caches; nil for nothing.
	Shown func(client.Object)

	server *Server
	ended  chan error
	cancel func()
}

// Reads counts reads of an API server by kind, and fails those that are refused.
type Reads struct {
	mu      sync.Mutex
	counted map[string]int
	refused map[string]error
}

// Of is how many of a kind were read.
func (r *Reads) Of(kind string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counted[kind]
}

// Counted is how many of each kind were read.
func (r *Reads) Counted() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counted)
}

// All is how many there were.
func (r *Reads) All() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := 0
	for _, n := range r.counted {
		all += n
	}
	return all
}

// Refuse makes all reads of a kind fail; nil ends that.
func (r *Reads) Refuse(kind string, with error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		r.refused = map[string]error{}
	}
	r.refused[kind] = with
}

func (r *Reads) count(scheme *runtime.Scheme, obj runtime.Object) error {
	kind, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counted == nil {
		r.counted = map[string]int{}
	}
	r.counted[kind.Kind]++
	return r.refused[kind.Kind]
}

// NewManager returns a manager of s, which has to be one without a clock. options are those of its cache.
func NewManager(s *Server, options cache.Options, writes *faults.Writes, recorder events.EventRecorder) (*Manager, error) {
	m := &Manager{server: s, Writes: writes, Reads: &Reads{}, Recorder: recorder, ended: make(chan error, 1)}
	var err error
	m.Manager, err = manager.New(nowhere, manager.Options{
		Scheme:                 s.scheme,
		MapperProvider:         func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return s.mapper, nil },
		Cache:                  options,
		NewCache:               func(_ *rest.Config, o cache.Options) (cache.Cache, error) { return s.NewCache(o) },
		NewClient:              m.newClient,
		Controller:             config.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(true)},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("set up a manager in memory: %w", err)
	}
	return m, nil
}

// newClient reads from the cache but what is unstructured, as that of the binary.
func (m *Manager) newClient(_ *rest.Config, o client.Options) (client.Client, error) {
	api := m.api()
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, is := obj.(*unstructured.Unstructured); is {
				return c.Get(ctx, key, obj, opts...)
			}
			return o.Cache.Reader.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*unstructured.UnstructuredList); is {
				return c.List(ctx, list, opts...)
			}
			return o.Cache.Reader.List(ctx, list, opts...)
		},
	}), nil
}

// api is the way of the program to the API server.
func (m *Manager) api() client.WithWatch {
	return interceptor.NewClient(m.Writes.Client(m.server.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := m.Reads.count(m.server.scheme, obj); err != nil {
				return err
			}
			err := c.Get(ctx, key, obj, opts...)
			if err == nil && m.Shown != nil {
				m.Shown(obj)
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := m.Reads.count(m.server.scheme, list); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// GetAPIReader reads past the caches.
func (m *Manager) GetAPIReader() client.Reader { return m.api() }

// GetEventRecorder is the recorder of the test.
func (m *Manager) GetEventRecorder(string) events.EventRecorder { return m.Recorder }

// Discovery is that of the server.
func (m *Manager) Discovery() discovery.ServerResourcesInterface { return served{server: m.server} }

type served struct {
	discovery.ServerResourcesInterface
	server *Server
}

// ServerPreferredResources are all kinds.
func (s served) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	time.Sleep(500 * time.Millisecond) // as Run does: the kinds that are found are watched at once
	return s.server.APIs(), nil
}

// Run starts the manager with its caches of the objects filled, and returns when its controllers have started: one that starts holds a lock while it waits
// for caches, and no time passes in a bubble while another goroutine waits for that lock.
func (m *Manager) Run(ctx context.Context, cached ...client.Object) error {
	for _, obj := range cached {
		if _, err := m.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("cache %T: %w", obj, err)
		}
	}
	ctx, m.cancel = context.WithCancel(ctx)
	go func() { m.ended <- m.Start(ctx) }()
	time.Sleep(time.Second)
	return nil
}

// Kill ends the manager, and returns when all of it has ended.
func (m *Manager) Kill() error {
	m.cancel()
	return <-m.ended
}

// NewCache returns a cache of what s has: the one of controller-runtime, whose informers list and watch s.
func (s *Server) NewCache(o cache.Options) (cache.Cache, error) {
	s.mu.Lock()
	if s.streams == nil {
		s.streams = newStreams()
	}
	s.mu.Unlock()
	selectors := map[reflect.Type]labels.Selector{}
	for obj, by := range o.ByObject {
		selectors[reflect.TypeOf(obj)] = by.Label
	}
	o.Scheme, o.Mapper = s.scheme, s.mapper
	o.NewInformer = func(_ toolscache.ListerWatcher, form runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		kind, err := apiutil.GVKForObject(form, s.scheme)
		if err != nil {
			panic(err) // the cache has found it out before
		}
		return toolscache.NewSharedIndexInformer(s.follow(kind, form, selectors[reflect.TypeOf(form)]), form, resync, indexers)
	}
	return cache.New(nowhere, o)
}

func (s *Server) follow(kind schema.GroupVersionKind, form runtime.Object, selector labels.Selector) *follower {
	return &follower{server: s, kind: kind, form: form, selector: selector}
}
