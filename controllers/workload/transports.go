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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/clockerror"
)

// Transports send the requests to workload clusters, each with the cluster's own kubeconfig, and limit the responses. ClusterCache reads
// kubeconfigs through them: Get returns an error for a kubeconfig that RESTConfig refuses, or else a kubeconfig that names Transports in
// place of the server. Transports are safe for concurrent use. The zero value has no clusters.
type Transports struct {
	// Reader reads Secrets.
	client.Reader
	// Self is the pod of this process.
	Self types.NamespacedName
	// SelfUID is the UID of the pod; empty outside of a cluster.
	SelfUID types.UID
	// Local returns how to reach the manager's own cluster. If a workload cluster has the pod, its address is taken from Local.
	Local func() (*rest.Config, error)

	// limit is the maximum length of a response in bytes, after decompression.
	limit int64
	clock clock.PassiveClock

	mu     sync.RWMutex
	routes map[string]*route // by host
}

// NewTransports returns transports that limit responses to this many bytes after decompression.
func NewTransports(limit int64, now clock.PassiveClock) *Transports {
	return &Transports{limit: limit, clock: now, routes: map[string]*route{}}
}

// Get reads an object. In place of a kubeconfig it returns one whose requests go to t, or a RefusedError.
func (t *Transports) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := t.Reader.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	s, ok := obj.(*corev1.Secret)
	name, kubeconfig := strings.CutSuffix(key.Name, "-"+string(secret.Kubeconfig))
	if !ok || !kubeconfig {
		return nil
	}
	cluster, content := client.ObjectKey{Namespace: key.Namespace, Name: name}, s.Data[secret.KubeconfigDataName]
	s.Data = nil
	if err := t.use(cluster, content); err != nil {
		return err
	}
	carried, err := carriedBy(hostOf(cluster))
	s.Data = map[string][]byte{secret.KubeconfigDataName: carried}
	return err
}

// use sets the kubeconfig of a cluster, unless the kubeconfig is refused. The state of the circuit and of the clock stays: a tenant may
// change the kubeconfig, and must not reset them by that.
func (t *Transports) use(cluster client.ObjectKey, kubeconfig []byte) error {
	config, err := RESTConfig(kubeconfig)
	host := hostOf(cluster)
	t.mu.Lock()
	to := t.routes[host]
	if to == nil {
		to = newRoute(cluster, t.clock)
		t.routes[host] = to
	}
	to.refused = nil
	errors.As(err, &to.refused)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	to.dialing.Lock()
	defer to.dialing.Unlock()
	if to.kubeconfig != string(kubeconfig) {
		to.kubeconfig, to.config, to.transport = string(kubeconfig), config, nil
		to.identified.Store(new(time.Time))
	}
	return nil
}

// forget drops the route of a cluster that is gone.
func (t *Transports) forget(cluster client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if to := t.routes[hostOf(cluster)]; to != nil {
		to.clock.Forget()
	}
	delete(t.routes, hostOf(cluster))
}

func (t *Transports) routeOf(cluster client.ObjectKey) *route { return t.routeTo(hostOf(cluster)) }

func (t *Transports) routeTo(host string) *route {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.routes[host]
}

// silent reports whether a cluster leaves requests unanswered at now, and whether not even a trial request may be sent.
func (t *Transports) silent(cluster client.ObjectKey, now time.Time) (silent, rests bool) {
	if to := t.routeOf(cluster); to != nil {
		return to.circuit.state(now)
	}
	return false, false
}

// Refused returns why the kubeconfig of a cluster was refused when it was last read; nil if it was accepted or not read.
func (t *Transports) Refused(cluster client.ObjectKey) *RefusedError {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if to := t.routes[hostOf(cluster)]; to != nil {
		return to.refused
	}
	return nil
}

// RoundTrip sends a request to the cluster that its address names.
func (t *Transports) RoundTrip(r *http.Request) (*http.Response, error) {
	to := t.routeTo(r.URL.Host)
	// If a Cluster is deleted and created again, a late delete event may drop the route of the new Cluster. Then an unauthorized probe
	// makes ClusterCache reconnect and read the kubeconfig again.
	if r.URL.Path == "/" && (to == nil || to.reconnects.Swap(false)) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	if to == nil {
		return unsent(r, fmt.Errorf("no kubeconfig of %s is known", r.URL.Host))
	}
	if !awaited(r) {
		return t.send(r, to)
	}
	trial, err := to.circuit.enter(r.Context())
	if err != nil {
		return unsent(r, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel() // the response is read to its end before
	answer, err := t.send(r.WithContext(ctx), to)
	to.circuit.leave(trial, err)
	if err != nil {
		return nil, final(err)
	}
	answer.Header.Del("Retry-After") // client-go would block the worker for that long
	return answer, nil
}

// unsent returns err for a request that is not sent, and closes its body, as a RoundTripper must.
func unsent(r *http.Request, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, err
}

// Connections is a ClusterCache whose errors say whether a kubeconfig is refused.
type Connections struct {
	clustercache.ClusterCache
	Transports *Transports
	// Verify is called before a client is returned, and returns an error if another workload cluster answers. It may be nil.
	Verify func(ctx context.Context, cluster client.ObjectKey) error
}

// GetUncachedClient returns a client that reads from the API server of a cluster.
func (c Connections) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	if c.Verify != nil {
		if err := c.Verify(ctx, cluster); err != nil {
			return nil, err
		}
	}
	connected, err := c.ClusterCache.GetUncachedClient(ctx, cluster)
	if refused := c.Transports.Refused(cluster); err != nil && refused != nil {
		return nil, fmt.Errorf("%w: %w", err, refused)
	}
	return connected, err
}

// Shutdown ends the connections to all clusters. No cluster may be read afterwards.
func (c Connections) Shutdown() {
	if connections, end := c.ClusterCache.(interface{ Shutdown() }); end {
		connections.Shutdown()
	}
}

// nodesPath is the path of the list of nodes.
const nodesPath = "/api/v1/nodes"

// paged times the limit of a response is the maximum length of all pages of a list. client-go keeps all pages until it has the last one.
const paged = 8

// route has the connection to one cluster, and what is known about its API server.
type route struct {
	refused *RefusedError // why its kubeconfig is refused; nil if it is not. Guarded by Transports.

	clock   clockerror.Server
	circuit circuit
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
		clock:   clockerror.Server{Namespace: cluster.Namespace, Cluster: cluster.Name},
		circuit: circuit{clock: now, sent: make(chan struct{}, atOnce)},
	}
}

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
