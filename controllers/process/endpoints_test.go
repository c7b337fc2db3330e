package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Any pod can call the webhooks without a credential.
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
			server := Webhooks(webhook.NewServer(webhook.Options{WebhookMux: mux}))
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

// Any number of pods can call the webhooks at the same time, and each request is in memory until its response.
func TestWebhooksReadNoMoreOfAllRequestsTogether(t *testing.T) {
	mux := http.NewServeMux()
	server := bounded{Server: webhook.NewServer(webhook.Options{WebhookMux: mux}), reading: &atomic.Int64{}}
	const most = reviewsAtOnce / longestReview
	answer, began := make(chan struct{}), make(chan struct{}, 1)
	server.Register("/convert", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-answer
	}))
	ask := func(bytes int64) error {
		asked := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert", blanks{})
		asked.ContentLength = bytes
		refused, answered := make(chan error, 1), httptest.NewRecorder()
		go func() {
			if mux.ServeHTTP(answered, asked); answered.Code != http.StatusOK {
				refused <- errors.New(answered.Body.String())
			}
		}()
		select {
		case <-began:
			return nil
		case err := <-refused:
			return err
		}
	}
	for range most {
		if err := ask(longestReview); err != nil {
			t.Fatal(err)
		}
	}
	for _, length := range []int64{1 << 20, -1} {
		if err := ask(length); err == nil || !strings.Contains(err.Error(), "too much at once") {
			t.Errorf("beside %d of the longest, another one of %d bytes is read: %v", most, length, err)
		}
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

// someSynced are informers of which only those of some kinds are synced.
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

// To list Metal3Remediations that are stored in an old version, the API server needs a ready replica to convert them. A single replica that
// waited for the list would never become ready.
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
