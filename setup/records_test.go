package setup

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

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
	const want = "/apis/kubemend.io/v1alpha1/remediationrecords kubemend.io/open=true"
	if got := <-asked; got != want {
		t.Errorf("the cache asks for %s, want %s", got, want)
	}
}
