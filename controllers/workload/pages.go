package workload

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
)

// paged is how many answers of the greatest length the pages of one list may be together. client-go holds all of them until it has the last.
const paged = 6

// errPages is the error of a page of a list that is too long with those before it.
var errPages = fmt.Errorf("%w: the pages of a list are longer than %d answers may be", errNoAnswer, paged)

// inPages is the query by which a list comes in the pages that client-go asks for. Of the resource version 0, with which a reflector begins, an API server
// gives everything at once, from its cache; of none, page by page, as it is now. (Kubernetes API concepts, "Semantics for get and list"; client-go,
// Reflector.list.) All nodes of a large cluster are longer than an answer may be.
func inPages(address *url.URL) string {
	query := address.Query()
	if !query.Has("limit") || query.Get("resourceVersion") != "0" || query.Has("watch") {
		return address.RawQuery
	}
	query.Del("resourceVersion")
	query.Del("resourceVersionMatch")
	return query.Encode()
}

// pages counts how long the pages of each list are together. A server that always says that more follow would have all memory otherwise.
type pages struct {
	mu   sync.Mutex
	read map[string]int64 // by what is listed
}

// counted is the body of an answer to r. If it is a page of a list, it counts with those before it, and ends with an error once they are too long.
func (p *pages) counted(r *http.Request, body io.ReadCloser, limit int64) io.ReadCloser {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !query.Has("limit") || query.Has("fieldSelector") { // the pages of a list by a field are not kept
		return body
	}
	list := r.Header.Get("Accept") + " " + r.URL.Path // one reflector of a kind is there, and lists of metadata besides
	if !query.Has("continue") {
		p.begin(list)
	}
	return &page{ReadCloser: body, read: func(n int64) bool { return p.add(list, n) <= limit*paged }}
}

// begin forgets what was read of a list, whose first page comes.
func (p *pages) begin(list string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.read, list)
}

// add adds n bytes to what was read of a list, and returns how much that is.
func (p *pages) add(list string, n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.read == nil {
		p.read = map[string]int64{}
	}
	p.read[list] += n
	return p.read[list]
}

// page is the body of one page.
type page struct {
	io.ReadCloser
	read func(n int64) bool
}

// Read reads the body.
func (p *page) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if !p.read(int64(n)) {
		return 0, errPages
	}
	return n, err
}
