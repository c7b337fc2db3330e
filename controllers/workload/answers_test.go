package workload

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// client-go takes an answer that does not say what it is for what was asked for, and the type of a watch for as much as it can read of it.
func TestAnAnswerIsDecodedAsWhatItWasCountedAs(t *testing.T) {
	many := strings.Repeat("\x12\x00", 100_000) // nodes in a list, and taints, conditions or the like in a spec
	sent := map[bool][]byte{false: inEnvelope(t, "NodeList", []byte(many)), true: inFrames(inEnvelope(t, "Node", []byte(sub(3, strings.ReplaceAll(many, "\x12", "\x22")))))}
	for name, contentType := range map[string][]string{"no type": nil, "one that cannot be read": {runtime.ContentTypeProtobuf + "; ="}} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = contentType
			_, _ = w.Write(sent[r.URL.Query().Has("watch")])
		})
		t.Run(name+" of a list", func(t *testing.T) {
			list := &corev1.NodeList{}
			if err := through(t, server, "").List(t.Context(), list); err == nil || len(list.Items) > 0 {
				t.Errorf("%d nodes, %v", len(list.Items), err)
			}
		})
		t.Run(name+" of a watch", func(t *testing.T) {
			watched, err := through(t, server, "").Watch(t.Context(), &corev1.NodeList{})
			if err != nil {
				return
			}
			for event := range watched.ResultChan() {
				if node, is := event.Object.(*corev1.Node); is {
					t.Errorf("a node of %d conditions", len(node.Status.Conditions))
				}
			}
		})
	}
}

func TestWhatAProxySaysWithoutATypeIsAnErrorThatSaysIt(t *testing.T) {
	c := through(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
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

// The probe of ClusterCache asks for the path / and wants no more than an answer. The simulated API servers of Cluster API's docker provider, and proxies, give
// an empty one, which has no type.
func TestAnEmptyAnswerToAProbeIsOne(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	content := kubeconfigOf(server, "token: t", "")
	_, config := clientOf(t, &Kubeconfigs{Reader: fake.NewClientBuilder().WithObjects(secretOf(content)).Build(), Transports: carried()})
	t.Cleanup(func() { carried().forget(c1) })
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	probe, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := probe.Get().AbsPath("/").Do(t.Context()).Error(); err != nil {
		t.Errorf("the probe: %v", err)
	}
}

// The probe of such a cluster may be answered well, and its cache shows the nodes as they were before. It is out of reach for this alone.
func TestANodeListThatIsNoneIsNoAnswer(t *testing.T) {
	for name, answers := range map[string]http.HandlerFunc{
		"nothing":              func(http.ResponseWriter, *http.Request) {},
		"nothing, in JSON":     func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "") },
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
				if err := ask(through(t, server, "")); !errors.Is(err, errNoAnswer) {
					t.Errorf("%s: %v", verb, err)
				}
			}
			if !carried().rests(c1, noon.Time) {
				t.Error("the cluster is not out of reach")
			}
		})
	}
}
