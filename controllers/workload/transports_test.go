package workload

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	t := NewTransports(1<<20, clock.RealClock{})
	if err := t.Register(); err != nil {
		panic(err)
	}
	return t
})

// through is the client, and its configuration, that ClusterCache would make of the kubeconfig of a server.
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

// cacheOfNodes is a cache of the nodes of a cluster, as ClusterCache has one. It is not started yet.
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

// routed are transports that know the way to a server of a cluster.
func routed(t *testing.T, cluster client.ObjectKey, server *httptest.Server, transports *Transports) *Transports {
	t.Helper()
	must.Do(t, transports.use(cluster, kubeconfigOf(server, "token: t", "")))
	return transports
}

// ways to a server of c1. What is JSON may be a quarter of the limit long.
func ways(t *testing.T, server *httptest.Server) *Transports {
	t.Helper()
	return routed(t, c1, server, NewTransports(6<<20, testclock.NewFakePassiveClock(noon.Time)))
}

// configOf is the configuration of the clients of c1 that go by transports.
func configOf(transports *Transports) *rest.Config {
	return &rest.Config{Host: "http://" + hostOf(c1), Transport: transports}
}

// A manager whose clock is ahead takes a node that turned a second ago for one that has been so for minutes.
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
