// Package apiserver is a Kubernetes API server in memory. Clients use HTTP, but http.DefaultTransport passes the requests to it within the
// process. So real clients, caches and controllers run on it, also in a bubble of testing/synctest with its virtual clock.
//
// It implements what kubemend relies on, in the way of the real API server (Kubernetes documentation, "API concepts"; the generic
// registry's store.go): resource versions, preconditions, generations, finalizers, the status subresource, selectors, and watches that end.
// Schemas, CEL, webhooks and RBAC are tested on a real API server.
package apiserver

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Kind is a kind that a Server serves.
type Kind struct {
	schema.GroupVersionKind
	// ClusterScoped means that objects of the kind have no namespace.
	ClusterScoped bool
	// NoStatus means that the kind has no status subresource.
	NoStatus bool
	// Default sets the defaults of the schema; nil for none.
	Default func(*unstructured.Unstructured)
}

func (k Kind) resource() schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(k.GroupVersionKind)
	return resource
}

// Call is a request that a Server has received.
type Call struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb, Resource, Subresource, Namespace, Name string
	// Manager is the field manager of a write, or else the name of the program.
	Manager string
	// Failed is true if the answer was an error, such as a conflict.
	Failed bool
}

// Tester is the user agent of tests: its calls are not affected by Refuse, Silence and Answer.
const Tester = "tester"

// Writes reports whether the call changes objects.
func (c Call) Writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, c.Verb)
}

// Server is an API server. It is safe for concurrent use.
type Server struct {
	host string

	mu       sync.Mutex
	kinds    map[schema.GroupVersionResource]Kind
	objects  map[schema.GroupResource]map[string]*unstructured.Unstructured // by namespace/name; objects are never modified
	version  int
	born     int
	history  []event
	watchers map[*watcher]bool
	calls    []Call
	lag      bool          // watches send nothing new
	silence  chan struct{} // closed when Silence ends; nil without Silence
	refused  func(Call) bool
	hostile  func(*http.Request) *http.Response
}

var (
	serversMu sync.RWMutex
	servers   = map[string]*Server{}
)

// Install makes http.DefaultTransport pass HTTP requests to the Servers of this process, until undo is called.
func Install() (undo func()) {
	was := http.DefaultTransport
	transport := &http.Transport{}
	transport.RegisterProtocol("http", roundTripper{})
	http.DefaultTransport = transport
	return func() { http.DefaultTransport = was }
}

// New starts a server of these kinds at http://host.
func New(host string, kinds ...Kind) *Server {
	s := &Server{
		host: host, kinds: map[schema.GroupVersionResource]Kind{},
		objects:  map[schema.GroupResource]map[string]*unstructured.Unstructured{},
		watchers: map[*watcher]bool{},
	}
	s.Serve(kinds...)
	s.Open()
	return s
}

// Open makes the server answer at its address, in place of another server.
func (s *Server) Open() {
	serversMu.Lock()
	defer serversMu.Unlock()
	servers[s.host] = s
}

// Close ends the server: connections to its address are refused.
func (s *Server) Close() {
	serversMu.Lock()
	defer serversMu.Unlock()
	delete(servers, s.host)
}

// Serve makes the server serve further kinds.
func (s *Server) Serve(kinds ...Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range kinds {
		s.kinds[kind.resource()] = kind
	}
}

// Config returns the client configuration for the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://" + s.host, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// Calls returns the calls so far for which wanted returns true.
func (s *Server) Calls(wanted func(Call) bool) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(call Call) bool { return !wanted(call) })
}

// Lag keeps watches from sending new events, so that caches become stale; false ends that.
func (s *Server) Lag(lag bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = lag
	for w := range s.watchers {
		w.notify()
	}
}

// Still calls Lag for all servers.
func Still(still bool) {
	serversMu.RLock()
	defer serversMu.RUnlock()
	for _, s := range servers {
		s.Lag(still)
	}
}

// Silence leaves all requests except the tester's without an answer, and ends all watches. With false it breaks the connections of the
// waiting requests, and answers again.
func (s *Server) Silence(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silence != nil {
		close(s.silence)
	}
	if s.silence = nil; silent {
		s.silence = make(chan struct{})
	}
	for w := range s.watchers {
		w.close()
	}
}

// Refuse makes the server refuse the calls for which chosen returns true, except the tester's; nil refuses none.
func (s *Server) Refuse(chosen func(Call) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = chosen
}

// Answer makes the server use the answers of answer, unless it returns nil. So a hostile server can answer anything, or block until the
// request ends.
func (s *Server) Answer(answer func(*http.Request) *http.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostile = answer
}

// roundTripper passes requests to the Servers.
type roundTripper struct{}

// RoundTrip implements http.RoundTripper.
func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	serversMu.RLock()
	s := servers[r.URL.Host]
	serversMu.RUnlock()
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
	}
	if s == nil {
		return nil, fmt.Errorf("dial tcp: lookup %s: connection refused", r.URL.Host)
	}
	return s.serve(r, body)
}

func (s *Server) serve(r *http.Request, body []byte) (*http.Response, error) {
	call, gvr, err := callOf(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	silence := s.silence
	if call.Manager == Tester {
		silence = nil
	}
	refused := s.refused != nil && call.Manager != Tester && s.refused(call)
	nth, hostile := len(s.calls), s.hostile
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	if hostile != nil && call.Manager != Tester {
		answer := hostile(r)
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		if answer != nil {
			answer.Request = r
			return answer, nil
		}
	}
	if silence != nil {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-silence:
			return nil, errors.New("read tcp: connection reset by peer")
		}
	}
	answer := refusal(apierrors.NewInternalError(errors.New("refused")))
	if !refused {
		answer = s.do(r, gvr, call, body)
	}
	s.mu.Lock()
	s.calls[nth].Failed = answer.StatusCode >= http.StatusBadRequest
	s.mu.Unlock()
	answer.Request = r
	return answer, nil
}

// requests parses requests like a real API server.
var requests = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// callOf returns the call of a request and its resource, which is empty if the request is not for objects.
func callOf(r *http.Request) (Call, schema.GroupVersionResource, error) {
	info, err := requests.NewRequestInfo(r)
	if err != nil {
		return Call{}, schema.GroupVersionResource{}, err
	}
	call := Call{
		Verb: info.Verb, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
		Manager: r.URL.Query().Get("fieldManager"),
	}
	if call.Manager == "" {
		call.Manager, _, _ = strings.Cut(r.UserAgent(), "/")
	}
	if call.Resource == "namespaces" {
		call.Namespace = "" // the parser sets it to the name of the namespace
	}
	return call, schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}, nil
}

func sorted(objects map[string]*unstructured.Unstructured) []*unstructured.Unstructured {
	all := make([]*unstructured.Unstructured, 0, len(objects))
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		all = append(all, objects[key])
	}
	return all
}
