// Package faultproxy is an HTTPS proxy before an API server, for tests of programs whose requests fail. Its clients are
// administrators there. It counts writes, and lets chosen requests fail.
package faultproxy

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

// Proxy forwards requests to an API server. It is safe for concurrent use.
type Proxy struct {
	server   *httptest.Server
	upstream *httputil.ReverseProxy
	counts   func(Call) bool

	mu    sync.Mutex
	plans map[string]*Plan // by namespace
	// stalled are the resources whose watches are delayed; closing the channel ends that.
	stalled map[string]chan struct{}
}

// New starts a proxy. counts reports whether a write changes what a spec observes; an event, for example, does not.
func New(to *rest.Config, counts func(Call) bool) (*Proxy, error) {
	target, err := url.Parse(to.Host)
	if err != nil {
		return nil, fmt.Errorf("read the address of an API server: %w", err)
	}
	transport, err := rest.TransportFor(to)
	if err != nil {
		return nil, fmt.Errorf("make a transport to %s: %w", to.Host, err)
	}
	x := &Proxy{counts: counts, plans: map[string]*Plan{}, stalled: map[string]chan struct{}{}}
	silence := log.New(io.Discard, "", 0) // connections break here on purpose
	x.upstream = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: x.stallWatch,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:       silence,
	}
	x.server = httptest.NewUnstartedServer(x)
	x.server.Config.ErrorLog = silence
	x.server.StartTLS()
	return x, nil
}

// Close breaks all connections.
func (x *Proxy) Close() {
	x.server.CloseClientConnections()
	x.server.Close()
}

// Config connects through the proxy.
func (x *Proxy) Config() *rest.Config {
	return &rest.Config{Host: x.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: x.authority()}}
}

// Kubeconfig is the same as the content of a file.
func (x *Proxy) Kubeconfig() ([]byte, error) { return x.kubeconfig(x.server.URL) }

// Workload is a kubeconfig for the workload cluster of a namespace, whose part the same API server plays. These requests follow
// the plan of that namespace, also those about nodes, and Call.Workload marks them.
func (x *Proxy) Workload(namespace string) ([]byte, error) {
	return x.kubeconfig(x.server.URL + workload + namespace)
}

func (x *Proxy) kubeconfig(address string) ([]byte, error) {
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"g": {Server: address, CertificateAuthorityData: x.authority()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"g": {}},
		Contexts:       map[string]*clientcmdapi.Context{"g": {Cluster: "g", AuthInfo: "g"}},
		CurrentContext: "g",
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of a proxy: %w", err)
	}
	return content, nil
}

func (x *Proxy) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.server.Certificate().Raw})
}

// Expect starts to count the writes of a namespace anew, and decides the fate of one of them: the nth, or of none if that is 0.
func (x *Proxy) Expect(namespace string, nth int, f Fate) *Plan {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.plans[namespace] = &Plan{Nth: nth, Fate: f}
	return x.plans[namespace]
}

// Forget ends all plans.
func (x *Proxy) Forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.plans = map[string]*Plan{}
}

// ServeHTTP passes a request on, or does to it what the plan says.
func (x *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := callOf(r)
	x.mu.Lock()
	p := x.plans[c.Namespace]
	x.mu.Unlock()
	if p == nil {
		x.upstream.ServeHTTP(w, r)
		return
	}
	switch code := p.answer(c); {
	case code != 0:
		fail(w, code)
	case c.Method == http.MethodGet:
		x.upstream.ServeHTTP(w, r)
	default:
		x.write(w, r, p, c)
	}
}

// write carries out a write as plan p says.
func (x *Proxy) write(w http.ResponseWriter, r *http.Request, p *Plan, c Call) {
	answer, happens := x.carryOut(r, p, c)
	switch happens {
	case Refused:
		fail(w, http.StatusInternalServerError)
	case Carried:
		panic(http.ErrAbortHandler) // the connection breaks
	case Last: // the client is about to crash
		_, _ = io.Copy(io.Discard, r.Body) // or the server would not notice that the connection is gone
		<-r.Context().Done()
	default:
		for key, values := range answer.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
	}
}

// carryOut does one write of a plan at a time, so that what is last is last. It returns the write's fate, if the plan has one for it.
func (x *Proxy) carryOut(r *http.Request, p *Plan, c Call) (*httptest.ResponseRecorder, Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Fate == Last && p.Nth > 0 && p.tried >= p.Nth {
		return nil, Last // it comes after the last write; so do events
	}
	counted, struck := x.counts(c), false
	if counted {
		p.tried++
		struck = p.tried == p.Nth
	}
	if struck && p.Fate == Refused {
		return nil, Refused
	}
	answer := httptest.NewRecorder()
	x.upstream.ServeHTTP(answer, r)
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

// Stall delays the events of all watches of a resource, until the returned function is called.
func (x *Proxy) Stall(resource string) (goOn func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := make(chan struct{})
	x.stalled[resource] = c
	return sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.stalled, resource)
		close(c)
	})
}

func (x *Proxy) stallWatch(r *http.Response) error {
	if r.Request.URL.Query().Get("watch") != "" {
		path := strings.Split(r.Request.URL.Path, "/")
		r.Body = watched{ReadCloser: r.Body, by: x, resource: path[len(path)-1]}
	}
	return nil
}

// watched is the body of a watch's answer.
type watched struct {
	io.ReadCloser
	by       *Proxy
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
