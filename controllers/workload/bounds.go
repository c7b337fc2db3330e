package workload

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// longestError is how long the answer may be that says why there is none, in bytes.
const longestError = 64 << 10

var (
	// errNoAnswer is what is wrong with all answers that an API server does not give: too long ones, and redirections. For a circuit they
	// are none.
	errNoAnswer = errors.New("the API server does not answer as one does")
	errRedirect = fmt.Errorf("%w: it redirects, and is not followed", errNoAnswer)
	errProxy    = fmt.Errorf("%w: nothing comes in place of an object, or a text, as a proxy gives it", errNoAnswer)
	// errPages is the error of a page of a list that is too long with those before it.
	errPages = fmt.Errorf("%w: the pages of a list are longer than %d answers may be", errNoAnswer, paged)
)

func tooLong(limit int64) error {
	return fmt.Errorf("%w: the answer is longer than %d bytes", errNoAnswer, limit)
}

// Bounded bounds the answers of a workload cluster that is asked past Transports, as theirs are: how long they may be, in bytes, and what
// may be in them. A redirection is an error: the cluster's administrators would decide which server the program asks.
func Bounded(limit int64) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return binding{next: next, limit: limit} }
}

type binding struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip sends a request, and bounds its answer: it ends with an errNoAnswer once more was read of it than may be, or more is in it.
func (b binding) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := b.bind(answer); err != nil {
		_ = answer.Body.Close() // nothing of it is wanted
		return nil, err
	}
	return answer, nil
}

func (b binding) bind(answer *http.Response) error {
	succeeded := answer.StatusCode/100 == 2
	watch, longest := answer.Request.URL.Query().Has("watch") && answer.StatusCode == http.StatusOK, b.limit
	if !succeeded {
		longest = min(longest, longestError)
	}
	switch {
	case answer.StatusCode/100 == 3 && answer.Header.Get("Location") != "":
		return errRedirect
	case ofProxy(answer):
		return errProxy
	case !watch && answer.ContentLength > longest:
		return tooLong(longest)
	case answer.ContentLength == 0:
		return nil // an empty one has no type, and nothing to count: that of the probe, or an error
	}
	media, err := mediaOf(answer, succeeded)
	if err != nil {
		return err
	}
	body, protobuf := &checkedBody{ReadCloser: answer.Body, left: 1, end: io.EOF}, media == runtime.ContentTypeProtobuf
	if watch {
		// It ends as if the connection broke: client-go goes on from the last event, or drops the list that a server tells as a watch without
		// end.
		body.left, body.end = b.limit/bytesPerItem, io.ErrUnexpectedEOF
	}
	body.next = b.parts(answer.Body, watch, protobuf, longest)
	answer.Body = body
	return nil
}

// parts returns what reads the next part of a body, and checks it.
func (b binding) parts(body io.Reader, watch, protobuf bool, longest int64) func() ([]byte, error) {
	switch {
	case watch && protobuf:
		return protobufEvents(body, b.limit)
	case watch:
		return jsonEvents(body)
	case protobuf:
		return whole(body, longest, func(content []byte) error { return checkProtobuf(content, b.limit) })
	}
	limit := b.limit / shortened
	return whole(body, min(longest, limit), func(content []byte) error { return checkJSON(content, limit) })
}

// mediaOf is the type of an answer. Another encoding than protobuf, JSON and text is an error: client-go would decode it as what was asked
// for. (rest.Request, transformResponse and newStreamWatcher.)
func mediaOf(answer *http.Response, succeeded bool) (string, error) {
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil && !succeeded {
		media, err = "text/plain", nil // of a proxy: its text is shown, and not decoded
		answer.Header.Set("Content-Type", media)
	}
	if err != nil || slices.Contains([]string{runtime.ContentTypeYAML, runtime.ContentTypeCBOR, runtime.ContentTypeCBORSequence}, media) {
		return "", errEncoding
	}
	return media, nil
}

// ofProxy reports whether an answer that says that something is there or done, or that it is not there, has nothing in it but a text, and
// so is none of an API server to what is asked for here. A proxy in front of a server that is gone may give 200 to everything, or 404. The
// probe of ClusterCache, of the path /, only wants to see whether there is an answer, so what is asked besides has to tell that the cluster
// is out of reach: else its nodes would be judged for ever as the cache has them, and what was to be deleted would count as gone. Nodes and
// pods are of a group that is always served: 404 is not about that.
func ofProxy(answer *http.Response) bool {
	path := answer.Request.URL.Path
	missing := answer.StatusCode == http.StatusNotFound && strings.HasPrefix(path, "/api/v1/")
	nothing := answer.ContentLength == 0 || strings.HasPrefix(answer.Header.Get("Content-Type"), "text/")
	return path != "/" && nothing && (missing || answer.StatusCode/100 == 2)
}
