package faultproxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestACallIsIdentifiedByItsObject(t *testing.T) {
	cases := map[string]struct {
		path string
		call Call
		goes string
	}{
		"an object": {
			"/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/machines/a/status", Call{"PATCH", "ns", "machines", "a/status", false}, "",
		},
		"an object of the core group": {"/api/v1/namespaces/ns/secrets/a", Call{"PATCH", "ns", "secrets", "a", false}, ""},
		"all objects of a namespace":  {"/apis/metal3.io/v1alpha1/namespaces/ns/baremetalhosts", Call{"PATCH", "ns", "baremetalhosts", "", false}, ""},
		"an object of no namespace":   {"/api/v1/nodes/n", Call{"PATCH", "", "nodes", "n", false}, ""},
		"a namespace":                 {"/api/v1/namespaces/ns", Call{"PATCH", "ns", "", "", false}, ""},
		"a node of a workload cluster": {
			"/workload/ns/api/v1/nodes/n", Call{"PATCH", "ns", "nodes", "n", true}, "/api/v1/nodes/n",
		},
		"a pod of a workload cluster, whatever its namespace": {
			"/workload/ns/api/v1/namespaces/default/pods/p", Call{"PATCH", "ns", "pods", "p", true}, "/api/v1/namespaces/default/pods/p",
		},
		"something else": {"/version", Call{"PATCH", "", "", "", false}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPatch, tc.path, http.NoBody)
			if got := callOf(r); got != tc.call {
				t.Errorf("callOf() = %+v, want %+v", got, tc.call)
			}
			if tc.goes == "" {
				tc.goes = tc.path
			}
			if r.URL.Path != tc.goes {
				t.Errorf("it goes to %s, want %s", r.URL.Path, tc.goes)
			}
		})
	}
}
