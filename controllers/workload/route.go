package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/clockerror"
)

// nodesPath is the path of the list of nodes.
const nodesPath = "/api/v1/nodes"

// paged times the limit of a response is the maximum length of all pages of a list. client-go keeps all pages until it has the last one.
const paged = 8

// route has the connection to one cluster, and what is known about its API server.
type route struct {
	refused *RefusedError // why its kubeconfig is refused; nil if it is not. Guarded by Transports.

	clock   clockerror.Server
	circuit *circuit
	// reconnects makes the next probe of ClusterCache (the path /) fail as unauthorized, so that ClusterCache reconnects. (clusterAccessor)
	reconnects atomic.Bool
	// identified is when the UID of the workload cluster was last read; nil or zero if it was not read with the present kubeconfig. A new
	// kubeconfig sets a new pointer.
	identified atomic.Pointer[time.Time]

	dialing    sync.Mutex // also held while runsIn sends a request
	kubeconfig string
	config     *rest.Config
	transport  http.RoundTripper

	pages sync.Map // for each list, the length of its pages so far (see read)
}

func newRoute(cluster client.ObjectKey, now clock.PassiveClock) *route {
	return &route{
		clock: clockerror.Server{Namespace: cluster.Namespace, Cluster: cluster.Name}, circuit: newCircuit(now),
	}
}

// send sends a request to the cluster of a route.
func (t *Transports) send(r *http.Request, to *route) (*http.Response, error) {
	transport, err := t.open(r.Context(), to)
	if err != nil {
		return unsent(r, err)
	}
	answer, err := transport.RoundTrip(r)
	if err == nil && to.read(r, answer) > t.limit*paged {
		err = errPages
	}
	if errors.Is(err, errNoAnswer) && r.URL.Path == nodesPath {
		to.circuit.cutOff()
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// read adds a page to the length of its list and returns the sum; zero if the response is not a page. Without this limit, a server could
// fill the memory with pages without end.
func (to *route) read(r *http.Request, page *http.Response) int64 {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !query.Has("limit") {
		return 0
	}
	list, before := r.Header.Get("Accept")+" "+r.URL.Path+" "+query.Get("fieldSelector"), int64(0)
	if length, begun := to.pages.Load(list); begun && query.Has("continue") {
		before = length.(int64)
	}
	to.pages.Store(list, before+page.ContentLength)
	return before + page.ContentLength
}

// open returns the transport of a route. The first request creates it.
func (t *Transports) open(ctx context.Context, to *route) (http.RoundTripper, error) {
	to.dialing.Lock()
	defer to.dialing.Unlock()
	if to.transport != nil {
		return to.transport, nil
	}
	if to.config == nil {
		return nil, errors.New("no kubeconfig of the cluster could be used")
	}
	transport, err := t.dial(to, to.config)
	own := false
	if err == nil && t.SelfUID != "" {
		own, err = t.runsIn(ctx, transport)
	}
	if own {
		transport, err = t.locally(to)
	}
	if err == nil {
		to.transport = transport
	}
	return transport, err
}

// dial returns a transport to the server of a configuration. The transport limits the responses and compares the clocks.
func (t *Transports) dial(to *route, config *rest.Config) (http.RoundTripper, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the address of an API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a way to %s: %w", server.Host, err)
	}
	return binding{next: to.clock.Around(addressed{server, transport}, t.clock), limit: t.limit}, nil
}

// runsIn reports whether a cluster has the pod of this process, like runningOnWorkloadCluster of ClusterCache.
func (t *Transports) runsIn(ctx context.Context, transport http.RoundTripper) (bool, error) {
	ctx, done := context.WithTimeout(ctx, AnswerWithin)
	defer done()
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(pod.GroupVersionKind(), meta.RESTScopeNamespace)
	live, err := client.New(&rest.Config{Host: "http://" + scheme, Transport: transport}, client.Options{Mapper: mapper})
	if err == nil {
		err = live.Get(ctx, t.Self, pod)
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("ask for the pod that this runs in: %w", err)
	}
	return err == nil && pod.UID == t.SelfUID, nil
}

// locally returns a transport to the manager's own cluster, with the address that a pod uses and the credentials of the kubeconfig.
func (t *Transports) locally(to *route) (http.RoundTripper, error) {
	local, err := t.Local()
	if err != nil {
		return nil, fmt.Errorf("find the API server of the cluster that this runs in: %w", err)
	}
	config := rest.CopyConfig(to.config)
	config.Host, config.CAData, config.CAFile = local.Host, local.CAData, local.CAFile
	config.ServerName, config.Insecure = local.ServerName, local.Insecure
	return t.dial(to, config)
}

// addressed sends all requests to one server, whatever server their URLs name.
type addressed struct {
	server *url.URL
	next   http.RoundTripper
}

// RoundTrip sends a request.
func (a addressed) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, address := r.WithContext(r.Context()), *r.URL
	address.Scheme, address.Host = a.server.Scheme, a.server.Host
	if address.RawPath != "" {
		address.RawPath = strings.TrimSuffix(a.server.EscapedPath(), "/") + address.RawPath
	}
	address.Path = strings.TrimSuffix(a.server.Path, "/") + address.Path
	// A reflector lists with resourceVersion 0, for which an API server ignores the limit and returns all objects from its cache. Without
	// it, the API server returns pages; all nodes of a large cluster in one response would exceed the limit. (Kubernetes API concepts,
	// "Semantics for get and list"; client-go, Reflector.list)
	query := address.Query()
	if r.Method == http.MethodGet && query.Has("limit") && query.Get("resourceVersion") == "0" && !query.Has("watch") {
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
		address.RawQuery = query.Encode()
	}
	sent.URL, sent.Host = &address, ""
	return a.next.RoundTrip(sent)
}
