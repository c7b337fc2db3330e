package fence

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

func TestModeOf(t *testing.T) {
	cases := map[string]struct {
		info  version.Info
		want  Mode
		fails bool
	}{
		"v1.28":                           {info: version.Info{Major: "1", Minor: "28"}, want: Taint},
		"W11: 28+, as some vendors write": {info: version.Info{Major: "1", Minor: "28+"}, want: Taint},
		"v1.36":                           {info: version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"}, want: Taint},
		"v1.27":                           {info: version.Info{Major: "1", Minor: "27"}, want: Delete},
		"27+":                             {info: version.Info{Major: "1", Minor: "27+"}, want: Delete},
		"v1.3":                            {info: version.Info{Major: "1", Minor: "3"}, want: Delete},
		"v2":                              {info: version.Info{Major: "2", Minor: "0"}, want: Taint},
		"the whole version alone":         {info: version.Info{GitVersion: "v1.28.5-gke.1217000"}, want: Taint},
		"with the name of a distribution": {info: version.Info{GitVersion: "v1.27.9+k3s1"}, want: Delete},
		"no patch":                        {info: version.Info{GitVersion: "v1.28+"}, want: Taint},
		"W11: nothing at all":             {fails: true},
		"no number":                       {info: version.Info{Major: "one", Minor: "many", GitVersion: "latest"}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := modeOf(tc.info)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("modeOf() = %q, %v; want %q, fails: %t", got, err, tc.want, tc.fails)
			}
		})
	}
}

// What a link asks of an API server is seen by an API server alone.
func TestALinkAsksTheWorkloadCluster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/version":
			_, _ = fmt.Fprint(w, `{"major":"1","minor":"27+"}`)
		case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("watch") != "" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=n" &&
			r.URL.Query().Get("resourceVersion") == "17" &&
			strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"):
			_, _ = fmt.Fprint(w, `{"type":"DELETED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"p","namespace":"ns"}}}`)
		default:
			http.Error(w, r.URL.String(), http.StatusTeapot)
		}
	}))
	defer server.Close()
	w := &fakeCluster{config: &rest.Config{Host: server.URL}}
	n := nodesOf(w)
	for override, want := range map[Mode]Mode{Auto: Delete, "": Delete, Taint: Taint, Delete: Delete} {
		if got, err := n.ModeFor(t.Context(), cluster, override); err != nil || got != want {
			t.Errorf("ModeFor(%q) = %q, %v; want %q", override, got, err, want)
		}
	}
	l, err := n.link(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := l.pods(t.Context(), "n", "17")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	if e := <-stream.ResultChan(); e.Type != watch.Deleted || !hasLeft(e) {
		t.Errorf("the watch says %s %v", e.Type, e.Object)
	}
	if _, err := n.ModeFor(t.Context(), cluster, Auto); err != nil {
		t.Error(err)
	}
	w.down = true
	if mode, err := n.ModeFor(t.Context(), cluster, Auto); err == nil || mode != "" {
		t.Errorf("a cluster out of reach is of mode %q, %v", mode, err)
	}
}

// W17: no client is built anew while the connection is the same.
func TestALinkIsBuiltOnceForEachConnection(t *testing.T) {
	w := &fakeCluster{config: &rest.Config{}}
	n := nodesOf(w)
	built := 0
	n.dial = func(config *rest.Config) (*link, error) {
		built++
		return &link{config: config}, nil
	}
	connect := func(wantBuilt int) {
		t.Helper()
		if _, err := n.link(t.Context(), cluster); err != nil || built != wantBuilt {
			t.Errorf("%d links were built, want %d (%v)", built, wantBuilt, err)
		}
	}
	connect(1)
	connect(1)
	w.config = &rest.Config{}
	connect(2)
	connect(2)
	w.down = true
	if _, err := n.link(t.Context(), cluster); err == nil || len(n.links) > 0 {
		t.Errorf("a link is kept of a cluster without a connection: %v, %v", n.links, err)
	}
	w.down = false
	connect(3)
	n.Forget(cluster)
	connect(4)
}
