package workload

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// carried are the transports that http.DefaultTransport knows in this process.
var carried = sync.OnceValue(func() *Transports {
	t := &Transports{Limit: 1 << 20, Clock: clock.RealClock{}}
	if err := t.Register(); err != nil {
		panic(err)
	}
	return t
})

// through is the client, and its configuration, that ClusterCache would make of the kubeconfig of a server.
func through(t *testing.T, server *httptest.Server, path string) (client.WithWatch, *rest.Config) {
	t.Helper()
	content := strings.Replace(string(kubeconfigOf(server, "token: t", "")), server.URL, server.URL+path, 1)
	k := &Kubeconfigs{Reader: fake.NewClientBuilder().WithObjects(secretOf([]byte(content))).Build(), Transports: carried()}
	t.Cleanup(func() { carried().forget(c1) })
	routed, err := kubeconfig.FromSecret(t.Context(), k, c1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(routed)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Mapper: nodesOnly()})
	if err != nil {
		t.Fatal(err)
	}
	return c, config
}

func TestWhatAClusterIsAskedGoesByItsOwnKubeconfig(t *testing.T) {
	var asked string
	c, _ := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = fmt.Sprint(r.Host == r.TLS.ServerName || r.Host != "tenant.c1", " ", r.URL.Path, " ", r.Header.Get("Authorization"))
		writeJSON(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`)
	}), "/clusters/1")
	node := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil || node.Name != "n" {
		t.Fatalf("node %q, %v", node.Name, err)
	}
	if want := "true /clusters/1/api/v1/nodes/n Bearer t"; asked != want {
		t.Errorf("the server is asked for %q, want %q", asked, want)
	}
}

func TestAnAnswerThatDoesNotEndIsCutOff(t *testing.T) {
	var sent int64
	c, _ := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[`)
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, `{"metadata":{"name":"`+strings.Repeat("n", 2*bytesPerItem)+`"}},`)
			if sent += int64(n); err != nil {
				return
			}
		}
	}), "")
	err := c.List(t.Context(), &corev1.NodeList{})
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("List() = %v", err)
	}
	if sent > 16<<20 { // what is on its way besides is in the buffers of the connection
		t.Errorf("%d bytes were taken", sent)
	}
}

// heard is how many events a watch tells that goes on for ever, each of them taking so long, and how it ends.
func heard(t *testing.T, each time.Duration) (int, watch.EventType) {
	t.Helper()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, "")
		for i := 0; r.Context().Err() == nil; i++ {
			_, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n%d","annotations":{"a":%q}}}}`+"\n",
				i, strings.Repeat("x", 1<<10))
			if err != nil {
				return
			}
		}
	})
	transports := routed(t, c1, server, &Transports{Limit: 64 << 10, Clock: &testclock.SimpleIntervalClock{Time: noon.Time, Duration: each}})
	c, err := client.NewWithWatch(configOf(transports), client.Options{Mapper: nodesOnly()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(t.Context(), &corev1.NodeList{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	count := 0
	for e := range events.ResultChan() {
		if e.Type != watch.Added {
			return count, e.Type
		}
		count++
	}
	return count, ""
}

func TestAWatchThatTellsMuchEnds(t *testing.T) {
	for each, want := range map[time.Duration]watch.EventType{
		flood:            "", // over time, as if the connection broke
		time.Millisecond: watch.Error,
	} {
		if got, ended := heard(t, each); ended != want || got < 64 || got > 128 {
			t.Errorf("one each %s: %d events were heard before %q, want %q", each, got, ended, want)
		}
	}
}

// cacheOfNodes is a cache of the nodes of a cluster, as ClusterCache has one. It is not started yet.
func cacheOfNodes(t *testing.T, transports *Transports) cache.Cache {
	t.Helper()
	nodes, err := cache.New(configOf(transports), cache.Options{Mapper: nodesOnly()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.GetInformer(t.Context(), &corev1.Node{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	return nodes
}

func TestAServerForWhichAllHasExpiredIsNotAskedAgainAtOnce(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		writeStatus(w, http.StatusGone, "Expired")
	})
	nodes := cacheOfNodes(t, ways(t, server))
	ctx, done := context.WithTimeout(t.Context(), time.Second)
	defer done()
	if err := nodes.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := asked.Load(); got == 0 || got > 5 {
		t.Errorf("it was asked %d times in a second", got)
	}
}

func TestWhatWasCutOffIsNotAskedForAgainForAWhile(t *testing.T) {
	asked := 0
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch r.URL.Path {
		case nodesPath:
			http.Redirect(w, r, "https://elsewhere.example.com", http.StatusFound)
		default:
			writeJSON(w, "{}")
		}
	})
	passive := testclock.NewFakeClock(noon.Time)
	transports := routed(t, c1, server, &Transports{Limit: 1 << 20, Clock: passive})
	asks := func(path string) bool {
		t.Helper()
		was := asked
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "workload://"+hostOf(c1)+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := transports.RoundTrip(request); err == nil {
			_ = answer.Body.Close()
		}
		return asked > was
	}
	for i, step := range []struct {
		after time.Duration
		path  string
		asked bool
	}{
		{0, nodesPath, true},
		{9 * time.Second, nodesPath, false},
		{0, "/", true}, // a probe
		{0, nodesPath + "/n", true},
		{time.Second, nodesPath, true},
		{19 * time.Second, nodesPath, false},
		{time.Second, nodesPath, true},
		{calm + time.Minute, nodesPath, true},
		{10 * time.Second, nodesPath, true},
	} {
		passive.Step(step.after)
		if got := asks(step.path); got != step.asked {
			t.Errorf("%d: %s was asked for: %t", i, step.path, got)
		}
		if rests := transports.rests(c1, passive.Now()); !rests {
			t.Errorf("%d: the nodes do not rest", i)
		}
	}
	if _, err := transports.route(c1, kubeconfigOf(server, "token: new", "")); err != nil {
		t.Fatal(err)
	}
	if asks(nodesPath) {
		t.Error("a new secret makes it be asked at once")
	}
}

func TestRedirectionsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another server is asked") })
	c, _ := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }), "")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{}); err == nil || !strings.Contains(err.Error(), "redirects") {
		t.Errorf("Get() = %v", err)
	}
}

