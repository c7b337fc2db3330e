package workload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodesOnly returns a mapper for nodes, so that clients need no discovery.
func nodesOnly() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return mapper
}

// oneServer is a ClusterCache whose clusters all have the same server and answer probes. It uses transports if they are set.
type oneServer struct {
	clustercache.ClusterCache
	config     *rest.Config
	transports *Transports
}

func (s oneServer) GetRESTConfig(_ context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	if s.transports == nil {
		return s.config, nil
	}
	return &rest.Config{Host: "http://" + hostOf(cluster), Transport: s.transports, QPS: -1}, nil
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

var gated = client.ObjectKey{Namespace: "ns", Name: "c"}

// sends is a RoundTripper.
type sends func(*http.Request) (*http.Response, error)

func (s sends) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// clustersAt returns Clusters in which server answers for the cluster gated.
func clustersAt(now clock.PassiveClock, server http.RoundTripper) (*Clusters, *route) {
	transports := NewTransports(1<<20, now)
	to := newRoute(gated, now)
	to.transport = binding{next: server, limit: transports.limit}
	transports.routes[hostOf(gated)] = to
	c := NewClusters(oneServer{transports: transports})
	c.Transports = transports
	return c, to
}

// answerOf returns a response in JSON.
func answerOf(r *http.Request, content io.Reader) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
		Body: io.NopCloser(content), Request: r,
	}
}

