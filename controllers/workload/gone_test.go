package workload

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// behind is a ClusterCache whose clusters are all at one address.
type behind struct {
	clustercache.ClusterCache
	address string
}

func (b behind) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return client.New(&rest.Config{Host: b.address}, client.Options{Mapper: nodesOnly()})
}

// A node that is called deleted is remediated at once. So it takes more than a 404, which proxies send as well, of whatever.
func TestOnlyTheAPIServersWordAboutTheNodeIsThatItIsGone(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"`
	for name, tc := range map[string]struct {
		kind, body string
		gone       bool
	}{
		"the node is not there":                     {"application/json", status + `,"message":"nodes \"n\" not found","details":{"name":"n","kind":"nodes"}}`, true},
		"the default backend of a proxy":            {"text/plain", "404 page not found", false},
		"a page of a load balancer":                 {"text/html", "<html>Not Found</html>", false},
		"an API server that does not know the path": {"application/json", status + `,"message":"the server could not find the requested resource","details":{}}`, false},
		"a status about nothing":                    {"application/json", status + `}`, false},
		"another node is not there":                 {"application/json", status + `,"details":{"name":"m","kind":"nodes"}}`, false},
		"something else is not there":               {"application/json", status + `,"details":{"name":"n","kind":"pods"}}`, false},
		"a group of another API has such nodes":     {"application/json", status + `,"details":{"name":"n","group":"metrics.k8s.io","kind":"nodes"}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer server.Close()
			there, err := NewClusters(behind{address: server.URL}).NodesExist(t.Context(), client.ObjectKey{}, []string{"n"})
			if gone := err == nil && !there["n"]; gone != tc.gone {
				t.Errorf("gone: %t, %v", gone, err)
			}
			if !tc.gone && err == nil {
				t.Error("it is not said that the cluster could not be asked")
			}
		})
	}
}

// A user with write access to a Machine chooses the name of its node. With an impossible name, kubemend would not hear that another one is gone.
func TestANameThatNoNodeCanHaveHidesNoOther(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		writeJSON(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"n"}}`)
	}))
	defer server.Close()
	there, err := NewClusters(behind{address: server.URL}).NodesExist(t.Context(), client.ObjectKey{}, []string{"a/b", "..", "%2e", "n"})
	if err != nil || !there["n"] || there["a/b"] || len(asked) != 1 || asked[0] != "/api/v1/nodes/n" {
		t.Errorf("there are %v, asked for %q: %v", there, asked, err)
	}
}
