// Package clockerror holds the clock of this process against those of API servers, by the header Date of their answers. A manager whose
// clock is ahead takes a Node that has been NotReady for a second for one that has been so for minutes. (RFC 9110, section 6.6.1; the
// header has whole seconds.)
package clockerror

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	// Tolerated is the largest error of a clock that changes nothing.
	Tolerated = 30 * time.Second
	// prompt is how soon the headers of an answer have to come for its Date to be used: the later they come, the less exact it is.
	prompt = 5 * time.Second
	// answers is how many of the last answers decide. The manager renews its lease every 2 s, and a workload cluster is probed every 10 s:
	// a clock that jumps is noticed after half as many.
	answers = 7
)

var seconds = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubemend_clock_error_seconds",
	Help: "How far the clock of the manager is ahead of that of an API server, less than 0 if it is behind; 0 up to 30 s. " +
		"Without a cluster it is the API server of the management cluster.",
}, []string{"namespace", "cluster"})

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns what this package exports, for those who document or test it.
func Metrics() []prometheus.Collector { return []prometheus.Collector{seconds} }

// Server is what the answers of one API server say about the clock of this process. It is safe for concurrent use.
type Server struct {
	// Namespace and Cluster name the Cluster whose API server it is; empty for the management cluster.
	Namespace, Cluster string

	mu    sync.Mutex
	last  []time.Duration // what the last answers said, the oldest first
	ahead time.Duration
}

// Ahead returns how far the clock of this process is ahead of the server's, at least; less than 0 if it is behind, 0 if the error is
// tolerated.
func (s *Server) Ahead() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// Note takes note of an answer to a request that was sent, and whose headers were received, at these moments of this process's clock.
//
// Several API servers may be behind one address. So the error is the median of the last answers: one server whose clock is wrong neither
// makes an error nor hides one, as long as most answers are of others.
func (s *Server) Note(sent, received time.Time, headers http.Header) {
	date, err := http.ParseTime(headers.Get("Date"))
	if err != nil || received.Sub(sent) > prompt {
		return
	}
	ahead := time.Duration(0)
	if least := sent.Sub(date.Add(time.Second)); least > Tolerated { // the answer is of a moment up to a second after date
		ahead = least.Truncate(time.Second)
	} else if least := date.Sub(received); least > Tolerated {
		ahead = -least.Truncate(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last, ahead)
	s.last = s.last[max(0, len(s.last)-answers):]
	if median := medianOf(s.last); s.ahead != median {
		s.ahead = median
		seconds.WithLabelValues(s.Namespace, s.Cluster).Set(median.Seconds())
	}
}

// medianOf is the median of the errors that answers show. Of two in the middle it is the larger error: at first, when there are few
// answers, no check is judged that should not be.
func medianOf(errors []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(errors))
	lower, upper := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	if lower.Abs() > upper.Abs() {
		return lower
	}
	return upper
}

// Forget removes the metric of a server that is asked no more.
func (s *Server) Forget() { seconds.DeleteLabelValues(s.Namespace, s.Cluster) }

// Around returns a RoundTripper that takes note of the answers of next.
func (s *Server) Around(next http.RoundTripper, now clock.PassiveClock) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		sent := now.Now()
		answer, err := next.RoundTrip(r)
		if err == nil {
			s.Note(sent, now.Now(), answer.Header)
		}
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip sends a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
