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

// nodesPath is where the nodes of a cluster are.
const nodesPath = "/api/v1/nodes"

// paged is how many answers of the greatest length the pages of one list may be together. client-go holds all of them until it has the
// last.
const paged = 8

// route is the way to one cluster, and what is remembered of the answers of its API server.
type route struct {
	refused *RefusedError // why its kubeconfig is refused; nil if it is not. Guarded by Transports.

	clock   clockerror.Server
	circuit *circuit
	// reconnects makes ClusterCache connect to the cluster anew, as it does when its probe, of the path /, is unauthorized.
	// (clusterAccessor.)
	reconnects atomic.Bool
	// identified is when it was last read which cluster answers by kubeconfig: nil or zero if that is not known. Each kubeconfig has a
	// pointer of its own.
	identified atomic.Pointer[time.Time]

	dialing    sync.Mutex // also while the server is asked whether this runs in its cluster
	kubeconfig string
	config     *rest.Config
	transport  http.RoundTripper

	pages sync.Map // by list: how long its pages were together until now
}

func newRoute(cluster client.ObjectKey, now clock.PassiveClock) *route {
	return &route{
		clock: clockerror.Server{Namespace: cluster.Namespace, Cluster: cluster.Name}, circuit: newCircuit(now),
	}
}

// send sends a request by the way that the first one found.
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

// read returns how long the pages of the list that a request asks for were together until now. A server that says for ever that more pages
// follow would have all memory.
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

// open returns what requests go by. The first one finds that out.
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
	here := false
	if err == nil && t.SelfUID != "" {
		here, err = t.runsIn(ctx, transport)
	}
	if here {
		transport, err = t.locally(to)
	}
	if err == nil {
		to.transport = transport
	}
	return transport, err
}

// dial returns what sends requests to the server of a configuration, and bounds the answers. An API server redirects no client, and it
// would be without these bounds.
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

// runsIn asks a cluster whether it has the pod that this runs in, as ClusterCache does. (runningOnWorkloadCluster)
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

// locally is the way to the cluster that this runs in, by its credentials in the kubeconfig.
func (t *Transports) locally(to *route) (http.RoundTripper, error) {
	local, err := t.Local()
	if err != nil {
		return nil, fmt.Errorf("find the API server of the cluster that this runs in: %w", err)
	}
	here := rest.CopyConfig(to.config)
	here.Host, here.CAData, here.CAFile = local.Host, local.CAData, local.CAFile
	here.ServerName, here.Insecure = local.ServerName, local.Insecure
	return t.dial(to, here)
}

// addressed sends requests to a server, whatever server they name.
type addressed struct {
	server *url.URL
	next   http.RoundTripper
}

// RoundTrip sends a request.
func (a addressed) RoundTrip(r *http.Request) (*http.Response, error) {
	there, address := r.WithContext(r.Context()), *r.URL
	address.Scheme, address.Host = a.server.Scheme, a.server.Host
	if address.RawPath != "" {
		address.RawPath = strings.TrimSuffix(a.server.EscapedPath(), "/") + address.RawPath
	}
	address.Path = strings.TrimSuffix(a.server.Path, "/") + address.Path
	// With the resource version 0 a reflector begins its list, and an API server gives everything at once, from its cache. Without it
	// the list comes in the pages that client-go asks for: all nodes of a large cluster are longer than an answer may be. (Kubernetes API
	// concepts, "Semantics for get and list"; client-go, Reflector.list.)
	query := address.Query()
	if r.Method == http.MethodGet && query.Has("limit") && query.Get("resourceVersion") == "0" && !query.Has("watch") {
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
		address.RawQuery = query.Encode()
	}
	there.URL, there.Host = &address, ""
	return a.next.RoundTrip(there)
}
