// Package hostile has API servers of workload clusters that hang, answer without end, or a byte a second, for tests of what
// they cost others.
//
// Its own tests run the controller of MachineHealthChecks beside them. The workload clusters are cheap servers of this
// process, and so is the management cluster, which is a store in memory. The controller, its workers, the connections, their
// caches and all that bounds them are the real ones; ClusterCache is stood in for, so that no manager is needed. test/bench
// runs a whole manager beside the same servers.
package hostile

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server is the API server of a workload cluster, as far as kubemend asks it: nodes, listed, watched and one by one. It is
// far cheaper than a real one, and no kinder: it answers what one would.
type Server struct {
	*httptest.Server

	mu      sync.Mutex
	open    int // requests that are not answered
	most    int // of these at the same time
	nodes   map[string]bool
	events  chan string // tells a watch
	listed  atomic.Int32
	asked   atomic.Int32
	answers func(w http.ResponseWriter, r *http.Request) bool // a hostile answer, if it gives one
}

// Hostility makes the answers of a hostile server: each reports whether it was one.
type Hostility func(*Server) func(http.ResponseWriter, *http.Request) bool

// NewServer starts a server that has those nodes. It is an honest one if answers is nil.
func NewServer(answers Hostility, nodes ...string) *Server {
	s := &Server{nodes: map[string]bool{}, events: make(chan string, 1)}
	for _, name := range nodes {
		s.nodes[name] = true
	}
	if answers != nil {
		s.answers = answers(s)
	}
	s.Server = httptest.NewServer(s)
	return s
}

// Lose deletes a node.
func (s *Server) Lose(name string) {
	s.mu.Lock()
	delete(s.nodes, name)
	s.mu.Unlock()
	s.events <- fmt.Sprintf(`{"type":"DELETED","object":%s}`+"\n", nodeJSON("Node", "v1", name))
}

// Gain adds a node.
func (s *Server) Gain(name string) {
	s.mu.Lock()
	s.nodes[name] = true
	s.mu.Unlock()
	s.events <- fmt.Sprintf(`{"type":"ADDED","object":%s}`+"\n", nodeJSON("Node", "v1", name))
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if content, leads := discovery[r.URL.Path]; leads {
		_, _ = io.WriteString(w, content)
		return
	}
	if s.answers != nil && s.hostile(w, r) {
		return
	}
	name, one := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	switch {
	case one:
		s.get(w, name)
	case r.URL.Query().Get("sendInitialEvents") == "true": // as before v1.32
		status(w, http.StatusUnprocessableEntity, "Invalid", "")
	case r.URL.Query().Has("watch"):
		s.watch(w, r)
	default:
		s.list(w, r)
	}
}

// hostile gives the hostile answer, if there is one to a request.
func (s *Server) hostile(w http.ResponseWriter, r *http.Request) bool {
	opened := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open += n
		s.most = max(s.most, s.open)
	}
	opened(1)
	defer opened(-1)
	return s.answers(w, r)
}

// discovery is what ClusterCache asks for before and while it is connected: its probe, and which kinds there are. All servers answer it.
var discovery = map[string]string{
	"/":     `{"paths":["/api"]}`,
	"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[` +
		`{"name":"nodes","singularName":"node","namespaced":false,"kind":"Node","verbs":["get","list","watch","patch"]},` +
		`{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list"]}]}`,
}

func status(w http.ResponseWriter, code int, reason, node string) {
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"details":{"kind":"nodes","name":%q}}`,
		reason, code, node)
}

func (s *Server) get(w http.ResponseWriter, name string) {
	s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.nodes[name] {
		status(w, http.StatusNotFound, "NotFound", name)
		return
	}
	_, _ = io.WriteString(w, nodeJSON("PartialObjectMetadata", "meta.k8s.io/v1", name))
}

func nodeJSON(kind, version, name string) string {
	return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"name":%q,"resourceVersion":"1"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		kind, version, name)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	s.listed.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, version := "Node", "v1"
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		kind, version = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	items := make([]string, 0, len(s.nodes))
	for name := range s.nodes {
		items = append(items, nodeJSON(kind, version, name))
	}
	_, _ = fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind, version, strings.Join(items, ","))
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // the connection may be gone, which the context says
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-s.events:
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// Hostilities are what hostile servers do. They accept connections, or they would get no requests: their first list of nodes is honest.
var Hostilities = map[string]Hostility{
	"hangs on every verb": func(s *Server) func(http.ResponseWriter, *http.Request) bool {
		return afterTheFirstList(s, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	},
	"answers a byte a second": func(s *Server) func(http.ResponseWriter, *http.Request) bool {
		return afterTheFirstList(s, func(w http.ResponseWriter, r *http.Request) {
			second := time.NewTicker(time.Second)
			defer second.Stop()
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-second.C:
				case <-r.Context().Done():
				}
			}
		})
	},
	"answers endless lists": func(s *Server) func(http.ResponseWriter, *http.Request) bool {
		// In protobuf, which may be longest, and of nodes of 14 KB, which are not cut off because there are too many.
		const kind = "\x0a\x02v1\x12\x08NodeList"
		head := "k8s\x00" + field(1, len(kind)) + kind + field(2, 1<<40)
		name := strings.Repeat("n", 14_000)
		metadata := field(1, len(name)) + name
		node := field(1, len(metadata)) + metadata
		many := strings.Repeat(field(2, len(node))+node, 100)
		return func(w http.ResponseWriter, r *http.Request) bool {
			if s.honest(r) || strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
				return false
			}
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				return false
			}
			if r.URL.Query().Has("watch") { // so that the nodes are listed again
				status(w, http.StatusGone, "Expired", "")
				return true
			}
			s.asked.Add(1)
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			_, err := io.WriteString(w, head)
			for err == nil && r.Context().Err() == nil {
				_, err = io.WriteString(w, many)
			}
			return true
		}
	},
}

// field is the head of a field of a message in protobuf: its number, and how long it is.
func field(number byte, length int) string {
	return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(length)))
}

// honest reports whether a request is for the first list, or for what leads to it.
func (s *Server) honest(r *http.Request) bool {
	return s.listed.Load() == 0 && r.URL.Path == "/api/v1/nodes"
}

func afterTheFirstList(s *Server, then http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if s.honest(r) {
			return false
		}
		s.asked.Add(1)
		then(w, r)
		return true
	}
}
