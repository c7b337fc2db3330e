package workload

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/clockerror"
)

// nodesPath is where the nodes of a cluster are.
const nodesPath = "/api/v1/nodes"

// answers is what is remembered of the answers of one cluster's API server.
type answers struct {
	clock clockerror.Server
	gate  gate

	mu   sync.Mutex
	cut  pause            // for how long its nodes are not known because an answer about them was cut off
	read map[string]int64 // how long the pages of each list were together until now, see listOf
}

func newAnswers(cluster client.ObjectKey) *answers {
	return &answers{
		clock: clockerror.Server{Namespace: cluster.Namespace, Cluster: cluster.Name},
		gate:  gate{changed: make(chan struct{})}, read: map[string]int64{},
	}
}

// unsure reports whether the cache of the nodes may show them as they were at now: the server that has sent an answer that was cut off
// sends the next one, and reflectors ask again within half a minute to a minute, for ever.
func (a *answers) unsure(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.cut.until)
}

// cutOff notes that an answer about nodes was cut off at now.
func (a *answers) cutOff(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.cut.until) {
		a.cut.until = now.Add(a.cut.lasts)
	} else {
		a.cut = a.cut.next(now)
	}
}

// listOf is what is listed by r, and whether it asks for the first page, if client-go keeps the pages of that list until it has the last:
// those of whole objects by a field are not kept, those of metadata are, which an informer lists so. One reflector of a kind and a field is
// there, and lists of metadata besides.
func listOf(r *http.Request) (list string, first bool) {
	query, accept := r.URL.Query(), r.Header.Get("Accept")
	field := query.Get("fieldSelector")
	if r.Method != http.MethodGet || !query.Has("limit") || field != "" && !strings.Contains(accept, "as=PartialObjectMetadataList") {
		return "", false
	}
	return accept + " " + r.URL.Path + " " + field, !query.Has("continue")
}

// add adds n bytes to what was read of a list, from its first page on, and returns how much that is. A server that always says that more
// follow would have all memory otherwise.
func (a *answers) add(list string, n int, first bool) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first {
		a.read[list] = 0
	}
	a.read[list] += int64(n)
	return a.read[list]
}

// reading is the body of an answer of which read learns how much of it was read, and how that ended.
type reading struct {
	io.ReadCloser
	read func(n int, err error) error
}

// Read reads the body.
func (b *reading) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, b.read(n, err)
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
