package setup

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAKindWhoseFeatureGateIsClosedIsOff(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want map[string]string // the gates by which kinds are off
	}{
		"no gate is closed":                               {},
		"a gate switches off NodeHealthChecks":            {[]string{"--feature-gates=NodeHealthCheck=false"}, map[string]string{crdgate.NodeCheckCRD: "NodeHealthCheck"}},
		"one gate switches off all kinds of remediations": {[]string{"--feature-gates=HostRemediation=false"}, map[string]string{crdgate.Metal3CRD: "HostRemediation", crdgate.OwnCRD: "HostRemediation", crdgate.HostCRD: "HostRemediation"}},
		"a teardown ends power cycles whatever the gate":  {args: []string{"--teardown", "--feature-gates=HostRemediation=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := parsed(t, tc.args...)
			metal3, own, cleanup := hostServices(o)
			off := map[string]string{}
			for _, s := range []*crdgate.Service{metal3, own, cleanup, nodeService(o)} {
				if s.Choice == crdgate.Off {
					off[s.CRD] = string(s.Gate)
				}
			}
			if !maps.Equal(off, tc.want) {
				t.Errorf("off are %v, want %v", off, tc.want)
			}
		})
	}
}

func TestTheManagerAnnouncesItsSettings(t *testing.T) {
	o := parsed(t, "--namespace=metal", "--watch-filter=a", "--node-lease-namespace=leases", "--teardown")
	started, kinds := metav1.Unix(1, 0), []managerlease.Kind{{CRD: crdgate.OwnCRD}}
	want := managerlease.Announcement{
		Version: "v1.2.3", Started: started, Unclaimed: "observe", Namespace: "metal", WatchFilter: "a", NodeLeaseNamespace: "leases",
		PolicyNamespace: "metal", Teardown: true, Kinds: kinds, Outside: true,
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if diff := cmp.Diff(want, announcement(kinds, started, process.Replica{}, "v1.2.3", o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Outside = false
	if diff := cmp.Diff(want, announcement(kinds, started, process.Replica{Namespace: "kubemend-system"}, "v1.2.3", o)); diff != "" {
		t.Errorf("in a pod (-want +got):\n%s", diff)
	}
}

// The cache is created when the manager starts, and the CRD of records may be installed much later.
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
	if err := mendv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := newCache(&rest.Config{Host: server.URL}, cache.Options{Scheme: scheme, Mapper: meta.NewDefaultRESTMapper(nil)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = c.Start(ctx) }()
	if _, err := c.GetInformer(ctx, &mendv1.RemediationRecord{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	const want = "/apis/kubemend.io/v1alpha1/remediationrecords kubemend.io/open"
	if got := <-asked; got != want {
		t.Errorf("the cache asks for %s, want %s", got, want)
	}
}

func TestAManagerThatIsAskedToStandDownEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		may  bool
	}{
		"where another replica may take over": {[]string{"--leader-elect"}, true},
		"not where none is elected":           {nil, false},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		p := &program{o: parsed(t, tc.args...), end: end, self: process.Replica{Namespace: "ns", Name: "p", BootID: "b"}}
		here := p.here()
		if (here.StandDown != nil) != tc.may {
			t.Fatalf("%s: it may stand down: %t", name, !tc.may)
		}
		if tc.may {
			here.StandDown()
		}
		if ended := errors.Is(context.Cause(ctx), errStoodDown); ended != tc.may {
			t.Errorf("%s: it has ended: %t", name, ended)
		}
		end(nil)
	}
}
