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
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodesOnly maps the one kind that is asked for here, so that no server is asked for others.
func nodesOnly() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return mapper
}

// oneServer is a ClusterCache whose clusters are all at one address, and answer probes. It asks them by transports, if there are any.
type oneServer struct {
	clustercache.ClusterCache
	config     *rest.Config
	transports *Transports
}

func (s oneServer) GetRESTConfig(_ context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	if s.transports == nil {
		return s.config, nil
	}
	s.transports.mu.Lock()
	defer s.transports.mu.Unlock()
	if host := hostOf(cluster); s.transports.routes[host] == nil {
		s.transports.routes[host] = &route{config: s.config, answers: newAnswers(cluster)}
	}
	return &rest.Config{Host: "http://" + hostOf(cluster), Transport: s.transports, Timeout: s.config.Timeout, QPS: -1}, nil
}

func (s oneServer) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	config, err := s.GetRESTConfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Mapper: nodesOnly()})
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

// gatedClusters are clusters that are all at one server, whose circuits go by a clock of the test. So many requests may be slow.
func gatedClusters(config *rest.Config, most int) (*Clusters, *testclock.FakeClock) {
	clock := testclock.NewFakeClock(noon.Time)
	transports := NewTransports(1<<20, most, clock)
	c := NewClusters(oneServer{config: config, transports: transports})
	c.Kubeconfigs = &Kubeconfigs{Transports: transports}
	return c, clock
}

// at is the configuration of a server.
func at(server *httptest.Server) *rest.Config { return &rest.Config{Host: server.URL} }

// routeTo is the way to a cluster, which exists from then on.
func (c *Clusters) routeTo(t *testing.T, cluster client.ObjectKey) *route {
	t.Helper()
	if _, err := c.cache.GetRESTConfig(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return c.Kubeconfigs.route(cluster)
}

func TestAServerThatHangsHoldsAFewWorkersOnce(t *testing.T) {
	server := hangs(t)
	clusters, clock := gatedClusters(at(server.Server), 0)
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
			clusters, _ := gatedClusters(at(server), 0)
			ctx, done := context.WithTimeout(t.Context(), time.Minute/2)
			defer done()
			if _, err := clusters.NodesExist(ctx, gated, []string{"n"}); err == nil || ctx.Err() != nil || asked.Load() != 1 {
				t.Errorf("asked %d times, %v", asked.Load(), err)
			}
		})
	}
}

func TestAServerThatAnswersAByteASecondIsOneThatHangs(t *testing.T) {
	var clock *testclock.FakeClock
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, "")
		for bytes := time.NewTicker(time.Millisecond); r.Context().Err() == nil; <-bytes.C {
			clock.Step(time.Second)
			if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	}))
	defer server.Close()
	var clusters *Clusters
	clusters, clock = gatedClusters(&rest.Config{Host: server.URL, Timeout: 50 * time.Millisecond}, 0)
	opensAfterTwo(t, clusters)
}

// opensAfterTwo checks that a cluster is asked twice, and not a third time.
func opensAfterTwo(t *testing.T, clusters *Clusters) {
	t.Helper()
	for i := range lost {
		if _, err := clusters.NodesExist(t.Context(), gated, []string{strconv.Itoa(i)}); err == nil || errors.Is(err, ErrSilent) {
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
			writeJSON(w, "")
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
			server := httptest.NewServer(answer)
			defer server.Close()
			clusters, _ := gatedClusters(at(server), 0)
			opensAfterTwo(t, clusters)
		})
	}
}

// cachedView fills the cache of a cluster's nodes, and returns what views the cluster.
func cachedView(t *testing.T, clusters *Clusters, now *testclock.FakeClock) func() View {
	t.Helper()
	_, nodes := informerOf(&corev1.Node{})
	go nodes.Run(t.Context().Done())
	eventually(t, "the nodes are cached", nodes.HasSynced)
	clusters.keepNodes(gated, nodes.SharedIndexInformer)
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
	clusters, clock := gatedClusters(at(server.Server), 0)
	look := cachedView(t, clusters, clock)
	if v := look(); v.Link != Up {
		t.Fatalf("before: %+v", v)
	}
	clusters.routeTo(t, gated).answers.cutOff(clock.Now())
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
	clusters, clock := gatedClusters(at(server.Server), 0)
	look := cachedView(t, clusters, clock)
	if v := look(); v.Link != Up {
		t.Fatalf("a cluster that was not asked yet: %+v", v)
	}
	clusters.routeTo(t, gated).answers.gate.circuit = circuit{open: true, pause: pause{}.next(clock.Now())}
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
	clusters, clock := gatedClusters(at(server.Server), 0)
	answers := clusters.routeTo(t, gated).answers
	defer answers.clock.Forget()
	answers.clock.Note(clock.Now(), clock.Now(), http.Header{"Date": {clock.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)}})
	look := cachedView(t, clusters, clock)
	if v := look(); v.Link != Up || v.ClockAhead == 0 || v.Recheck == 0 {
		t.Fatalf("in reach: %+v", v)
	}
	clusters.routeTo(t, gated).answers.gate.circuit = circuit{open: true, pause: pause{}.next(clock.Now())}
	if v := look(); v.Link != Down || v.ClockAhead != 0 {
		t.Errorf("out of reach: %+v", v)
	}
}

// ClusterCache probes by the path /, and lists and watches for its caches with a timeout of eleven minutes. (clusterAccessor,
// createCachedClient.)
func TestWhatNoWorkerWaitsForPassesAnOpenCircuit(t *testing.T) {
	server := hangs(t)
	server.goOn()
	clusters, clock := gatedClusters(at(server.Server), 0)
	clusters.routeTo(t, gated).answers.gate.circuit = circuit{open: true, pause: pause{}.next(clock.Now())}
	if _, err := clusters.NodesExist(t.Context(), gated, []string{"n"}); !errors.Is(err, ErrSilent) || server.asked.Load() != 0 {
		t.Fatalf("what a worker waits for is sent: %v", err)
	}
	config, err := clusters.cache.GetRESTConfig(t.Context(), gated)
	if err != nil {
		t.Fatal(err)
	}
	config.Timeout, config.NegotiatedSerializer = 11*time.Minute, clientgoscheme.Codecs.WithoutConversion()
	through, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	probe, err := rest.UnversionedRESTClientForConfigAndClient(config, through)
	if err != nil {
		t.Fatal(err)
	}
	if err := probe.Get().AbsPath("/").Timeout(5 * time.Second).Do(t.Context()).Error(); err != nil {
		t.Errorf("a probe: %v", err)
	}
	asked := server.asked.Load()
	nodes, err := cache.New(config, cache.Options{HTTPClient: through, Mapper: nodesOnly()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.GetInformer(t.Context(), &corev1.Node{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	go func() { _ = nodes.Start(t.Context()) }()
	eventually(t, "the cache has asked", func() bool { return server.asked.Load() > asked })
}
