package inmemory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/test/faults"
)

// horizon is how far ahead Settle waits for an item, such as a retry. It is less than the time that tests let pass.
const horizon = time.Second

// most is how many reconciles a program may need to settle.
const most = 500

// Instance is one run of a program, from its start to its end or a crash.
type Instance struct {
	manager.Manager
	Cache *Cache
	// Client reads from the cache and writes to the server.
	Client client.WithWatch
	// Live reads from the server.
	Live client.Reader

	server    *Server
	logger    logr.Logger
	queue     *queue
	started   chan struct{}
	runnables []manager.Runnable
	stop      func()
	ended     chan error
}

// Program is a manager with one controller.
type Program struct {
	Server *Server
	// SetUp sets up the controller in a new instance, with these options.
	SetUp func(i *Instance, options controller.Options) error
	// Transform is applied to the objects of the cache; nil for none.
	Transform func(client.Object) error
	Logger    logr.Logger
	// Writes are the writes of the program, which may fail.
	Writes faults.Writes
	// Restarts makes the program start again at once after a crash.
	Restarts bool
	// AfterReconcile is called after each reconcile; nil for nothing.
	AfterReconcile func() error

	Instance *Instance // nil while the program does not run
	// Reconciles is the number of reconciles of all instances, Starts the number of instances.
	Reconciles, Starts int
}

// Start starts an instance. It reconciles nothing until Settle.
func (p *Program) Start() error {
	p.Server.take() // its handlers get the existing objects when they are added
	i := &Instance{server: p.Server, logger: p.Logger, started: make(chan struct{}), ended: make(chan error, 1)}
	i.Cache = p.Server.NewCache(p.Transform)
	api := p.Writes.Client(p.Server)
	i.Client, i.Live = Cached(api, i.Cache, &p.Writes), api
	options := controller.Options{NewQueue: i.newQueue}
	if err := p.SetUp(i, options); err != nil {
		return fmt.Errorf("set the program up: %w", err)
	}
	var ctx context.Context
	ctx, i.stop = context.WithCancel(context.Background())
	p.Instance, p.Starts = i, p.Starts+1
	others := i.runnables[:0:0]
	for _, r := range i.runnables {
		if c, is := r.(controller.Controller); is {
			go func() { i.ended <- c.Start(ctx) }()
			continue
		}
		others = append(others, r)
	}
	select {
	case <-i.started:
	case err := <-i.ended:
		return fmt.Errorf("start the program: %w", err)
	}
	for _, r := range others { // other runnables end at once
		if err := r.Start(ctx); err != nil {
			return fmt.Errorf("start the program: %w", err)
		}
	}
	return nil
}

// Kill ends the instance.
func (p *Program) Kill() error {
	i := p.Instance
	if i == nil {
		return nil
	}
	p.Instance = nil
	i.stop()
	if err := <-i.ended; err != nil {
		return fmt.Errorf("end the program: %w", err)
	}
	return nil
}

// Restart kills the instance, if there is one, and starts another.
func (p *Program) Restart() error {
	if err := p.Kill(); err != nil {
		return err
	}
	p.Writes.Restart()
	return p.Start()
}

// Settle lets the program reconcile until nothing is due within horizon.
func (p *Program) Settle() error {
	for reconciles := 0; p.Instance != nil; reconciles++ {
		if reconciles > most {
			return errors.New("the program does not come to rest")
		}
		i := p.Instance
		i.Cache.hear(p.Server.take())
		item, at, found := i.queue.next()
		now := p.Server.Clock.Now()
		if !found || at.Sub(now) > horizon {
			return nil
		}
		if at.After(now) {
			p.Server.Clock.SetTime(at)
		}
		if err := p.Reconcile(item); err != nil {
			return err
		}
	}
	return nil
}

// Reconcile makes the controller reconcile an item, even if it is not due.
func (p *Program) Reconcile(item reconcile.Request) error {
	p.Instance.queue.give(item)
	p.Reconciles++
	if p.AfterReconcile != nil {
		if err := p.AfterReconcile(); err != nil {
			return err
		}
	}
	if p.Restarts && p.Writes.Crashed() {
		return p.Restart()
	}
	return nil
}

// Step settles, moves the clock at once by d, and settles again.
func (p *Program) Step(d time.Duration) error {
	if err := p.Settle(); err != nil {
		return err
	}
	p.Server.Clock.SetTime(p.Server.Clock.Now().Add(d))
	return p.Settle()
}

// Walk moves the clock by d in steps: the program reconciles each item when it is due.
func (p *Program) Walk(d time.Duration) error {
	until := p.Server.Clock.Now().Add(d)
	for {
		if err := p.Settle(); err != nil {
			return err
		}
		var at time.Time
		found := false
		if p.Instance != nil {
			_, at, found = p.Instance.queue.next()
		}
		if !found || at.After(until) {
			if p.Server.Clock.Now().Before(until) {
				p.Server.Clock.SetTime(until)
			}
			return p.Settle()
		}
		p.Server.Clock.SetTime(at)
	}
}

// Lag makes the cache keep the objects of now, until CatchUp.
func (p *Program) Lag() {
	p.Instance.Cache.hear(p.Server.take())
	p.Instance.Cache.Lag()
}

// CatchUp ends Lag.
func (p *Program) CatchUp() { p.Instance.Cache.CatchUp() }

// Counts returns how often this instance has reconciled each item.
func (p *Program) Counts() map[reconcile.Request]int {
	p.Instance.queue.mu.Lock()
	defer p.Instance.queue.mu.Unlock()
	return maps.Clone(p.Instance.queue.counts)
}

// Cached returns a client that writes through c and reads from a cache. Reads fail once the program has crashed.
func Cached(c client.WithWatch, from *Cache, writes *faults.Writes) client.WithWatch {
	return cached{c, from, writes}
}

// cached is the client of Cached.
type cached struct {
	client.WithWatch
	cache  *Cache
	writes *faults.Writes
}

// Get reads from the cache.
func (c cached) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if c.writes.Crashed() {
		return faults.ErrCrashed
	}
	return c.cache.Get(ctx, key, obj, opts...)
}

// List reads from the cache.
func (c cached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if c.writes.Crashed() {
		return faults.ErrCrashed
	}
	return c.cache.List(ctx, list, opts...)
}

func (i *Instance) newQueue(_ string,
	limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	i.queue = newQueue(i.server.Clock, limiter, func() { close(i.started) })
	return i.queue
}

// Add collects what the manager shall run.
func (i *Instance) Add(r manager.Runnable) error {
	i.runnables = append(i.runnables, r)
	return nil
}

// GetControllerOptions allows several controllers of one name.
func (i *Instance) GetControllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: ptr.To(true)}
}

// GetCache returns the cache.
func (i *Instance) GetCache() cache.Cache { return i.Cache }

// GetScheme returns the scheme of the server.
func (i *Instance) GetScheme() *runtime.Scheme { return i.server.scheme }

// GetRESTMapper returns the mapper of the server.
func (i *Instance) GetRESTMapper() meta.RESTMapper { return i.server.mapper }

// GetLogger returns the logger of the program.
func (i *Instance) GetLogger() logr.Logger { return i.logger }
