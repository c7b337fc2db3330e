package conformance

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubemend/kubemend/test/rig"
)

// gateway is an HTTPS proxy before an API server. Whoever goes through it is an administrator there. It counts writes, and
// lets chosen ones fail.
type gateway struct {
	server   *httptest.Server
	upstream *httputil.ReverseProxy

	mu    sync.Mutex
	plans map[string]*plan // by namespace
	// stalled are the resources whose watches tell nothing; what is closed lets them go on.
	stalled map[string]chan struct{}
}

// plan is what befalls the writes of one namespace.
type plan struct {
	nth  int // 0: none
	fate fate

	tried int
	// done are the writes that were carried out, like "PATCH machines/a/status".
	done []string
	// refusedReads is a resource that cannot be read live.
	refusedReads string
}

// fate is what happens to the n-th write of a plan.
type fate string

const (
	refused   fate = "is refused"
	carried   fate = "is carried out, and its answer is lost"
	lastWrite fate = "is the last one before a crash"
)

func newGateway(to *rig.ControlPlane) *gateway {
	GinkgoHelper()
	target, err := url.Parse(to.Config().Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(to.Config())
	Expect(err).NotTo(HaveOccurred())
	g := &gateway{plans: map[string]*plan{}, stalled: map[string]chan struct{}{}}
	g.upstream = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: g.stallWatch,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	silence := log.New(io.Discard, "", 0) // connections break here on purpose
	g.upstream.ErrorLog = silence
	g.server = httptest.NewUnstartedServer(g)
	g.server.Config.ErrorLog = silence
	g.server.StartTLS()
	DeferCleanup(func() {
		g.server.CloseClientConnections()
		g.server.Close()
	})
	return g
}

// kubeconfig is the way through g.
func (g *gateway) kubeconfig() []byte {
	GinkgoHelper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"g": {Server: g.server.URL, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"g": {}},
		Contexts:       map[string]*clientcmdapi.Context{"g": {Cluster: "g", AuthInfo: "g"}},
		CurrentContext: "g",
	})
	Expect(err).NotTo(HaveOccurred())
	return content
}

// call is a request to an API server, taken apart.
type call struct{ method, namespace, resource, rest string }

func callOf(r *http.Request) call {
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/")
	parts := append(strings.SplitN(path, "/", 3), "", "", "")
	return call{r.Method, parts[0], parts[1], parts[2]}
}

// counts reports whether c is a write that has an effect on the world. Events and leases have none.
func (c call) counts() bool {
	return c.resource == "machines" || c.resource == "machinehealthchecks" || c.resource == "metal3remediations"
}

func (c call) String() string { return strings.TrimSuffix(c.method+" "+c.resource+"/"+c.rest, "/") }

// expect starts to count the writes of a namespace anew, and decides the fate of one of them.
func (g *gateway) expect(namespace string, nth int, f fate) *plan {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plans[namespace] = &plan{nth: nth, fate: f}
	return g.plans[namespace]
}

// refuseReads lets live reads of a resource fail, one by one and not in lists; empty lets them succeed again.
func (g *gateway) refuseReads(p *plan, resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.refusedReads = resource
}

// forget ends all plans.
func (g *gateway) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plans = map[string]*plan{}
}

// written returns what was carried out under a plan, and whether its fate has struck.
func (g *gateway) written(p *plan) (done []string, struck bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(p.done), p.nth > 0 && p.tried >= p.nth
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := callOf(r)
	g.mu.Lock()
	p := g.plans[c.namespace]
	fails := p != nil && c.method == http.MethodGet && c.rest != "" && c.resource == p.refusedReads
	g.mu.Unlock()
	switch {
	case p == nil:
		g.upstream.ServeHTTP(w, r)
	case fails:
		fail(w)
	case c.method == http.MethodGet:
		g.upstream.ServeHTTP(w, r)
	default:
		g.write(w, r, p, c)
	}
}

// write carries out a write as p has it.
func (g *gateway) write(w http.ResponseWriter, r *http.Request, p *plan, c call) {
	answer, happens := g.carryOut(r, p, c)
	switch happens {
	case refused:
		fail(w)
	case carried:
		panic(http.ErrAbortHandler) // the connection breaks
	case lastWrite: // whoever asks is about to crash
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

// carryOut does one write at a time, so that what is last is last. It returns what the plan has for it, if anything.
func (g *gateway) carryOut(r *http.Request, p *plan, c call) (*httptest.ResponseRecorder, fate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.fate == lastWrite && p.nth > 0 && p.tried >= p.nth {
		return nil, lastWrite // it comes too late: events do as well
	}
	struck := false
	if c.counts() {
		p.tried++
		struck = p.tried == p.nth
	}
	if struck && p.fate == refused {
		return nil, refused
	}
	answer := httptest.NewRecorder()
	g.upstream.ServeHTTP(answer, r)
	switch {
	case !c.counts():
	case answer.Code < http.StatusMultipleChoices:
		p.done = append(p.done, c.String())
	case p.fate == lastWrite: // what the API server itself refused, a conflict, was no write
		p.tried--
		struck = false
	}
	if !struck {
		return answer, ""
	}
	return answer, p.fate
}

func fail(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` +
		string(metav1.StatusReasonInternalError) + `","message":"the test lets this fail","code":500}`))
}

// stall keeps back what watches of a resource would tell, until the returned function is called.
func (g *gateway) stall(resource string) (goOn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	g.stalled[resource] = c
	goOn = sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.stalled, resource)
		close(c)
	})
	DeferCleanup(goOn)
	return goOn
}

func (g *gateway) stallWatch(r *http.Response) error {
	if r.Request.URL.Query().Get("watch") != "" {
		path := strings.Split(r.Request.URL.Path, "/")
		r.Body = watched{ReadCloser: r.Body, by: g, resource: path[len(path)-1]}
	}
	return nil
}

// watched is the body of a watch's answer.
type watched struct {
	io.ReadCloser
	by       *gateway
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
