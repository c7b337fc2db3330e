package workload

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

const (
	// longestEvent is how long one event of a watch may be, in bytes: what etcd stores of an object is 1.5 MiB, and that much again in JSON.
	longestEvent = 3 << 20
	// flood is how soon after its begin a watch that has told as much as one may is one that never ends. Later it ends as if the connection broke:
	// client-go goes on from the last event that it got.
	flood = time.Minute
	// longestError is how long the answer may be that says why there is none, in bytes.
	longestError = 64 << 10
)

var (
	// errNoAnswer is what is wrong with all answers that an API server does not give: too long ones, and redirections. For a circuit they are none.
	errNoAnswer = errors.New("the API server does not answer as one does")
	errRedirect = fmt.Errorf("%w: it redirects, and is not followed", errNoAnswer)
	errProxy    = fmt.Errorf("%w: nothing comes in place of an object, or a text, as a proxy gives it", errNoAnswer)
	errSpins    = fmt.Errorf("%w: it says that what is asked for anew has expired", errNoAnswer)
	// errRests is the error of a request that is not sent, because the last answer to such a one was cut off.
	errRests = fmt.Errorf("%w: its last answer to this was cut off, and it is not asked again for a while", errNoAnswer)
)

// Bounded bounds the answers of a workload cluster that is asked past Transports, as theirs are: how long they may be, in bytes, and what may be in them.
// A redirection is an error: the cluster's administrators would decide which server the program asks.
func Bounded(limit int64, now func() time.Time) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return binding{next: next, limit: limit, now: now} }
}

type binding struct {
	next  http.RoundTripper
	limit int64
	now   func() time.Time
}

// RoundTrip sends a request, and bounds its answer.
func (b binding) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := bind(answer, b.limit, b.now); err != nil {
		_ = answer.Body.Close() // nothing of it is wanted
		return nil, err
	}
	return answer, nil
}

// bind makes an answer end with an errNoAnswer once more was read of it than may be, or more is in it.
func bind(answer *http.Response, limit int64, now func() time.Time) error {
	watch := answer.Request.URL.Query().Has("watch") && answer.StatusCode == http.StatusOK
	longest := limit
	if answer.StatusCode/100 != 2 {
		longest = min(limit, longestError)
	}
	if !watch && answer.ContentLength > longest {
		return tooLong(longest)
	}
	if err := foreign(answer); err != nil || answer.ContentLength == 0 {
		return err // an empty one has no type, and nothing to count: that of the probe, or an error
	}
	contentType := answer.Header.Get("Content-Type")
	if _, _, err := mime.ParseMediaType(contentType); err != nil && answer.StatusCode/100 != 2 {
		contentType = "text/plain" // of a proxy: its text is shown, and not decoded
		answer.Header.Set("Content-Type", contentType)
	}
	protobuf, err := isProtobuf(contentType)
	if err != nil {
		return err
	}
	switch {
	case watch && protobuf:
		answer.Body = &watchBody{ReadCloser: answer.Body, next: protobufEvents(answer.Body, limit), most: limit / bytesPerItem, since: now(), now: now}
	case watch:
		answer.Body = &watchBody{ReadCloser: answer.Body, next: jsonEvents(answer.Body), most: limit / bytesPerItem, since: now(), now: now}
	default:
		answer.Body = checked(answer.Body, protobuf, limit, longest)
	}
	return nil
}

// foreign is why an answer is none of an API server, whatever is in it; nil if it may be one.
func foreign(answer *http.Response) error {
	switch {
	case answer.StatusCode/100 == 3 && answer.Header.Get("Location") != "":
		return errRedirect
	case spins(answer):
		return errSpins
	case ofProxy(answer):
		return errProxy
	}
	return nil
}

// checked is the body of an answer that is no watch.
func checked(body io.ReadCloser, protobuf bool, limit, longest int64) *answerBody {
	if protobuf {
		return &answerBody{ReadCloser: body, limit: longest, check: func(content []byte) error { return checkProtobuf(content, limit) }}
	}
	limit /= shortened
	return &answerBody{ReadCloser: body, limit: min(longest, limit), check: func(content []byte) error { return checkJSON(content, limit) }}
}

// ofProxy reports whether an answer that says that something is there or done, or that it is not there, has nothing in it but a text, and so is none of an API
// server to what is asked for here. A proxy in front of a server that is gone may give 200 to everything, or 404. The probe of ClusterCache, of the path /,
// only wants to see whether there is an answer, so what is asked besides has to tell that the cluster is out of reach: else its nodes would be judged for ever
// as the cache has them, and what was to be deleted would count as gone. Nodes and pods are of a group that is always served: 404 is not about that.
func ofProxy(answer *http.Response) bool {
	path := answer.Request.URL.Path
	missing := answer.StatusCode == http.StatusNotFound && strings.HasPrefix(path, "/api/v1/")
	nothing := answer.ContentLength == 0 || strings.HasPrefix(answer.Header.Get("Content-Type"), "text/")
	return path != "/" && nothing && (missing || answer.StatusCode/100 == 2)
}

// spins reports whether an answer makes a reflector ask again at once, for ever: that the version it wants to begin with is too old, or not there
// yet. (client-go, Reflector.watchList.)
func spins(answer *http.Response) bool {
	query := answer.Request.URL.Query()
	expired := answer.StatusCode == http.StatusGone || answer.StatusCode == http.StatusGatewayTimeout
	return expired && query.Get("sendInitialEvents") == "true" && query.Get("resourceVersion") == ""
}

func tooLong(limit int64) error {
	return fmt.Errorf("%w: the answer is longer than %d bytes", errNoAnswer, limit)
}

// noting tells with what error a body ends.
type noting struct {
	io.ReadCloser
	note func(error)
}

// Read reads the body.
func (n *noting) Read(p []byte) (int, error) {
	read, err := n.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.note(err)
	}
	return read, err
}
