package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Any pod may call the port of the webhooks, and needs no identity.
func TestAWebhookReadsNoMoreThanAnAPIServerAsks(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes int64
		whole bool
	}{
		"as much as may be": {longestReview, true},
		"one byte too many": {longestReview + 1, false},
		"much too many":     {4 * longestReview, false},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			server := boundedServer(webhook.NewServer(webhook.Options{WebhookMux: mux}))
			var read int64
			var failed error
			server.Register("/convert", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				read, failed = io.Copy(io.Discard, r.Body)
			}))
			asked := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert", io.LimitReader(blanks{}, tc.bytes))
			mux.ServeHTTP(httptest.NewRecorder(), asked)
			if read > longestReview || (failed == nil) != tc.whole {
				t.Errorf("read %d bytes, %v; want at most %d, and an error: %v", read, failed, longestReview, !tc.whole)
			}
		})
	}
}

// As many pods as like may call it at the same time, and each request is in memory until it is answered. Those of the API server are small.
func TestWebhooksReadNoMoreOfAllRequestsTogether(t *testing.T) {
	mux := http.NewServeMux()
	server := boundedServer(webhook.NewServer(webhook.Options{WebhookMux: mux}))
	const most = reviewsAtOnce / longestReview
	answer, wasRead := make(chan struct{}), make(chan error)
	server.Register("/convert", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		wasRead <- err
		<-answer
	}))
	ask := func(bytes int64) error {
		asked := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert", io.LimitReader(blanks{}, bytes))
		go mux.ServeHTTP(httptest.NewRecorder(), asked)
		return <-wasRead
	}
	for range most {
		must.Do(t, ask(longestReview))
	}
	if err := ask(1 << 20); !errors.Is(err, errReviews) {
		t.Errorf("beside %d of the longest, another one is read: %v", most, err)
	}
	if err := ask(ordinaryReview); err != nil {
		t.Errorf("an ordinary one is not: %v", err)
	}
	close(answer)
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return server.reading.Load() == 0, nil
	})
	if err != nil {
		t.Errorf("all are answered, and %d bytes still count", server.reading.Load())
	}
	if err := ask(longestReview); err != nil {
		t.Errorf("after that, the longest is not read: %v", err)
	}
}

// blanks never end.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestMetricsHaveTheCertificateThatClientsVerify(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"that of the webhooks":                    {[]string{"--webhook-cert-dir=/webhooks"}, "/webhooks"},
		"one of its own":                          {[]string{"--webhook-cert-dir=/webhooks", "--diagnostics-cert-dir=/metrics"}, "/metrics"},
		"one of its own without webhooks":         {[]string{"--diagnostics-cert-dir=/metrics"}, "/metrics"},
		"one that it makes itself without either": {nil, ""},
		"none in clear text":                      {[]string{"--webhook-cert-dir=/webhooks", "--insecure-diagnostics"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &Options{}
			fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
			o.AddFlags(fs)
			must.Do(t, fs.Parse(tc.args))
			if got, err := o.Diagnostics(); err != nil || got.CertDir != tc.want {
				t.Errorf("the certificate is in %q, %v; want %q", got.CertDir, err, tc.want)
			}
		})
	}
}

// someSynced are informers of which those of some kinds have been read. Those of others never will be, since no webhook converts them.
type someSynced struct {
	*informertest.FakeInformers
	synced map[string]bool
}

func (s someSynced) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if s.synced[fmt.Sprintf("%T", obj)] {
		return controllertest.NewFakeInformer(controllertest.Synced), nil
	}
	return controllertest.NewFakeInformer(), nil
}

func (s someSynced) WaitForCacheSync(context.Context) bool { return false }

// Where Metal3Remediations are stored in an old version, reading them needs the conversion of a replica that is ready. One that is alone
// would never be.
func TestALoneReplicaBecomesReadyWithoutWhatItConvertsItself(t *testing.T) {
	for name, tc := range map[string]struct {
		synced []string
		ready  bool
	}{
		"all but Metal3Remediations": {[]string{"*v1beta2.Machine", "*v1beta2.MachineHealthCheck"}, true},
		"not all Machines":           {[]string{"*v1beta2.MachineHealthCheck"}, false},
		"not all checks":             {[]string{"*v1beta2.Machine"}, false},
		"nothing":                    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := someSynced{synced: map[string]bool{}}
			for _, kind := range tc.synced {
				c.synced[kind] = true
			}
			err := Filled(c, &clusterv1.MachineHealthCheck{}, &clusterv1.Machine{})(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
			if (err == nil) != tc.ready {
				t.Errorf("it is ready: %v; want %v", err, tc.ready)
			}
		})
	}
}
