package workload

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/clockerror"
)

// nodesOnly maps the one kind that is asked for here, so that no server is asked for others.
func nodesOnly() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return mapper
}

// oneServer is a ClusterCache whose clusters are all at one address, and answer probes.
type oneServer struct {
	clustercache.ClusterCache
	config *rest.Config
}

func (s oneServer) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return s.config, nil
}

func (s oneServer) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return client.New(s.config, client.Options{Mapper: nodesOnly()})
}

func (oneServer) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error { return nil }

func (oneServer) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{}
}

// hanging is an API server that answers nothing while it hangs.
type hanging struct {
	*httptest.Server
	asked atomic.Int32

	mu sync.Mutex
	on chan struct{}
}

func hangs(t *testing.T) *hanging {
	t.Helper()
	h := &hanging{on: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		h.mu.Lock()
		on := h.on
		h.mu.Unlock()
		select {
		case <-on:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[]}`))
	}))
	t.Cleanup(func() { h.goOn(); h.Close() })
	return h
}

// goOn makes it answer all that it was asked, and will be.
func (h *hanging) goOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.on:
	default:
		close(h.on)
	}
}

var gated = client.ObjectKey{Namespace: "ns", Name: "c"}

// gatedClusters are clusters that are all at one server, whose circuits go by a clock of the test.
func gatedClusters(server *hanging) (*Clusters, *testclock.FakeClock) {
	clock := testclock.NewFakeClock(noon.Time)
	gates := &Gates{ClusterCache: oneServer{config: &rest.Config{Host: server.URL, QPS: -1}}, Clock: clock}
	c := NewClusters(gates)
	c.Gates = gates
	return c, clock
}

func TestAServerThatHangsHoldsAFewWorkersOnce(t *testing.T) {
	server := hangs(t)
	clusters, clock := gatedClusters(server)
	ask := func(ctx context.Context) error {
		_, err := clusters.NodesExist(ctx, gated, []string{"n"})
		return err
	}
	const workers = 50
	asking, giveUp := context.WithCancelCause(t.Context())
	ended := make(chan error, workers)
	for range workers {
		go func() { ended <- ask(asking) }()
	}
	eventually(t, "some are asking and the others queue", func() bool {
		return server.asked.Load() == atOnce && clock.Waiters() == atOnce // those that are asking may become slow
	})
	clock.Step(slowAfter)
	for range workers - atOnce {
		if err := <-ended; !errors.Is(err, ErrSilent) {
			t.Fatalf("a worker that queues hears %v", err)
		}
	}
	clock.Step(AnswerWithin - slowAfter)
	giveUp(context.DeadlineExceeded)
	for range atOnce {
		<-ended
	}
	for range workers {
		if err := ask(t.Context()); !errors.Is(err, ErrSilent) {
			t.Fatalf("a worker that asks after that hears %v", err)
		}
	}
	if got := server.asked.Load(); got != atOnce {
		t.Errorf("the server was asked %d times, want %d", got, atOnce)
	}
	server.goOn()
	clock.Step(firstPause)
	for range 2 {
		if err := ask(t.Context()); errors.Is(err, ErrSilent) {
			t.Error("it answers again, and is not asked")
		}
	}
}

// client-go would try ten times, and sleep in between with the worker, past all that is counted here.
func TestAServerThatSaysTryAgainLaterHoldsNoWorkerUntilThen(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"by Retry-After": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"while it shuts down": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"by ending the connection": func(w http.ResponseWriter, _ *http.Request) {
			if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = connection.Close()
			}
		},
		"by a reset": func(w http.ResponseWriter, _ *http.Request) {
			if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = connection.(*net.TCPConn).SetLinger(0)
				_ = connection.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Add(1); answer(w, r) }))
			defer server.Close()
			clusters := NewClusters(&Gates{ClusterCache: oneServer{config: &rest.Config{Host: server.URL, QPS: -1}}, Clock: testclock.NewFakeClock(noon.Time)})
			ctx, done := context.WithTimeout(t.Context(), time.Minute/2)
			defer done()
			if _, err := clusters.NodesExist(ctx, gated, []string{"n"}); err == nil || ctx.Err() != nil || asked.Load() != 1 {
				t.Errorf("asked %d times, %v", asked.Load(), err)
			}
		})
	}
}

func TestAServerThatAnswersAByteASecondIsOneThatHangs(t *testing.T) {
	clock := testclock.NewFakeClock(noon.Time)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		for bytes := time.NewTicker(time.Millisecond); r.Context().Err() == nil; <-bytes.C {
			clock.Step(time.Second)
			if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	}))
	defer server.Close()
	gates := &Gates{ClusterCache: oneServer{config: &rest.Config{Host: server.URL, Timeout: 50 * time.Millisecond}}, Clock: clock}
	clusters := NewClusters(gates)
	for range lost {
		if _, err := clusters.NodesExist(t.Context(), gated, []string{"n"}); err == nil || errors.Is(err, ErrSilent) {
			t.Fatalf("it has answered: %v", err)
		}
	}
	if _, err := clusters.NodesExist(t.Context(), gated, []string{"n"}); !errors.Is(err, ErrSilent) {
		t.Errorf("the circuit is not open: %v", err)
	}
}

func TestAServerThatAnswersWithoutEndIsOneThatHangs(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"an endless object": func(w http.ResponseWriter, r *http.Request) {
			for err := error(nil); err == nil && r.Context().Err() == nil; {
				_, err = w.Write(make([]byte, 1<<10))
			}
		},
		"an answer that says how long it is": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(1<<40))
			w.WriteHeader(http.StatusOK)
		},
		"an answer that is far larger once it is decoded": func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, `{"kind":"PartialObjectMetadata","metadata":{"managedFields":[{}`+strings.Repeat(",{}", 10_000)+"]}}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(answer)
			defer server.Close()
			clock := testclock.NewFakeClock(noon.Time)
			transports := routed(t, gated, server, &Transports{Limit: 1 << 20, Clock: clock})
			clusters := NewClusters(&Gates{ClusterCache: oneServer{config: &rest.Config{Host: "http://" + hostOf(gated), Transport: transports}}, Clock: clock})
			for i := range lost {
				if _, err := clusters.NodesExist(t.Context(), gated, []string{strconv.Itoa(i)}); err == nil || errors.Is(err, ErrSilent) {
					t.Fatalf("it has answered: %v", err)
				}
			}
			if _, err := clusters.NodesExist(t.Context(), gated, []string{"n"}); !errors.Is(err, ErrSilent) {
				t.Errorf("the circuit is not open: %v", err)
			}
		})
	}
}

// cachedView fills the cache of a cluster's nodes, and returns what views the cluster.
func cachedView(t *testing.T, clusters *Clusters, now *testclock.FakeClock) func() View {
	t.Helper()
	_, cache := informerOf(&corev1.Node{})
	go cache.Run(t.Context().Done())
	eventually(t, "the nodes are cached", cache.HasSynced)
	clusters.keep(gated, cache.SharedIndexInformer)
	return func() View {
		v, err := clusters.View(t.Context(), gated, now.Now())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestAClusterWhoseNodesWereCutOffIsDownUntilTheyAreAskedForAgain(t *testing.T) {
	server := hangs(t)
	server.goOn()
	clusters, clock := gatedClusters(server)
	transports := &Transports{Clock: clock, routes: map[string]*route{hostOf(gated): {answers: &answers{}}}}
	clusters.Kubeconfigs = &Kubeconfigs{Transports: transports}
	look := cachedView(t, clusters, clock)
	if v := look(); v.Link != Up {
		t.Fatalf("before: %+v", v)
	}
	transports.routes[hostOf(gated)].answers.cutOff(clock.Now())
	if v := look(); v.Link != Down || !v.Silent || v.Recheck == 0 {
		t.Errorf("what its cache shows may be old: %+v", v)
	}
	clock.Step(firstPause)
	if v := look(); v.Link != Up || server.asked.Load() != 1 {
		t.Errorf("once a list has shown that it is not: %+v, asked %d times", v, server.asked.Load())
	}
}

func TestAClusterThatAnswersProbesAloneIsDown(t *testing.T) {
	server := hangs(t)
	clusters, clock := gatedClusters(server)
	look := cachedView(t, clusters, clock)
	if v := look(); v.Link != Up {
		t.Fatalf("a cluster that was not asked yet: %+v", v)
	}
	clusters.Gates.gate(gated).circuit = circuit{open: true, pause: pause{}.next(clock.Now())}
	if v := look(); v.Link != Down || !v.Silent || v.Recheck == 0 || server.asked.Load() != 0 {
		t.Errorf("while its circuit is open: %+v, asked %d times", v, server.asked.Load())
	}
	clock.Step(firstPause)
	server.goOn()
	if v := look(); v.Link != Up || server.asked.Load() == 0 {
		t.Errorf("once it has answered a trial: %+v, asked %d times", v, server.asked.Load())
	}
	if v := look(); v.Link != Up || v.Silent {
		t.Errorf("after that: %+v", v)
	}
}

// Its last answer may be old, or that of a proxy, and what is judged meanwhile was not written by its clock.
func TestTheClockOfAClusterOutOfReachStopsNoCheck(t *testing.T) {
	server := hangs(t)
	clusters, clock := gatedClusters(server)
	answers := &answers{clock: clockerror.Server{Namespace: gated.Namespace, Cluster: gated.Name}}
	defer answers.clock.Forget()
	answers.clock.Note(clock.Now(), clock.Now(), http.Header{"Date": {clock.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)}})
	routes := map[string]*route{hostOf(gated): {answers: answers}}
	clusters.Kubeconfigs = &Kubeconfigs{Transports: &Transports{Clock: clock, routes: routes}}
	look := cachedView(t, clusters, clock)
	if v := look(); v.Link != Up || v.ClockAhead == 0 || v.Recheck == 0 {
		t.Fatalf("in reach: %+v", v)
	}
	clusters.Gates.gate(gated).circuit = circuit{open: true, pause: pause{}.next(clock.Now())}
	if v := look(); v.Link != Down || v.ClockAhead != 0 {
		t.Errorf("out of reach: %+v", v)
	}
}
