package workload

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// awaited reports whether a worker waits for the answer to a request: none does for a probe, of the path /, and for what caches list and
// watch.
func awaited(r *http.Request) bool {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	return r.URL.Path != "/" && (err != nil || timeout < unawaited)
}

// pass sends a request by next when it may be sent. It counts as under way until its answer was read to the end or closed; a watch until
// it has begun.
func (g *gates) pass(r *http.Request, at *gate, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	ctx, cut := context.WithCancelCause(r.Context())
	sent, err := g.enter(ctx, at, cut)
	if err != nil {
		cut(nil)
		return unsent(r, err)
	}
	leave := func(err error) { g.leave(sent, err); cut(nil) }
	answer, err := next(r.WithContext(ctx))
	if err != nil {
		err = causeOf(ctx, once(err))
		leave(err)
		return answer, err
	}
	answer.Header.Del("Retry-After")
	if r.URL.Query().Has("watch") {
		g.leave(sent, nil)
	}
	answer.Body = &leaving{ReadCloser: answer.Body, why: func(err error) error { return causeOf(ctx, err) }, leave: leave}
	return answer, nil
}

// leaving is the body of an answer, with which a request ends.
type leaving struct {
	io.ReadCloser
	why   func(error) error // why it ended with an error
	leave func(error)
	err   error
}

// Read notes how the body ends.
func (l *leaving) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	err = l.why(err)
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}

// Close ends the request.
func (l *leaving) Close() error {
	err := l.ReadCloser.Close()
	l.leave(l.err)
	return err
}

// answered reports whether a request that took so long and ended with err had an answer in time, and one that can be read. A connection
// that is refused holds no worker up.
func answered(took time.Duration, err error) bool {
	var timeout net.Error
	return took < late && !errors.Is(err, errNoAnswer) && !errors.Is(err, errCrowded) && (!errors.As(err, &timeout) || !timeout.Timeout())
}

// causeOf is err, or why the request that ended with it was given up.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && !errors.Is(err, io.EOF) && errors.Is(cause, errCrowded) {
		return cause
	}
	return err
}

// errLost is the error of a request whose connection ends before the answer begins.
var errLost = errors.New("the API server ended the connection instead of an answer")

// once is an error after which client-go does not try again by itself. It would wait between ten trials, for a second or for as long as
// the server says in Retry-After, with the worker, while nothing is under way that could be counted. The caller tries again, with the
// pauses of any failure. (client-go, rest.Request and withRetry.)
func once(err error) error {
	if utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return errLost
	}
	return err
}
