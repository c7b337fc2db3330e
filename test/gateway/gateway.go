// Package gateway is an HTTPS proxy before an API server, for tests of what becomes of programs whose requests fail. Whoever goes
// through it is an administrator there. It counts writes, and lets chosen requests fail.
package gateway

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Gateway is a way to an API server. It is safe for concurrent use.
type Gateway struct {
	server   *httptest.Server
	upstream *httputil.ReverseProxy
	counts   func(Call) bool

	mu    sync.Mutex
	plans map[string]*Plan // by namespace
	// stalled are the resources whose watches tell nothing; what is closed lets them go on.
	stalled map[string]chan struct{}
}

// New opens a gateway. counts tells the writes that have an effect on the world from those that have none, such as events.
func New(to *rest.Config, counts func(Call) bool) (*Gateway, error) {
	target, err := url.Parse(to.Host)
	if err != nil {
		return nil, fmt.Errorf("read the address of an API server: %w", err)
	}
	transport, err := rest.TransportFor(to)
	if err != nil {
		return nil, fmt.Errorf("make a way to %s: %w", to.Host, err)
	}
	g := &Gateway{counts: counts, plans: map[string]*Plan{}, stalled: map[string]chan struct{}{}}
	silence := log.New(io.Discard, "", 0) // connections break here on purpose
	g.upstream = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: g.stallWatch,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:       silence,
	}
	g.server = httptest.NewUnstartedServer(g)
	g.server.Config.ErrorLog = silence
	g.server.StartTLS()
	return g, nil
}

// Close breaks all connections.
func (g *Gateway) Close() {
	g.server.CloseClientConnections()
	g.server.Close()
}

// Config is the way through the gateway.
func (g *Gateway) Config() *rest.Config {
	return &rest.Config{Host: g.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: g.authority()}}
}

// Kubeconfig is the same as the content of a file.
func (g *Gateway) Kubeconfig() ([]byte, error) { return g.kubeconfig(g.server.URL) }

// Workload is a kubeconfig for the workload cluster of a namespace, whose part the same API server plays. What comes this way falls
// under the plan of that namespace, though it be about nodes, and can be told by Call.Workload.
func (g *Gateway) Workload(namespace string) ([]byte, error) {
	return g.kubeconfig(g.server.URL + workload + namespace)
}

func (g *Gateway) kubeconfig(address string) ([]byte, error) {
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"g": {Server: address, CertificateAuthorityData: g.authority()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"g": {}},
		Contexts:       map[string]*clientcmdapi.Context{"g": {Cluster: "g", AuthInfo: "g"}},
		CurrentContext: "g",
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of a gateway: %w", err)
	}
	return content, nil
}

func (g *Gateway) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
}

// Expect starts to count the writes of a namespace anew, and decides the fate of one of them: the nth, or of none if that is 0.
func (g *Gateway) Expect(namespace string, nth int, f Fate) *Plan {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plans[namespace] = &Plan{Nth: nth, Fate: f}
	return g.plans[namespace]
}

// Forget ends all plans.
func (g *Gateway) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plans = map[string]*Plan{}
}

// ServeHTTP passes a request on, or does to it what the plan has.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := callOf(r)
	g.mu.Lock()
	p := g.plans[c.Namespace]
	g.mu.Unlock()
	if p == nil {
		g.upstream.ServeHTTP(w, r)
		return
	}
	switch code := p.answer(c); {
	case code != 0:
		fail(w, code)
	case c.Method == http.MethodGet:
		g.upstream.ServeHTTP(w, r)
	default:
		g.write(w, r, p, c)
	}
}

// write carries out a write as p has it.
func (g *Gateway) write(w http.ResponseWriter, r *http.Request, p *Plan, c Call) {
	answer, happens := g.carryOut(r, p, c)
	switch happens {
	case Refused:
		fail(w, http.StatusInternalServerError)
	case Carried:
		panic(http.ErrAbortHandler) // the connection breaks
	case Last: // whoever asks is about to crash
		_, _ = io.Copy(io.Discard, r.Body) // or the server would not notice that the connection is gone
		<-r.Context().Done()
	default:
		for key, values := range answer.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // whoever has gone meanwhile does not hear it
	}
}

// carryOut does one write of a plan at a time, so that what is last is last. It returns what the plan has for it, if anything.
func (g *Gateway) carryOut(r *http.Request, p *Plan, c Call) (*httptest.ResponseRecorder, Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Fate == Last && p.Nth > 0 && p.tried >= p.Nth {
		return nil, Last // it comes too late: events do as well
	}
	counted, struck := g.counts(c), false
	if counted {
		p.tried++
		struck = p.tried == p.Nth
	}
	if struck && p.Fate == Refused {
		return nil, Refused
	}
	answer := httptest.NewRecorder()
	g.upstream.ServeHTTP(answer, r)
	switch {
	case !counted:
	case answer.Code < http.StatusMultipleChoices:
		p.done = append(p.done, c.String())
	case p.Fate == Last: // what the API server itself refused, a conflict, was no write
		p.tried--
		struck = false
	}
	if !struck {
		return answer, ""
	}
	return answer, p.Fate
}

// Stall keeps back what watches of a resource would tell, until the returned function is called.
func (g *Gateway) Stall(resource string) (goOn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	g.stalled[resource] = c
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.stalled, resource)
		close(c)
	})
}

func (g *Gateway) stallWatch(r *http.Response) error {
	if r.Request.URL.Query().Get("watch") != "" {
		path := strings.Split(r.Request.URL.Path, "/")
		r.Body = watched{ReadCloser: r.Body, by: g, resource: path[len(path)-1]}
	}
	return nil
}

// watched is the body of a watch's answer.
type watched struct {
	io.ReadCloser
	by       *Gateway
	resource string
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.by.mu.Lock()
	stalled := w.by.stalled[w.resource]
	w.by.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
	return n, err
}
