package workload

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func serve(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(f)
	t.Cleanup(server.Close)
	return server
}

func writeJSON(w http.ResponseWriter, content string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, content)
}

func writeStatus(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}

func TestWhatAProxySaysWithoutATypeIsAnErrorThatSaysIt(t *testing.T) {
	c, _ := through(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "no server is behind me")
	}), "")
	err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{})
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusBadGateway || errors.Is(err, errNoAnswer) {
		t.Errorf("Get() = %v", err)
	}
}

// The probe of ClusterCache (the path /) accepts any response. Proxies, and the simulated API servers of Cluster API's docker provider,
// send an empty response without a media type.
func TestAnEmptyAnswerToAProbeIsOne(t *testing.T) {
	_, config := through(t, serve(t, func(http.ResponseWriter, *http.Request) {}), "")
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	probe, err := rest.UnversionedRESTClientFor(config)
	must.Do(t, err)
	if err := probe.Get().AbsPath("/").Do(t.Context()).Error(); err != nil {
		t.Errorf("the probe: %v", err)
	}
}

// Probes of such a cluster may succeed, and its cache has the nodes as they were before. Only these lists show that it cannot be reached.
func TestANodeListThatIsNoneIsNoAnswer(t *testing.T) {
	for name, answers := range map[string]http.HandlerFunc{
		"nothing":          func(http.ResponseWriter, *http.Request) {},
		"nothing, in JSON": func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "") },
		"nodes of no type": func(w http.ResponseWriter, _ *http.Request) { // which client-go would take for what was asked for
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","items":[]}`)
		},
		"no content":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"the page of a proxy":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>back soon</html>") },
		"404 of a proxy":       http.NotFound,
		"404 and nothing":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"the words of a proxy": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "back soon") },
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, answers)
			asks := map[string]func(c client.WithWatch) error{
				"list": func(c client.WithWatch) error { return c.List(t.Context(), &corev1.NodeList{}) },
				"get":  func(c client.WithWatch) error { return c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{}) },
				"delete": func(c client.WithWatch) error {
					return c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
				},
			}
			for verb, ask := range asks {
				carried().forget(c1)
				c, _ := through(t, server, "")
				if err := ask(c); !errors.Is(err, errNoAnswer) {
					t.Errorf("%s: %v", verb, err)
				}
				if unsure, _ := carried().routeOf(c1).circuit.state(carried().clock.Now()); unsure != (verb == "list") {
					t.Errorf("%s: the cluster is out of reach: %t", verb, unsure)
				}
			}
		})
	}
}

// A machine whose node is deleted is remediated at once, so a 404, which proxies send too, is not enough. A user who may write a Machine
// chooses the name of its node; an invalid name must not hide that other nodes are gone.
func TestOnlyAListOfTheAPIServerSaysThatANodeIsGone(t *testing.T) {
	const metadata = `"apiVersion":"meta.k8s.io/v1","metadata":{"name":"n"}`
	const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","details":{"name":"n","kind":"nodes"}}`
	for name, tc := range map[string]struct {
		code       int
		kind, body string
		there      map[string]bool // nil for an error
	}{
		"it lists the node":        {200, "application/json", `"items":[{"kind":"PartialObjectMetadata",` + metadata + `}]`, map[string]bool{"n": true, "a/b": false}},
		"it lists none":            {200, "application/json", `"items":[]`, map[string]bool{"n": false, "a/b": false}},
		"the backend of a proxy":   {404, "text/plain", "404 page not found", nil},
		"a page of a proxy":        {404, "text/html", "<html>Not Found</html>", nil},
		"a status about that node": {404, "application/json", gone, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				body := tc.body
				if tc.code == http.StatusOK {
					body = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},` + body + `}`
				}
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(body))
			}))
			defer server.Close()
			there, err := NewClusters(oneServer{config: &rest.Config{Host: server.URL}}).NodesExist(t.Context(), client.ObjectKey{}, []string{"a/b", "n"})
			if !maps.Equal(there, tc.there) || (err != nil) != (tc.there == nil) {
				t.Errorf("there are %v: %v", there, err)
			}
		})
	}
}
