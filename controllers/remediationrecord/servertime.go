package remediationrecord

import (
	"net/http"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"
)

// ServerTime tells the time of the API server, as its last answer said it. (RFC 9110, section 6.6.1: Date.)
type ServerTime struct {
	// Clock is that of this machine.
	Clock clock.PassiveClock

	// ahead is by how much Clock is ahead; nil before there was an answer.
	ahead atomic.Pointer[time.Duration]
}

// Watch learns the time from what comes through a transport.
func (s *ServerTime) Watch(next http.RoundTripper) http.RoundTripper { return watched{next, s} }

// Now is the time of the API server; false if it has not said any.
func (s *ServerTime) Now() (time.Time, bool) {
	ahead := s.ahead.Load()
	if ahead == nil {
		return time.Time{}, false
	}
	return s.Clock.Now().Add(-*ahead), true
}

type watched struct {
	http.RoundTripper

	by *ServerTime
}

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if at, malformed := http.ParseTime(response.Header.Get("Date")); malformed == nil {
		ahead := w.by.Clock.Now().Sub(at)
		w.by.ahead.Store(&ahead)
	}
	return response, nil
}

var _ utilnet.RoundTripperWrapper = watched{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (w watched) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }
