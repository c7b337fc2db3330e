// Package hostile has API servers of workload clusters that hang, answer without end, or a byte a second: test/bench measures what they cost
// others. That each of them holds few workers, and those once, is tested in controllers/workload.
package hostile

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Server is the API server of a workload cluster, as far as kubemend asks it: nodes, listed, watched and one by one. It is
// far cheaper than a real one, and no kinder: it answers what one would.
type Server struct {
	*httptest.Server

	nodes   []string
	listed  atomic.Int32
	answers func(w http.ResponseWriter, r *http.Request) bool // a hostile answer, if it gives one
}

// Hostility makes the answers of a hostile server: each reports whether it was one.
type Hostility func(*Server) func(http.ResponseWriter, *http.Request) bool

// NewServer starts a server that has those nodes. It is an honest one if answers is nil.
func NewServer(answers Hostility, nodes ...string) *Server {
	s := &Server{nodes: nodes}
	if answers != nil {
		s.answers = answers(s)
	}
	s.Server = httptest.NewServer(s)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if content, leads := discovery[r.URL.Path]; leads {
		_, _ = io.WriteString(w, content)
		return
	}
	if s.answers != nil && s.answers(w, r) {
		return
	}
	name, one := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	switch {
	case one:
		s.get(w, name)
	case r.URL.Query().Get("sendInitialEvents") == "true": // as before v1.32
		status(w, http.StatusUnprocessableEntity, "Invalid", "")
	case r.URL.Query().Has("watch"):
		watch(w, r)
	default:
		s.list(w, r)
	}
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
	if !slices.Contains(s.nodes, name) {
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
	kind, version := "Node", "v1"
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		kind, version = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	items := make([]string, 0, len(s.nodes))
	for _, name := range s.nodes {
		items = append(items, nodeJSON(kind, version, name))
	}
	_, _ = fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind, version, strings.Join(items, ","))
}

// watch tells nothing: the nodes stay as they are.
func watch(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // the connection may be gone, which the context says
	<-r.Context().Done()
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
		then(w, r)
		return true
	}
}