func TestTheClusterThatThisRunsInIsAskedWithoutADetour(t *testing.T) {
	for name, tc := range map[string]struct {
		uid     string
		locally bool
	}{
		"it has this pod":            {"our-uid", true},
		"it has another of the name": {"another", false},
		"it has none of the name":    {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(where string) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					switch {
					case strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/ns/pods/us") && tc.uid == "":
						writeStatus(w, http.StatusNotFound, "NotFound")
					case strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/ns/pods/us"):
						writeJSON(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"uid":"`+tc.uid+`"}}`)
					default:
						writeJSON(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"`+where+r.Header.Get("Authorization")+`"}}`)
					}
				}
			}
			outside, inside := serve(t, answer("outside ")), serve(t, answer("inside "))
			transports := &Transports{
				Limit: 1 << 20, Clock: clock.RealClock{}, Self: types.NamespacedName{Namespace: "ns", Name: "us"}, SelfUID: "our-uid",
				Local: func() (*rest.Config, error) {
					ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: inside.Certificate().Raw})
					return &rest.Config{Host: inside.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, nil
				},
			}
			content := strings.Replace(string(kubeconfigOf(outside, "token: t", "")), outside.URL, outside.URL+"/clusters/1", 1)
			if _, err := transports.route(c1, []byte(content)); err != nil {
				t.Fatal(err)
			}
			c, err := client.New(configOf(transports), client.Options{Mapper: nodesOnly()})
			if err != nil {
				t.Fatal(err)
			}
			is := &corev1.Node{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, is); err != nil || (is.Name == "inside Bearer t") != tc.locally {
				t.Errorf("it is %q, %v", is.Name, err)
			}
		})
	}
}

