package process

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// longestReview is the maximum size of a request to a webhook. The API server sends one object of at most 3 MiB at a time.
	longestReview = 16 << 20
	// ordinaryReview is how many bytes of each request do not count for reviewsAtOnce. Nearly all objects are smaller.
	ordinaryReview = 64 << 10
	// reviewsAtOnce is the maximum size of all concurrent requests together. Decoded requests need many times as much memory.
	reviewsAtOnce = 2 * longestReview
	// askedWithin is the timeout for reading a request. The API server sends it at once, and waits for the response for at most 30 s.
	askedWithin = 10 * time.Second
)

// Webhooks returns a webhook server that limits the size of requests.
func Webhooks(server webhook.Server) webhook.Server {
	return bounded{Server: server, reading: &atomic.Int64{}}
}

// bounded rejects requests that are longer than longestReview, and further requests while there are reviewsAtOnce bytes of concurrent
// requests. Any pod can call a webhook without a credential, and controller-runtime limits only admission requests (v0.24,
// pkg/webhook/conversion).
type bounded struct {
	webhook.Server
	reading *atomic.Int64 // size of the concurrent requests, without ordinaryReview for each of them
}

// Register implements webhook.Server.
func (s bounded) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// It fails only in tests whose requests do not come from a connection.
		_ = http.NewResponseController(w).SetReadDeadline(clock.RealClock{}.Now().Add(askedWithin))
		length := r.ContentLength
		if length < 0 { // no Content-Length, which the API server always sends
			length = longestReview
		}
		length = max(0, length-ordinaryReview)
		defer s.reading.Add(-length)
		if s.reading.Add(length) > reviewsAtOnce {
			http.Error(w, "the webhooks are being asked about too much at once", http.StatusTooManyRequests)
			return
		}
		asked := *r
		asked.Body = http.MaxBytesReader(w, r.Body, longestReview)
		hook.ServeHTTP(w, &asked)
	}))
}

// Filled returns a readiness check that succeeds once c has synced these kinds. Do not pass kinds with a conversion webhook: to list
// Metal3Remediations of an old version, the API server needs a ready replica to convert them, so a single replica would never become ready.
func Filled(c cache.Cache, kinds ...client.Object) healthz.Checker {
	return func(req *http.Request) error {
		for _, kind := range kinds {
			informer, err := c.GetInformer(req.Context(), kind, cache.BlockUntilSynced(false))
			if err != nil {
				return fmt.Errorf("read a cache: %w", err)
			}
			if !informer.HasSynced() {
				return fmt.Errorf("the cache of %T is not filled yet", kind)
			}
		}
		return nil
	}
}
