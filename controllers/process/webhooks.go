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
	// longestReview is how many bytes the API server may ask a webhook about at once. It accepts no object of more than 3 MiB, and asks
	// about one at a time.
	longestReview = 16 << 20
	// ordinaryReview is how many bytes of a request are always read: more than nearly all objects have. What is beyond counts.
	ordinaryReview = 64 << 10
	// reviewsAtOnce is how many bytes all requests may have together beyond that. Decoded they take many times that.
	reviewsAtOnce = 2 * longestReview
	// askedWithin is how long a request may take to arrive. The API server waits for an answer for 30 s at most, and sends at once.
	askedWithin = 10 * time.Second
)

// Webhooks bounds what a server of webhooks reads.
func Webhooks(server webhook.Server) webhook.Server {
	return bounded{Server: server, reading: &atomic.Int64{}}
}

// bounded refuses to read more than longestReview of a request, and to answer requests that have together more than reviewsAtOnce: any pod
// may call a webhook without a credential, and controller-runtime bounds admission alone (v0.24, pkg/webhook/conversion).
type bounded struct {
	webhook.Server
	reading *atomic.Int64 // bytes of the requests that are being answered, without what is always read
}

// Register implements webhook.Server.
func (s bounded) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(clock.RealClock{}.Now().Add(askedWithin)) // there is none where nothing is read from a connection
		length := r.ContentLength
		if length < 0 { // it does not say how long it is, as the API server does
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

// Filled returns a check that succeeds once c has read these kinds, of which there are most. It does not wait for others: the API server
// asks a replica that is ready to convert Metal3Remediations of old versions, so a replica that is alone would wait for itself for ever.
// And kinds of requests that are watched later may take their time.
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