// older is an API server that does not tell a list as a watch, as those before v1.34 do not, and has so many nodes of 2 KiB each. What is asked for of
// the resource version 0 it answers from its cache, which knows no pages. It says that more follow for ever if it has -1 nodes.
func older(t *testing.T, nodes int) *httptest.Server {
	t.Helper()
	labels := strings.Repeat("x", 2<<10)
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case query.Get("sendInitialEvents") == "true":
			writeStatus(w, http.StatusUnprocessableEntity, "Invalid")
			return
		case query.Has("watch"):
			writeJSON(w, "")
			_ = http.NewResponseController(w).Flush() // the client sees whether it came
			<-r.Context().Done()
			return
		}
		first, _ := strconv.Atoi(query.Get("continue"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		if limit == 0 || query.Get("resourceVersion") == "0" {
			limit = nodes
		}
		last, more := first+limit, ""
		if nodes < 0 {
			more = strconv.Itoa(last)
		} else if last = min(last, nodes); last < nodes {
			more = strconv.Itoa(last)
		}
		kind, version := "Node", "v1"
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			kind, version = "PartialObjectMetadata", "meta.k8s.io/v1"
		}
		items := make([]string, 0, limit)
		for i := first; i < last; i++ {
			items = append(items, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"name":"n%d","resourceVersion":"7","annotations":{"a":%q}}}`,
				kind, version, i, labels))
		}
		writeJSON(w, fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`,
			kind, version, more, strings.Join(items, ",")))
	})
}

// routed are transports that know the way to a server of a cluster.
func routed(t *testing.T, cluster client.ObjectKey, server *httptest.Server, transports *Transports) *Transports {
	t.Helper()
	if _, err := transports.route(cluster, kubeconfigOf(server, "token: t", "")); err != nil {
		t.Fatal(err)
	}
	return transports
}

// ways to a server of c1. What is JSON may be a quarter of the limit long.
func ways(t *testing.T, server *httptest.Server) *Transports {
	t.Helper()
	return routed(t, c1, server, &Transports{Limit: 6 << 20, Clock: testclock.NewFakeClock(noon.Time)})
}

// configOf is the configuration of the clients of c1 that go by transports.
func configOf(transports *Transports) *rest.Config {
	return &rest.Config{Host: "http://" + hostOf(c1), Transport: transports}
}

func TestMoreNodesThanGoIntoOneAnswerAreReadInPages(t *testing.T) {
	const nodes = 1700
	cached := cacheOfNodes(t, ways(t, older(t, nodes)))
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	ended := make(chan error)
	go func() { ended <- cached.Start(ctx) }()
	if !cached.WaitForCacheSync(ctx) {
		t.Fatal("the nodes were not read")
	}
	list := &corev1.NodeList{}
	if err := cached.List(ctx, list); err != nil || len(list.Items) != nodes {
		t.Errorf("%d nodes were read, %v; want %d", len(list.Items), err, nodes)
	}
	done()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNodesAreAskedForLiveInPages(t *testing.T) {
	const nodes = 1700
	versions, err := NewClusters(oneServer{config: configOf(ways(t, older(t, nodes)))}).nodeVersions(t.Context(), c1)
	if err != nil || len(versions) != nodes || versions["n1699"] != "7" {
		t.Errorf("%d nodes were read, %v; want %d", len(versions), err, nodes)
	}
}

func TestAListWhosePagesDoNotEndIsCutOff(t *testing.T) {
	transports := ways(t, older(t, -1))
	c, err := client.NewWithWatch(configOf(transports), client.Options{Mapper: nodesOnly()})
	if err != nil {
		t.Fatal(err)
	}
	for list, page := (&corev1.NodeList{}), ""; err == nil; page = list.Continue {
		err = c.List(t.Context(), list, client.Limit(500), client.Continue(page))
	}
	if !errors.Is(err, errPages) {
		t.Errorf("the list ended with %v", err)
	}
	if !transports.rests(c1, noon.Time) {
		t.Error("it is asked for again at once")
	}
}

// A manager whose clock is ahead takes a node that turned a second ago for one that has been so for minutes.
func TestTheClockOfAWorkloadClusterIsHeldAgainstOurs(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", noon.Add(-10*time.Minute).UTC().Format(http.TimeFormat))
		writeJSON(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`)
	})
	transports := routed(t, c1, server, &Transports{Limit: 64 << 10, Clock: testclock.NewFakePassiveClock(noon.Time)})
	c, err := client.New(configOf(transports), client.Options{Mapper: nodesOnly()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{}); err != nil {
		t.Fatal(err)
	}
	if got, want := transports.ahead(c1), 10*time.Minute-time.Second; got != want {
		t.Errorf("ahead by %s, want %s", got, want)
	}
	if transports.forget(c1); transports.ahead(c1) != 0 {
		t.Error("the clock of a cluster that is gone is remembered")
	}
}
