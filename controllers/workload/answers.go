package workload

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

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

// answers is what is remembered of the answers of one cluster's API server.
type answers struct {
	clock   clockerror.Server
	circuit *circuit

	mu         sync.Mutex
	staleUntil time.Time        // until when its cache may show nodes as they were, because an answer about them was cut off
	pages      map[string]int64 // how long the pages of each list were together until now
}

func newAnswers(cluster client.ObjectKey, now clock.PassiveClock) *answers {
	return &answers{
		clock: clockerror.Server{Namespace: cluster.Namespace, Cluster: cluster.Name}, circuit: newCircuit(now), pages: map[string]int64{},
	}
}

// unsure reports whether the cache of the nodes may show them as they were at now.
func (a *answers) unsure(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.staleUntil)
}

// observe makes the body of answer take note of how it is read. More of the pages of a list than there may be is an error: a server that
// always says that more follow would have all memory otherwise.
func (a *answers) observe(r *http.Request, answer *http.Response, limit int64, now func() time.Time) {
	query, list := r.URL.Query(), ""
	if r.Method == http.MethodGet && query.Has("limit") {
		list = r.Header.Get("Accept") + " " + r.URL.Path + " " + query.Get("fieldSelector")
	}
	if list != "" && !query.Has("continue") {
		a.mu.Lock()
		a.pages[list] = 0
		a.mu.Unlock()
	}
	answer.Body = &body{ReadCloser: answer.Body, read: func(n int, err error) error {
		a.mu.Lock()
		if list != "" {
			if a.pages[list] += int64(n); a.pages[list] > limit*paged {
				err = errPages
			}
		}
		a.mu.Unlock()
		a.ended(r, err, now())
		return err
	}}
}

// ended takes note of how an answer ends.
func (a *answers) ended(r *http.Request, err error, now time.Time) {
	if r.URL.Path == nodesPath && errors.Is(err, errNoAnswer) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.staleUntil = now.Add(staleFor)
	}
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

// inPages is the query by which a list comes in the pages that client-go asks for. Of the resource version 0, with which a reflector
// begins, an API server gives everything at once, from its cache; of none, page by page, as it is now. (Kubernetes API concepts,
// "Semantics for get and list"; client-go, Reflector.list.) All nodes of a large cluster are longer than an answer may be.
func inPages(address *url.URL) string {
	query := address.Query()
	if !query.Has("limit") || query.Get("resourceVersion") != "0" || query.Has("watch") {
		return address.RawQuery
	}
	query.Del("resourceVersion")
	query.Del("resourceVersionMatch")
	return query.Encode()
}
