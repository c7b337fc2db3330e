package process

import (
	"errors"
	"fmt"
	"io"
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

// errReviews is the error of a request that is not read to its end, because others are as long.
var errReviews = errors.New("the webhooks are being asked about too much at once")

// bounded refuses to read more than longestReview of a request, and of all requests together more than reviewsAtOnce: any pod may call a
// webhook without a credential, and controller-runtime bounds admission alone (v0.24, pkg/webhook/conversion).
type bounded struct {
	webhook.Server
	reading *atomic.Int64 // bytes of the requests that are being answered, without what is always read
}

func boundedServer(server webhook.Server) bounded {
	return bounded{Server: server, reading: &atomic.Int64{}}
}

// Register implements webhook.Server.
func (s bounded) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(clock.RealClock{}.Now().Add(askedWithin)) // there is none where nothing is read from a connection
		body := &review{ReadCloser: http.MaxBytesReader(w, r.Body, longestReview), reading: s.reading}
		defer body.done()
		asked := *r
		asked.Body = body
		hook.ServeHTTP(w, &asked)
	}))
}

// review is the body of a request.
type review struct {
	io.ReadCloser
	reading     *atomic.Int64
	read, taken int64
}

// Read reads the body, as far as it may be.
func (r *review) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.read += int64(n)
	if more := max(0, r.read-ordinaryReview) - r.taken; more > 0 {
		if r.reading.Add(more) > reviewsAtOnce {
			r.reading.Add(-more)
			return 0, errReviews
		}
		r.taken += more
	}
	return n, err
}

// done says that the request was answered.
func (r *review) done() { r.reading.Add(-r.taken) }

// Webhooks returns the server of the webhooks.
func (o *Options) Webhooks() webhook.Server {
	return boundedServer(webhook.NewServer(webhook.Options{Host: o.WebhookHost, Port: o.WebhookPort, CertDir: o.WebhookCertDir}))
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
