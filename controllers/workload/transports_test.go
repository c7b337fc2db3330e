package workload

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/test/must"
)

// carried returns the transports that are registered in this process.
var carried = sync.OnceValue(func() *Transports {
	t := NewTransports(1<<20, clock.RealClock{})
	if err := t.Register(); err != nil {
		panic(err)
	}
	return t
})

// through returns the client, and its configuration, that ClusterCache would make from the kubeconfig of a server.
func through(t *testing.T, server *httptest.Server, path string) (client.WithWatch, *rest.Config) {
	t.Helper()
	content := strings.Replace(string(kubeconfigOf(server, "token: t", "")), server.URL, server.URL+path, 1)
	carried().Reader = fake.NewClientBuilder().WithObjects(secretOf([]byte(content))).Build()
	t.Cleanup(func() { carried().forget(c1) })
	routed, err := kubeconfig.FromSecret(t.Context(), carried(), c1)
	must.Do(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(routed)
	must.Do(t, err)
	c, err := client.NewWithWatch(config, client.Options{Mapper: nodesOnly()})
	must.Do(t, err)
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
	must.Is(t, "true /clusters/1/api/v1/nodes/n Bearer t", asked, "the server is asked for")
}

// cacheOfNodes returns a node cache as ClusterCache has one, not started yet.
func cacheOfNodes(t *testing.T, transports *Transports) cache.Cache {
	t.Helper()
	nodes, err := cache.New(configOf(transports), cache.Options{Mapper: nodesOnly()})
	must.Do(t, err)
	if _, err := nodes.GetInformer(t.Context(), &corev1.Node{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	return nodes
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
			transports := NewTransports(1<<20, clock.RealClock{})
			transports.Self, transports.SelfUID = types.NamespacedName{Namespace: "ns", Name: "us"}, "our-uid"
			transports.Local = func() (*rest.Config, error) {
				ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: inside.Certificate().Raw})
				return &rest.Config{Host: inside.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, nil
			}
			content := strings.Replace(string(kubeconfigOf(outside, "token: t", "")), outside.URL, outside.URL+"/clusters/1", 1)
			must.Do(t, transports.use(c1, []byte(content)))
			c, err := client.New(configOf(transports), client.Options{Mapper: nodesOnly()})
			must.Do(t, err)
			is := &corev1.Node{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, is); err != nil || (is.Name == "inside Bearer t") != tc.locally {
				t.Errorf("it is %q, %v", is.Name, err)
			}
		})
	}
}

// routed adds a route to the server of a cluster.
func routed(t *testing.T, cluster client.ObjectKey, server *httptest.Server, transports *Transports) *Transports {
	t.Helper()
	must.Do(t, transports.use(cluster, kubeconfigOf(server, "token: t", "")))
	return transports
}

// ways returns transports with a route to the server of c1.
func ways(t *testing.T, server *httptest.Server) *Transports {
	t.Helper()
	return routed(t, c1, server, NewTransports(6<<20, testclock.NewFakePassiveClock(noon.Time)))
}

// configOf returns the configuration of a client of c1 that uses transports.
func configOf(transports *Transports) *rest.Config {
	return &rest.Config{Host: "http://" + hostOf(c1), Transport: transports}
}

// If the clock of a manager is ahead, a node that has been NotReady for a second seems to have been NotReady for minutes.
func TestTheClockOfAWorkloadClusterIsHeldAgainstOurs(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", noon.Add(-10*time.Minute).UTC().Format(http.TimeFormat))
		writeJSON(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`)
	})
	transports := routed(t, c1, server, NewTransports(64<<10, testclock.NewFakePassiveClock(noon.Time)))
	c, err := client.New(configOf(transports), client.Options{Mapper: nodesOnly()})
	must.Do(t, err)
	must.Do(t, c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{}))
	must.Is(t, 10*time.Minute-time.Second, transports.routeOf(c1).clock.Ahead(), "ahead by")
	if transports.forget(c1); transports.routeOf(c1) != nil {
		t.Error("the clock of a cluster that is gone is remembered")
	}
}

func TestTheSameErrorHasTheSameText(t *testing.T) {
	refused := func(port int) error {
		op := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		return fmt.Errorf("look at node: %w", &url.Error{Op: "Get", URL: "https://127.0.0.1:6443/x", Err: op})
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a connection that was reset, without its ports": {refused(40001), "read: read: connection reset by peer"},
		"the same one from another port":                 {refused(40002), "read: read: connection reset by peer"},
		"an answer of the API server, as it is":          {fmt.Errorf("x: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no"))), `nodes "n" is forbidden: no`},
		"an answer that did not come":                    {fmt.Errorf("x: %w", context.DeadlineExceeded), "no answer in time"},
		"a kubeconfig that is refused": {
			fmt.Errorf("x: %w: %w", clustercache.ErrClusterNotConnected, &RefusedError{Entry: "users[u].user.exec", Why: "names a program"}),
			"the kubeconfig is refused: users[u].user.exec names a program",
		},
		"what is neither": {errors.New("odd"), "odd"},
		"nothing":         {nil, ""},
	} {
		must.Is(t, tc.want, Plain(tc.err), "%s:", name)
	}
}

func TestADoubtBecomesCertaintyThatTheClusterIsDown(t *testing.T) {
	since := noon.Time
	cases := map[string]struct {
		after     time.Duration
		failures  int
		answered  bool
		connected bool
		link      health.Link
		recheck   time.Duration
	}{
		"one probe that failed is nothing":                      {time.Second, 1, false, true, Unsure, time.Second / 2},
		"two are an outage":                                     {time.Second, 2, false, true, Down, time.Second / 2},
		"a connection that is being made is awaited":            {time.Second, 0, false, false, Unsure, time.Second / 2},
		"at first it is looked at often":                        {0, 0, false, false, Unsure, time.Second / 4},
		"later as often as the cluster is probed":               {50 * time.Second, 0, false, false, Unsure, ProbeInterval},
		"but not for ever":                                      {time.Minute, 0, false, false, Down, 0},
		"also when it can be probed and not be read":            {time.Minute, 0, false, true, Down, ProbeInterval},
		"just before that nothing is lost":                      {time.Minute - 1, 0, false, true, Unsure, ProbeInterval},
		"that it is connected again is an event":                {time.Second, 2, false, false, Down, 0},
		"no event says that a cache has caught up":              {time.Second, 0, true, true, Unsure, catchUpInterval},
		"not even if that takes so long that it counts as down": {time.Minute, 0, true, true, Down, catchUpInterval},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &doubt{since: since, answered: tc.answered}
			got := d.view(since.Add(tc.after), tc.connected, clustercache.HealthCheckingState{ConsecutiveFailures: tc.failures})
			if got.Link != tc.link || got.Recheck != tc.recheck {
				t.Errorf("link %d, again after %s; want %d, %s", got.Link, got.Recheck, tc.link, tc.recheck)
			}
		})
	}
}
