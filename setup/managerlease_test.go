package setup

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/process"
)

func parsed(t *testing.T, args ...string) *Options {
	t.Helper()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o := NewOptions(fs)
	must.Do(t, fs.Parse(args))
	return o
}

func TestTheManagerAnnouncesKindsThatNoCRDDecides(t *testing.T) {
	machines := managerlease.Kind{CRD: crdgate.MachineCheckCRD}
	off := func(crd, gate string) managerlease.Kind {
		return managerlease.Kind{CRD: crd, Reason: "Off", Because: "the feature gate " + gate + " is off"}
	}
	for name, tc := range map[string]struct {
		args []string
		want []managerlease.Kind
	}{
		"every manager serves MachineHealthChecks":         {want: []managerlease.Kind{machines}},
		"a gate switches off NodeHealthChecks":             {args: []string{"--feature-gates=NodeHealthCheck=false"}, want: []managerlease.Kind{machines, off(crdgate.NodeCheckCRD, "NodeHealthCheck")}},
		"one gate switches off both kinds of remediations": {args: []string{"--feature-gates=HostRemediation=false"}, want: []managerlease.Kind{machines, off(crdgate.Metal3CRD, "HostRemediation"), off(crdgate.OwnCRD, "HostRemediation")}},
		"a teardown serves no MachineHealthChecks":         {args: []string{"--teardown"}},
		"a teardown ends power cycles whatever the gate":   {args: []string{"--teardown", "--feature-gates=HostRemediation=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, tc.want, fixedKinds(parsed(t, tc.args...)))
		})
	}
}

func TestTheManagerAnnouncesItsSettings(t *testing.T) {
	o := parsed(t, "--namespace=metal", "--watch-filter=a", "--node-lease-namespace=leases", "--teardown")
	started, kinds := metav1.Unix(1, 0), []managerlease.Kind{{CRD: crdgate.OwnCRD}}
	want := managerlease.Announcement{
		Version: "v1.2.3", Started: started, Unclaimed: "observe", Namespace: "metal", WatchFilter: "a", NodeLeaseNamespace: "leases", Teardown: true,
		Kinds: kinds, Outside: true,
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	must.Equal(t, want, announcement(kinds, started, process.Replica{}, "v1.2.3", o))
	want.Outside = false
	must.Equal(t, want, announcement(kinds, started, process.Replica{Namespace: "kubemend-system"}, "v1.2.3", o), "in a pod")
}

// A manager outside of a cluster runs without a manager lease rather than not at all, unless it is to elect a leader.
func TestAManagerOutsideTakesTheUsualNamespaceOrKeepsNoLease(t *testing.T) {
	for name, tc := range map[string]struct {
		flags   []string
		refused bool
		want    string
		fails   bool
	}{
		"it makes the namespace":                     {nil, false, managerlease.UsualNamespace, false},
		"one that is named is taken":                 {[]string{"--leader-elect-namespace=mine"}, true, "mine", false},
		"where it may not be made there is no lease": {nil, true, "", false},
		"nor is there an election":                   {[]string{"--leader-elect"}, true, "", true},
		"a teardown makes none":                      {[]string{"--teardown"}, true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method == http.MethodPost && tc.refused:
					w.WriteHeader(http.StatusForbidden)
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
				case r.Method == http.MethodPost:
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kubemend-system"}}`)
				case r.URL.Path == "/api/v1":
					_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"namespaces","kind":"Namespace"}]}`)
				case r.URL.Path == "/api":
					_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
				case r.URL.Path == "/apis":
					_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
				default:
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
				}
			}))
			defer server.Close()
			config := filepath.Join(t.TempDir(), "kubeconfig")
			content := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
				"users: [{name: u, user: {}}]\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\n"
			must.Do(t, os.WriteFile(config, []byte(content), 0o600))
			t.Setenv("KUBECONFIG", config)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			o := parsed(t, tc.flags...)
			if err := takeNamespace(t.Context(), process.Replica{}, o); (err != nil) != tc.fails || o.election.Namespace != tc.want {
				t.Errorf("the namespace is %q, want %q: %v", o.election.Namespace, tc.want, err)
			}
		})
	}
}

// The cache is made when the manager starts, and the kind of records may be installed much later.
func TestTheCacheHasOpenRecordsAloneAlsoIfTheirKindIsInstalledLater(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path + " " + r.URL.Query().Get("labelSelector"):
		default:
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	must.Do(t, mendv1.AddToScheme(scheme))
	c, err := newCache(&rest.Config{Host: server.URL}, cache.Options{Scheme: scheme, Mapper: meta.NewDefaultRESTMapper(nil)})
	must.Do(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = c.Start(ctx) }()
	if _, err := c.GetInformer(ctx, &mendv1.RemediationRecord{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	const want = "/apis/kubemend.io/v1alpha1/remediationrecords kubemend.io/open"
	must.Is(t, want, <-asked, "the cache asks for")
}