const noNodes = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[]}`

// hangs is a server that does not answer until on is closed.
type hangs struct {
	asked atomic.Int32
	on    chan struct{}
}

func (h *hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked.Add(1)
	select {
	case <-h.on:
		return answerOf(r, strings.NewReader(noNodes)), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func TestAServerThatHangsHoldsAFewWorkersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &hangs{on: make(chan struct{})}
		clusters, _ := clustersAt(clock.RealClock{}, server)
		const workers = 50
		var silent, asking atomic.Int32
		ask := func() error {
			_, err := clusters.NodesExist(t.Context(), gated, []string{"n"})
			if asking.Add(-1); errors.Is(err, ErrSilent) {
				silent.Add(1)
			}
			return err
		}
		all := func() {
			asking.Add(workers)
			for range workers {
				go func() { _ = ask() }()
			}
		}
		all()
		synctest.Wait()
		if asked := server.asked.Load(); asked != atOnce {
			t.Fatalf("%d are asking at once", asked)
		}
		if time.Sleep(queuedFor + time.Millisecond); silent.Load() != workers-atOnce {
			t.Errorf("%d hear that it is silent while others wait for it", silent.Load())
		}
		if time.Sleep(requestTimeout); asking.Load() != 0 {
			t.Errorf("%d still wait", asking.Load())
		}
		all()
		if synctest.Wait(); asking.Load() != 0 || server.asked.Load() != atOnce {
			t.Errorf("after that %d wait, and it was asked %d times", asking.Load(), server.asked.Load())
		}
		time.Sleep(pause)
		all()
		if synctest.Wait(); asking.Load() != 1 || server.asked.Load() != atOnce+1 {
			t.Errorf("after a pause %d wait, and it was asked %d times", asking.Load(), server.asked.Load())
		}
		close(server.on)
		synctest.Wait()
		before := silent.Load()
		all()
		if synctest.Wait(); asking.Load() != 0 || silent.Load() != before {
			t.Error("it answers again, and is not asked")
		}
	})
}

func TestARequestThatQueuesGoesOnceAnotherHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &newRoute(gated, clock.RealClock{}).circuit
		for range atOnce {
			if _, err := c.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		entered := make(chan error, 1)
		go func() { _, err := c.enter(t.Context()); entered <- err }()
		if synctest.Wait(); len(entered) > 0 {
			t.Fatalf("more than %d go at once", atOnce)
		}
		c.leave(false, nil)
		if err := <-entered; err != nil {
			t.Error(err)
		}
	})
}

func TestAServerThatDoesNotAnswerAsOneDoesIsOneThatHangs(t *testing.T) {
	dense := `{"kind":"PartialObjectMetadata","metadata":{"managedFields":[{}` + strings.Repeat(",{}", 10_000) + "]}}"
	for name, content := range map[string]func(r *http.Request) io.Reader{
		"an endless object":       func(*http.Request) io.Reader { return bytes.NewReader(make([]byte, 2<<20)) },
		"far larger once decoded": func(*http.Request) io.Reader { return strings.NewReader(dense) },
		"the begin, and nothing more": func(r *http.Request) io.Reader {
			return io.MultiReader(strings.NewReader("{"), never{r.Context().Done()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clusters, _ := clustersAt(clock.RealClock{}, sends(func(r *http.Request) (*http.Response, error) {
					return answerOf(r, content(r)), nil
				}))
				for i := range lost {
					if _, err := clusters.NodesExist(t.Context(), gated, []string{strconv.Itoa(i)}); err == nil || errors.Is(err, ErrSilent) {
						t.Fatalf("it has answered: %v", err)
					}
				}
				if _, err := clusters.NodesExist(t.Context(), gated, []string{"n"}); !errors.Is(err, ErrSilent) {
					t.Errorf("the circuit is not open: %v", err)
				}
			})
		})
	}
}

// never is a body that sends nothing.
type never struct{ over <-chan struct{} }

func (n never) Read([]byte) (int, error) {
	<-n.over
	return 0, context.DeadlineExceeded
}

func TestAClusterIsAskedWhatItAnswers(t *testing.T) {
	opened := []string{"go", "go", "10s", "silence", "silence"}
	// A row is a sequence: "5s" lets time pass, "go" is a request that is sent, "refuse" is a request that is refused, and "answer" and
	// "silence" end the oldest request in flight.
	for name, happens := range map[string][]string{
		"one without an answer is nothing":       {"go", "10s", "silence", "go"},
		"after two none is sent":                 append(opened, "refuse", "19s", "refuse"),
		"an answer in between is no excuse":      {"go", "10s", "silence", "go", "answer", "go", "10s", "silence", "refuse"},
		"but one an hour is":                     {"go", "10s", "silence", "1h", "go", "10s", "silence", "go"},
		"then one tries, and it alone":           append(opened, "20s", "go", "refuse", "1h", "refuse"),
		"an answer closes it":                    append(opened, "20s", "go", "answer", "go", "go"),
		"else the next tries after another":      append(opened, "20s", "go", "10s", "silence", "19s", "refuse", "1s", "go"),
		"what was asked before says nothing new": {"go", "go", "go", "500ms", "silence", "silence", "answer", "refuse", "20s", "go", "refuse"},
	} {
		t.Run(name, func(t *testing.T) {
			now := testclock.NewFakePassiveClock(noon.Time)
			c := &newRoute(gated, now).circuit
			var sent []bool // the requests in flight: whether each is a trial request
			for i, what := range happens {
				switch what {
				case "answer":
					c.leave(sent[0], nil)
					sent = sent[1:]
				case "silence":
					c.leave(sent[0], context.DeadlineExceeded)
					sent = sent[1:]
				case "go", "refuse":
					trial, err := c.enter(t.Context())
					if errors.Is(err, ErrSilent) != (what == "refuse") {
						t.Fatalf("%d: %v, want %q", i, err, what)
					}
					if err == nil {
						sent = append(sent, trial)
					}
				default:
					passed, err := time.ParseDuration(what)
					must.Do(t, err)
					now.SetTime(now.Now().Add(passed))
				}
			}
		})
	}
}

// client-go would retry ten times, and block the worker in between, which the circuit does not notice.
func TestAServerThatSaysTryAgainLaterHoldsNoWorkerUntilThen(t *testing.T) {
	for name, tc := range map[string]struct {
		code  int
		after string
		err   error
	}{
		"by Retry-After":           {code: http.StatusTooManyRequests, after: "60"},
		"while it shuts down":      {code: http.StatusServiceUnavailable, after: "1"},
		"by ending the connection": {err: io.EOF},
		"by a reset":               {err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, began := 0, time.Now()
				clusters, _ := clustersAt(clock.RealClock{}, sends(func(r *http.Request) (*http.Response, error) {
					asked++
					if tc.err != nil {
						return nil, tc.err
					}
					answer := answerOf(r, strings.NewReader("{}"))
					answer.StatusCode, answer.Header["Retry-After"] = tc.code, []string{tc.after}
					return answer, nil
				}))
				if _, err := clusters.NodesExist(t.Context(), gated, []string{"n"}); err == nil || asked != 1 || time.Since(began) > 0 {
					t.Errorf("asked %d times in %s, %v", asked, time.Since(began), err)
				}
			})
		})
	}
}

// cachedView fills the node cache of the cluster gated, and returns a function that calls View.
func cachedView(t *testing.T, clusters *Clusters, now *testclock.FakePassiveClock) func() View {
	t.Helper()
	_, nodes := informerOf(&corev1.Node{})
	go nodes.Run(t.Context().Done())
	eventually(t, "the nodes are cached", nodes.HasSynced)
	clusters.keepNodes(gated, nodes.SharedIndexInformer)
	return func() View {
		v, err := clusters.View(t.Context(), gated, now.Now())
		must.Do(t, err)
		return v
	}
}

func TestAClusterIsDownUntilAListShowsThatItsCacheIsNotOld(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(to *route, now time.Time)
		lasts   time.Duration
	}{
		"an answer about its nodes was cut off": {func(to *route, _ time.Time) { to.circuit.cutOff() }, staleFor},
		"it answers probes alone":               {func(to *route, now time.Time) { to.circuit.open, to.circuit.until = true, now.Add(pause) }, pause},
	} {
		t.Run(name, func(t *testing.T) {
			server, now := &hangs{on: make(chan struct{})}, testclock.NewFakePassiveClock(noon.Time)
			close(server.on)
			clusters, route := clustersAt(now, server)
			look := cachedView(t, clusters, now)
			if v := look(); v.Link != Up {
				t.Fatalf("before: %+v", v)
			}
			tc.happens(route, now.Now())
			if v := look(); v.Link != Down || !v.Silent || v.Recheck == 0 || server.asked.Load() != 0 {
				t.Errorf("what its cache shows may be old: %+v, asked %d times", v, server.asked.Load())
			}
			now.SetTime(now.Now().Add(tc.lasts))
			for range 2 {
				if v := look(); v.Link != Up || v.Silent || server.asked.Load() != 1 {
					t.Errorf("once a list has shown that it is not: %+v, asked %d times", v, server.asked.Load())
				}
			}
		})
	}
}

// The last response of such a cluster may be old or from a proxy, and its clock has written nothing that is judged now.
func TestTheClockOfAClusterOutOfReachStopsNoCheck(t *testing.T) {
	now := testclock.NewFakePassiveClock(noon.Time)
	clusters, route := clustersAt(now, &hangs{})
	defer route.clock.Forget()
	route.clock.Note(now.Now(), now.Now(), http.Header{"Date": {now.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)}})
	look := cachedView(t, clusters, now)
	if v := look(); v.Link != Up || v.ClockAhead == 0 || v.Recheck == 0 {
		t.Fatalf("in reach: %+v", v)
	}
	route.circuit.open, route.circuit.until = true, now.Now().Add(pause)
	if v := look(); v.Link != Down || v.ClockAhead != 0 {
		t.Errorf("out of reach: %+v", v)
	}
}

// ClusterCache probes the path /, and lists and watches for its caches with a timeout of eleven minutes. (clusterAccessor,
// createCachedClient)
func TestWhatNoWorkerWaitsForPassesAnOpenCircuit(t *testing.T) {
	server, now := &hangs{on: make(chan struct{})}, testclock.NewFakePassiveClock(noon.Time)
	close(server.on)
	clusters, route := clustersAt(now, server)
	route.circuit.open, route.circuit.until = true, now.Now().Add(pause)
	for query, passes := range map[string]bool{
		"/": true, nodesPath + "?timeout=11m": true, nodesPath + "?watch=true": true, nodesPath: false, nodesPath + "?timeout=10s": false,
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "workload://"+hostOf(gated)+query, http.NoBody)
		answer, err := clusters.Transports.RoundTrip(request)
		if err == nil {
			_ = answer.Body.Close()
		}
		if (err == nil) != passes || err != nil && !errors.Is(err, ErrSilent) {
			t.Errorf("%s: %v", query, err)
		}
	}
}
