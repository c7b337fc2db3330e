package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
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

const (
	// nodesPath is where the nodes of a cluster are.
	nodesPath = "/api/v1/nodes"
	// staleFor is how long the cache of a cluster's nodes is not believed after a list of them was cut off: reflectors ask again within a
	// minute, and for ever.
	staleFor = time.Minute
	// paged is how many answers of the greatest length the pages of one list may be together. client-go holds all of them until it has the
	// last.
	paged = 6
)

// route is the way to one cluster, and what is remembered of the answers of its API server.
type route struct {
	refused *RefusedError // why its kubeconfig is refused; nil if it is not. Guarded by Transports.

	clock   clockerror.Server
	circuit *circuit
	// reconnects makes ClusterCache connect to the cluster anew, as it does when its probe, of the path /, is unauthorized.
	// (clusterAccessor.)
	reconnects atomic.Bool

	dialing    sync.Mutex // also while the server is asked whether this runs in its cluster
	kubeconfig string
	config     *rest.Config
	transport  http.RoundTripper

	mu         sync.Mutex
	staleUntil time.Time        // until when its cache may show nodes as they were, because an answer about them was cut off
	pages      map[string]int64 // how long the pages of each list were together until now
}

func newRoute(cluster client.ObjectKey, now clock.PassiveClock) *route {
	return &route{
		clock: clockerror.Server{Namespace: cluster.Namespace, Cluster: cluster.Name}, circuit: newCircuit(now), pages: map[string]int64{},
	}
}

// connect makes requests go by a kubeconfig from now on.
func (to *route) connect(kubeconfig string, config *rest.Config) {
	to.dialing.Lock()
	defer to.dialing.Unlock()
	if to.kubeconfig != kubeconfig {
		to.kubeconfig, to.config, to.transport = kubeconfig, config, nil
	}
}

// unsure reports whether the cache of the nodes may show them as they were at now.
func (to *route) unsure(now time.Time) bool {
	to.mu.Lock()
	defer to.mu.Unlock()
	return now.Before(to.staleUntil)
}

// ended takes note of how an answer ends.
func (to *route) ended(r *http.Request, err error, now time.Time) {
	if r.URL.Path == nodesPath && errors.Is(err, errNoAnswer) {
		to.mu.Lock()
		defer to.mu.Unlock()
		to.staleUntil = now.Add(staleFor)
	}
}

// send sends a request, and takes note of the answer. If a worker waits for it, leave hears how it ended, once it was read to the end or
// closed.
func (t *Transports) send(r *http.Request, to *route, leave func(error)) (answer *http.Response, err error) {
	defer func() {
		if err == nil {
			return
		}
		to.ended(r, err, t.clock.Now())
		if leave != nil {
			err = final(err)
			leave(err)
		}
	}()
	transport, err := t.open(r.Context(), to)
	if err != nil {
		return unsent(r, err)
	}
	sent := t.clock.Now()
	answer, err = transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	to.clock.Note(sent, t.clock.Now(), answer.Header)
	var ended error
	read, pages := &body{ReadCloser: answer.Body}, to.pagesOf(r)
	read.read = func(n int, err error) error {
		if pages(int64(n)) > t.limit*paged {
			err = errPages
		}
		to.ended(r, err, t.clock.Now())
		ended = err
		return err
	}
	if leave != nil {
		answer.Header.Del("Retry-After") // client-go would wait that long, with the worker
		read.closed = func() { leave(ended) }
	}
	answer.Body = read
	return answer, nil
}

// pagesOf returns what counts the bytes of the pages of the list that a request asks for. A server that says for ever that more pages
// follow would have all memory.
func (to *route) pagesOf(r *http.Request) func(read int64) int64 {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !query.Has("limit") {
		return func(int64) int64 { return 0 }
	}
	list := r.Header.Get("Accept") + " " + r.URL.Path + " " + query.Get("fieldSelector")
	count := func(read int64) int64 {
		to.mu.Lock()
		defer to.mu.Unlock()
		to.pages[list] += read
		return to.pages[list]
	}
	if !query.Has("continue") {
		count(-count(0))
	}
	return count
}

// body is the body of an answer of which read learns how much was read and how that ended, and closed that it was closed.
type body struct {
	io.ReadCloser
	read   func(n int, err error) error
	closed func()
}

// Read reads the body.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, b.read(n, err)
}

// Close closes the body.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	if b.closed != nil {
		b.closed()
	}
	return err
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
	transport, err := t.dial(to.config)
	here := false
	if err == nil && t.SelfUID != "" {
		here, err = t.runsIn(ctx, transport)
	}
	if here {
		transport, err = t.locally(to.config)
	}
	if err == nil {
		to.transport = transport
	}
	return transport, err
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
	answer, err := a.next.RoundTrip(there)
	if err == nil {
		answer.Request = r
	}
	return answer, err
}
