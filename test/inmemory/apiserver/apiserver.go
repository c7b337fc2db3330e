// Package apiserver is a Kubernetes API server in memory. Clients reach it over HTTP, and no byte leaves the process: http.DefaultTransport
// hands it the requests to its address. So real clients, caches and controllers run on it, in a bubble of testing/synctest too, where the
// clock is virtual.
//
// It does what kubemend relies on, as the API server does it (Kubernetes documentation, "API concepts"; the generic registry's store.go):
// resource versions, preconditions, generations, finalizers, status as a resource of its own, selectors, watches that end. What schemas,
// CEL, webhooks and RBAC decide is not here: that is tested on a real one.
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
	// ClusterScoped objects have no namespace.
	ClusterScoped bool
	// NoStatus says that the status is written with the rest of the object.
	NoStatus bool
	// Default fills in what the schema has defaults for; nil for none.
	Default func(*unstructured.Unstructured)
}

func (k Kind) resource() schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(k.GroupVersionKind)
	return resource
}

// Call is a request that a Server has got.
type Call struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb, Resource, Subresource, Namespace, Name string
	// Manager is the field manager of a write, or the program.
	Manager string
	// Failed says that it was answered with an error, such as a conflict.
	Failed bool
}

// Tester is who changes objects for a test: its calls are answered although others are refused or left without an answer.
const Tester = "tester"

// Writes reports whether the call is one that changes objects.
func (c Call) Writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, c.Verb)
}

// Server is an API server. It is safe for concurrent use.
type Server struct {
	host string

	mu       sync.Mutex
	kinds    map[schema.GroupVersionResource]Kind
	objects  map[schema.GroupResource]map[string]*unstructured.Unstructured // by namespace/name; never changed
	version  int
	born     int
	history  []event
	watchers map[*watcher]bool
	calls    []Call
	lag      bool          // watches hear of nothing new
	silence  chan struct{} // closed when it ends that nothing is answered; nil while there is none
	refused  func(Call) bool
	hostile  func(*http.Request) *http.Response
}

var (
	serversMu sync.RWMutex
	servers   = map[string]*Server{}
)

// Install makes http.DefaultTransport hand requests by http to the Servers of this process. It returns what undoes that.
func Install() (undo func()) {
	was := http.DefaultTransport
	transport := &http.Transport{}
	transport.RegisterProtocol("http", roundTripper{})
	http.DefaultTransport = transport
	return func() { http.DefaultTransport = was }
}

// New starts a server at http://host, which serves these kinds.
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

// Open makes the server answer at its address, in place of any other one.
func (s *Server) Open() {
	serversMu.Lock()
	defer serversMu.Unlock()
	servers[s.host] = s
}

// Close ends the server: nobody answers at its address any more.
func (s *Server) Close() {
	serversMu.Lock()
	defer serversMu.Unlock()
	delete(servers, s.host)
}

// Serve makes the server serve more kinds.
func (s *Server) Serve(kinds ...Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range kinds {
		s.kinds[kind.resource()] = kind
	}
}

// Config is how clients reach the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://" + s.host, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// Calls are all calls so far that are wanted.
func (s *Server) Calls(wanted func(Call) bool) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(call Call) bool { return !wanted(call) })
}

// Lag makes watches hear of nothing that happens from now on, until it is called with false: caches show what there was.
func (s *Server) Lag(lag bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = lag
	for w := range s.watchers {
		w.notify()
	}
}

// Still makes the watches of all servers hear of nothing until it is called with false.
func Still(still bool) {
	serversMu.RLock()
	defer serversMu.RUnlock()
	for _, s := range servers {
		s.Lag(still)
	}
}

// Silence leaves all requests but the tester's without an answer and ends all watches, until it is called with false. Then the connections
// break on which there was none.
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

// Refuse makes the server refuse the calls that are chosen, instead of those chosen before; nil chooses none.
func (s *Server) Refuse(chosen func(Call) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = chosen
}

// Answer makes the server answer requests by answer, unless that is nil: a hostile server answers as it likes, or blocks until the request
// is given up.
func (s *Server) Answer(answer func(*http.Request) *http.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostile = answer
}

// roundTripper hands requests to the Servers.
type roundTripper struct{}

// RoundTrip is what http.DefaultTransport does with a request by http.
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

// requests reads what is asked for as an API server does.
var requests = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// callOf is the call that a request makes, and its resource, which is empty if the request is for no objects.
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
		call.Namespace = "" // there it is the name, so that rights in a namespace are rights to it
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
