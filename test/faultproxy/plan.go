package faultproxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Plan says what happens to the requests of one namespace.
type Plan struct {
	// Nth is the number of the write that Fate happens to; 0 for none.
	Nth  int
	Fate Fate

	mu      sync.Mutex
	tried   int
	done    []string
	refuses func(Call) int
}

// Fate is what happens to the nth write of a plan.
type Fate string

// What can happen to a write.
const (
	Refused Fate = "is refused"
	Carried Fate = "is carried out, and its answer is lost"
	Last    Fate = "is the last one before a crash"
)

// Refuse lets requests fail, now and until it is called again: those for which the function returns a status. nil lets all pass.
func (p *Plan) Refuse(status func(Call) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = status
}

// RefuseReads lets live reads of a resource fail, one by one and not in lists.
func (p *Plan) RefuseReads(resource string) {
	p.Refuse(func(c Call) int {
		if c.Method == http.MethodGet && c.Rest != "" && c.Resource == resource {
			return http.StatusInternalServerError
		}
		return 0
	})
}

// Written returns what was carried out under the plan, like "PATCH machines/a/status", and whether its fate has struck.
func (p *Plan) Written() (done []string, struck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.done), p.Nth > 0 && p.tried >= p.Nth
}

// answer is the status with which a request fails; 0 if it does not.
func (p *Plan) answer(c Call) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses == nil {
		return 0
	}
	return p.refuses(c)
}

// Call is a request to an API server, taken apart.
type Call struct {
	Method, Namespace, Resource string
	// Rest is what follows the resource: a name, and maybe a subresource.
	Rest string
	// Workload says that it was made to a workload cluster. Its namespace is then that of the cluster.
	Workload bool
}

// workload begins the paths to workload clusters. What follows is the namespace.
const workload = "/workload/"

// callOf takes a request apart, and makes it one to the API server if it is one to a workload cluster.
func callOf(r *http.Request) Call {
	c := Call{Method: r.Method}
	var cluster string
	if cluster, c.Workload = strings.CutPrefix(r.URL.Path, workload); c.Workload {
		c.Namespace, r.URL.Path, _ = strings.Cut(cluster, "/")
		r.URL.Path, r.URL.RawPath = "/"+r.URL.Path, ""
	}
	path := resourcePath(r.URL.Path)
	if rest, within := strings.CutPrefix(path, "namespaces/"); within {
		namespace, of, _ := strings.Cut(rest, "/")
		if path = of; !c.Workload {
			c.Namespace = namespace
		}
	}
	c.Resource, c.Rest, _ = strings.Cut(path, "/")
	return c
}

// resourcePath is a path without the group and the version.
func resourcePath(path string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 4)
	switch {
	case parts[0] == "api" && len(parts) > 2:
		return strings.Join(parts[2:], "/")
	case parts[0] == "apis" && len(parts) > 3:
		return parts[3]
	default:
		return ""
	}
}

// String is the call without the namespace.
func (c Call) String() string {
	return strings.TrimSuffix(c.Method+" "+c.Resource+"/"+c.Rest, "/")
}

func fail(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reason := strings.ReplaceAll(http.StatusText(code), " ", "")
	if code == http.StatusInternalServerError {
		reason = "InternalError"
	}
	_, _ = fmt.Fprintf(w, // the client may be gone
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"the test lets this fail","code":%d}`, reason, code)
}
