package workload

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAnAnswerThatDoesNotEndIsCutOff(t *testing.T) {
	var sent int64
	c, _ := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[`)
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, `{"metadata":{"name":"`+strings.Repeat("n", 2*bytesPerItem)+`"}},`)
			if sent += int64(n); err != nil {
				return
			}
		}
	}), "")
	err := c.List(t.Context(), &corev1.NodeList{})
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("List() = %v", err)
	}
	if sent > 16<<20 { // what is on its way besides is in the buffers of the connection
		t.Errorf("%d bytes were taken", sent)
	}
}

func TestRedirectionsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another server is asked") })
	c, _ := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }), "")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{}); err == nil || !strings.Contains(err.Error(), "it is a redirect") {
		t.Errorf("Get() = %v", err)
	}
}

func TestTheCacheOfNodesIsNotBelievedForAWhileAfterAnAnswerAboutThemWasCutOff(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere.example.com", http.StatusFound)
	})
	now := testclock.NewFakePassiveClock(noon.Time)
	transports := routed(t, c1, server, NewTransports(1<<20, now))
	for _, ask := range []struct {
		path   string
		unsure bool
	}{{nodesPath + "/n", false}, {"/", false}, {nodesPath + "?timeout=11m", true}} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "workload://"+hostOf(c1)+ask.path, http.NoBody)
		must.Do(t, err)
		if answer, err := transports.RoundTrip(request); err == nil {
			_ = answer.Body.Close()
		}
		if unsure, _ := transports.routeOf(c1).circuit.state(now.Now()); unsure != ask.unsure {
			t.Errorf("after %s was cut off it is believed: %t", ask.path, !unsure)
		}
	}
	if err := transports.use(c1, kubeconfigOf(server, "token: new", "")); err != nil { // a tenant writes the Secret
		t.Fatal(err)
	}
	circuit := &transports.routeOf(c1).circuit
	before, _ := circuit.state(now.Now().Add(staleFor - 1))
	if after, _ := circuit.state(now.Now().Add(staleFor)); !before || after {
		t.Errorf("it is not believed for another time than %s", staleFor)
	}
}
