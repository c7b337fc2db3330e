package workload

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Transports carry the requests to workload clusters, each by the cluster's own kubeconfig, and cut off answers that are too long.
// Transports is safe for concurrent use.
type Transports struct {
	// limit is how long an answer may be, in bytes, as it is after decompression.
	limit int64
	clock clock.PassiveClock
	// Self is the pod that this runs in, by its name and UID, and Local the way to the API server of the cluster that it runs in. A
	// workload cluster that has the pod is that cluster, and is asked that way, with its own credentials. No UID means that this runs in no
	// pod.
	Self    types.NamespacedName
	SelfUID types.UID
	Local   func() (*rest.Config, error)

	mu     sync.RWMutex
	routes map[string]*route // by host
}

// NewTransports returns transports that give no answer of more bytes than limit, as it is after decompression.
func NewTransports(limit int64, now clock.PassiveClock) *Transports {
	return &Transports{limit: limit, clock: now, routes: map[string]*route{}}
}

// MostNodes is how many nodes a cluster may have: so many that a list of the smallest there are is not cut off.
func (t *Transports) MostNodes() int64 { return t.limit / bytesPerItem }

// route takes note of the kubeconfig of a cluster, and returns the one by which its requests come here.
func (t *Transports) route(cluster client.ObjectKey, kubeconfig []byte) ([]byte, error) {
	config, err := RESTConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	host := hostOf(cluster)
	t.mu.Lock()
	if known := t.routes[host]; known == nil || known.kubeconfig != string(kubeconfig) {
		answers := newAnswers(cluster, t.clock)
		if known != nil {
			answers = known.answers
		}
		t.routes[host] = &route{kubeconfig: string(kubeconfig), config: config, answers: answers}
	}
	t.mu.Unlock()
	return carriedBy(host)
}

// forget drops the kubeconfig of a cluster.
func (t *Transports) forget(cluster client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if route := t.routes[hostOf(cluster)]; route != nil {
		route.answers.clock.Forget()
	}
	delete(t.routes, hostOf(cluster))
}

// routeOf returns the way to a cluster; nil if none is known.
func (t *Transports) routeOf(cluster client.ObjectKey) *route {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.routes[hostOf(cluster)]
}

// RoundTrip sends a request to the cluster that its address names.
func (t *Transports) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.RLock()
	route := t.routes[r.URL.Host]
	t.mu.RUnlock()
	// A kubeconfig that is forgotten with a deleted Cluster may be that of one that was made again under its name, and was connected to
	// before its deletion was heard of.
	if r.URL.Path == "/" && (route == nil || route.reconnects.Swap(false)) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	if route == nil {
		return unsent(r, fmt.Errorf("no kubeconfig of %s is known", r.URL.Host))
	}
	if !awaited(r) {
		return t.send(r, route)
	}
	return route.answers.circuit.pass(r, func(r *http.Request) (*http.Response, error) { return t.send(r, route) })
}

// send sends a request, and takes note of the answer.
func (t *Transports) send(r *http.Request, route *route) (*http.Response, error) {
	transport, err := route.open(r.Context(), t)
	if err != nil {
		return unsent(r, err)
	}
	sent := t.clock.Now()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		route.answers.ended(r, err, t.clock.Now())
		return nil, err
	}
	route.answers.clock.Note(sent, t.clock.Now(), answer.Header)
	route.answers.observe(r, answer, t.limit, t.clock.Now)
	return answer, nil
}

// unsent is how a RoundTripper ends a request that it does not send.
func unsent(r *http.Request, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close() // it was not read
	}
	return nil, err
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
	if r.Method == http.MethodGet {
		address.RawQuery = inPages(r.URL)
	}
	there.URL, there.Host = &address, ""
	answer, err := a.next.RoundTrip(there)
	if err == nil {
		answer.Request = r
	}
	return answer, err
}

// route is the way to one cluster by one kubeconfig.
type route struct {
	kubeconfig string
	config     *rest.Config
	answers    *answers // the same ones whatever its kubeconfig is, which is for the tenant to change
	// reconnects makes ClusterCache connect to the cluster anew, as it does when its probe, of the path /, is unauthorized.
	// (clusterAccessor.)
	reconnects atomic.Bool

	mu        sync.Mutex
	transport http.RoundTripper
}

// open returns what requests go by. The first one finds that out.
func (r *route) open(ctx context.Context, t *Transports) (http.RoundTripper, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.transport != nil {
		return r.transport, nil
	}
	transport, err := t.dial(r.config)
	if err != nil {
		return nil, err
	}
	if t.SelfUID != "" {
		here, err := t.runsIn(ctx, transport)
		if err != nil {
			return nil, err
		}
		if here {
			if transport, err = t.locally(r.config); err != nil {
				return nil, err
			}
		}
	}
	r.transport = transport
	return transport, nil
}

// dial returns what sends requests to the server of a configuration, and bounds the answers. An API server redirects no client, and it
// would be without these bounds.
func (t *Transports) dial(config *rest.Config) (http.RoundTripper, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the address of an API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a way to %s: %w", server.Host, err)
	}
	return binding{next: addressed{server, transport}, limit: t.limit}, nil
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

// locally is the way to the cluster that this runs in, by the credentials of config.
func (t *Transports) locally(config *rest.Config) (http.RoundTripper, error) {
	local, err := t.Local()
	if err != nil {
		return nil, fmt.Errorf("find the API server of the cluster that this runs in: %w", err)
	}
	here := rest.CopyConfig(config)
	here.Host, here.CAData, here.CAFile = local.Host, local.CAData, local.CAFile
	here.ServerName, here.Insecure = local.ServerName, local.Insecure
	return t.dial(here)
}
