package workload

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// clientOf is the client that ClusterCache would make of the kubeconfig in a Secret.
func clientOf(t *testing.T, secrets client.Reader) (client.WithWatch, *rest.Config) {
	t.Helper()
	content, err := kubeconfig.FromSecret(t.Context(), secrets, c1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Mapper: nodesOnly()})
	if err != nil {
		t.Fatal(err)
	}
	return c, config
}

// through is a client of a server that was made of the kubeconfig for it.
func through(t *testing.T, server *httptest.Server, path string) client.WithWatch {
	t.Helper()
	content := strings.Replace(string(kubeconfigOf(server, "token: t", "")), server.URL, server.URL+path, 1)
	k := &Kubeconfigs{Reader: fake.NewClientBuilder().WithObjects(secretOf([]byte(content))).Build(), Transports: carried()}
	t.Cleanup(func() { carried().forget(c1) })
	c, _ := clientOf(t, k)
	return c
}

func serve(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(f)
	t.Cleanup(server.Close)
	return server
}

func writeJSON(w http.ResponseWriter, content string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, content)
}

func TestWhatAClusterIsAskedGoesByItsOwnKubeconfig(t *testing.T) {
	var asked string
	c := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
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
	c := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
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
	transports := &Transports{Limit: 64 << 10, Clock: &testclock.SimpleIntervalClock{Time: noon.Time, Duration: each}}
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
	if _, err := transports.route(c1, kubeconfigOf(server, "token: t", "")); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(&rest.Config{Host: "http://" + hostOf(c1), Transport: transports}, client.Options{Mapper: nodesOnly()})
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

func TestAWatchThatToldMuchOverTimeEndsAsIfTheConnectionBroke(t *testing.T) {
	if got, ended := heard(t, flood); ended != "" || got < 64 || got > 128 {
		t.Errorf("%d events were heard before %q", got, ended)
	}
}

func TestAWatchThatTellsAllAtOnceIsCutOff(t *testing.T) {
	if got, ended := heard(t, time.Millisecond); ended != watch.Error || got < 64 || got > 128 {
		t.Errorf("%d events were heard before %q", got, ended)
	}
}

// cacheOfNodes is a cache of the nodes of a cluster, as ClusterCache has one. It is not started yet.
func cacheOfNodes(t *testing.T, transports *Transports) cache.Cache {
	t.Helper()
	nodes, err := cache.New(&rest.Config{Host: "http://" + hostOf(c1), Transport: transports}, cache.Options{Mapper: nodesOnly()})
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
		w.WriteHeader(http.StatusGone)
		writeJSON(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	})
	transports := &Transports{Limit: 1 << 20, Clock: testclock.NewFakeClock(noon.Time)}
	if _, err := transports.route(c1, kubeconfigOf(server, "token: t", "")); err != nil {
		t.Fatal(err)
	}
	nodes := cacheOfNodes(t, transports)
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
	transports := &Transports{Limit: 1 << 20, Clock: passive}
	secret := string(kubeconfigOf(server, "token: t", ""))
	if _, err := transports.route(c1, []byte(secret)); err != nil {
		t.Fatal(err)
	}
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
	if _, err := transports.route(c1, []byte(strings.Replace(secret, "token: t", "token: new", 1))); err != nil {
		t.Fatal(err)
	}
	if asks(nodesPath) {
		t.Error("a new secret makes it be asked at once")
	}
}

func TestRedirectionsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another server is asked") })
	c := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }), "")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{}); err == nil || !strings.Contains(err.Error(), "redirects") {
		t.Errorf("Get() = %v", err)
	}
}

func TestAKubeconfigThatNamesAnotherClusterByOurAddressIsRefused(t *testing.T) {
	k := &Kubeconfigs{Transports: carried(), Reader: fake.NewClientBuilder().WithObjects(secretOf([]byte(
		`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "workload://other-tenant.c2"}}], users: [{name: u, user: {}}]}`))).Build()}
	var refused *RefusedError
	if _, err := kubeconfig.FromSecret(t.Context(), k, c1); !errors.As(err, &refused) || k.Refused(c1) == nil {
		t.Errorf("it is not refused: %v", err)
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
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(http.StatusNotFound)
						_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
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
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "workload://tenant.c1/api/v1/nodes/n", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			got, err := transports.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = got.Body.Close() }()
			body, err := io.ReadAll(got.Body)
			if err != nil || strings.Contains(string(body), "inside Bearer t") != tc.locally {
				t.Errorf("it says %s, %v", body, err)
			}
		})
	}
}
