// Package clockerror compares the clock of this process with the clocks of API servers, by the header Date of their responses. If the clock
// of a manager is ahead, a Node that has been NotReady for a second seems to have been NotReady for minutes. (RFC 9110, section 6.6.1: the
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
	// Tolerated is the largest clock error that has no effect.
	Tolerated = 30 * time.Second
	// prompt is the longest response time for which Date is used, because a slow response makes the comparison inexact.
	prompt = 5 * time.Second
	// answers is how many of the last responses are used. Because the median decides, a clock that jumps is noticed after four responses:
	// within 8 s in the management cluster (a lease renewal every 2 s), within 40 s in a workload cluster (a probe every 10 s).
	answers = 7
)

var seconds = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubemend_clock_error_seconds",
	Help: "How far the clock of the manager is ahead of that of an API server, less than 0 if it is behind; 0 up to 30 s. " +
		"Without a cluster it is the API server of the management cluster.",
}, []string{"namespace", "cluster"})

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of this package, for documentation and tests.
func Metrics() []prometheus.Collector { return []prometheus.Collector{seconds} }

// Server measures the clock of this process against the clock of one API server. It is safe for concurrent use.
type Server struct {
	// Namespace and Cluster name the Cluster of the API server; both are empty for the management cluster.
	Namespace, Cluster string

	mu    sync.Mutex
	last  []time.Duration // the errors that the last responses showed, the oldest first
	ahead time.Duration
}

// Ahead returns by how much, at least, the clock of this process is ahead of the clock of the server: negative if it is behind, 0 if the
// error is tolerated.
func (s *Server) Ahead() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// Note evaluates the headers of a response. sent and received are times of the clock of this process.
//
// The error is the median of the last responses, because several API servers may share one address: a single server with a wrong clock
// neither causes nor hides an error, as long as most responses come from the others.
func (s *Server) Note(sent, received time.Time, headers http.Header) {
	date, err := http.ParseTime(headers.Get("Date"))
	if err != nil || received.Sub(sent) > prompt {
		return
	}
	ahead := time.Duration(0)
	if least := sent.Sub(date.Add(time.Second)); least > Tolerated { // Date is rounded down to a second
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

// medianOf returns the median, and of two middle values the one with the larger absolute value: while there are few responses, it is safer
// to assume an error, because then checks are not judged.
func medianOf(errors []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(errors))
	lower, upper := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	if lower.Abs() > upper.Abs() {
		return lower
	}
	return upper
}

// Forget removes the metric of a server that is no longer used.
func (s *Server) Forget() { seconds.DeleteLabelValues(s.Namespace, s.Cluster) }

// Around returns a RoundTripper that calls next and notes its responses.
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
