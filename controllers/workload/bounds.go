package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	caseSensitive "k8s.io/apimachinery/pkg/util/json"
)

const (
	// longestError is the maximum length of an error response in bytes.
	longestError = 64 << 10
	// longestEvent is the maximum length of one watch event in bytes: etcd stores at most 1.5 MiB of an object, and JSON may double that.
	longestEvent = 3 << 20
	// shortened divides the limit for lists of pods, which need the most memory for each byte once they are decoded.
	shortened = 4

	// An empty node in a list has three bytes, and 768 bytes in memory once it is decoded: a response of a few MiB could fill gigabytes.
	// Therefore objects and fields are counted before client-go decodes them.

	// bytesPerItem is the minimum average length of an object in a list. A Node with only what every kubelet reports has 1200 bytes.
	bytesPerItem = 512
	// bytesPerField is the minimum average length of a field. A Node has 50 bytes for each field. Discovery has the fewest, 17.
	bytesPerField = 12
	// leastFields is how many fields any response may have, however short it is.
	leastFields = 1000
)

var (
	// errNoAnswer is wrapped by the errors for responses that no API server sends, such as redirects or responses that are too long. The
	// circuit counts such a response as missing.
	errNoAnswer = errors.New("the response is not that of an API server")
	errRedirect = fmt.Errorf("%w: it is a redirect, which kubemend does not follow", errNoAnswer)
	errProxy    = fmt.Errorf("%w: it is empty or plain text, as if from a proxy", errNoAnswer)
	errDense    = fmt.Errorf("%w: it has too many objects or fields for its length", errNoAnswer)
	errEncoding = fmt.Errorf("%w: it is not JSON", errNoAnswer)
	// errPages says that the pages of a list are together too long.
	errPages = fmt.Errorf("%w: the pages of a list are together longer than %d times the limit of a response", errNoAnswer, paged)
)

func tooLong(limit int64) error {
	return fmt.Errorf("%w: it is longer than %d bytes", errNoAnswer, limit)
}

// Bounded limits the responses of a workload cluster for a client that does not use Transports: to limit bytes, and to content that is safe
// to decode. A redirect is an error: otherwise the administrators of the cluster would decide which server the client connects to.
func Bounded(limit int64) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return binding{next: next, limit: limit} }
}

type binding struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip sends a request, and returns the response after all of it was read and checked; of a watch, each event is checked. It asks only
// for JSON, because JSON is simple to check before it is decoded.
func (b binding) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.Header.Set("Accept", inJSON(asked.Header.Get("Accept")))
	answer, err := b.next.RoundTrip(asked)
	if err != nil {
		return nil, err
	}
	body, err := b.bind(r, answer)
	if err != nil {
		_ = answer.Body.Close() // the response is dropped
		return nil, err
	}
	answer.Body, answer.Request = body, r
	return answer, nil
}

// inJSON returns the JSON media types of an Accept header; if it has none, application/json.
func inJSON(accepted string) string {
	var types []string
	for media := range strings.SplitSeq(accepted, ",") {
		if media = strings.TrimSpace(media); strings.HasPrefix(media, runtime.ContentTypeJSON) {
			types = append(types, media)
		}
	}
	if len(types) == 0 {
		return runtime.ContentTypeJSON
	}
	return strings.Join(types, ",")
}

// bind checks a response and returns its body.
func (b binding) bind(r *http.Request, answer *http.Response) (io.ReadCloser, error) {
	succeeded := answer.StatusCode/100 == 2
	longest := b.limit
	switch {
	case answer.StatusCode/100 == 3 && answer.Header.Get("Location") != "":
		return nil, errRedirect
	case ofProxy(r.URL.Path, answer):
		return nil, errProxy
	case answer.ContentLength == 0:
		return answer.Body, nil // nothing to check: an empty response to the probe, or an empty error
	case !decodable(answer, succeeded):
		return nil, errEncoding
	case answer.StatusCode == http.StatusOK && r.URL.Query().Has("watch"):
		bounded := &io.LimitedReader{R: answer.Body}
		return &events{ReadCloser: answer.Body, bounded: bounded, decoder: json.NewDecoder(bounded), left: b.limit / bytesPerItem}, nil
	case !succeeded:
		longest = min(longest, longestError)
	case strings.HasSuffix(r.URL.Path, "/pods"):
		longest /= shortened
	}
	content, err := whole(answer, longest)
	if err == nil && tooDense(content, b.limit) {
		err = errDense
	}
	answer.ContentLength = int64(len(content))
	return io.NopCloser(bytes.NewReader(content)), err
}

// whole reads a response to its end. It returns an error if the response is longer than longest.
func whole(answer *http.Response, longest int64) ([]byte, error) {
	if answer.ContentLength > longest {
		return nil, tooLong(longest)
	}
	content, err := io.ReadAll(io.LimitReader(answer.Body, longest+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(content)) > longest:
		return nil, tooLong(longest)
	}
	return content, answer.Body.Close()
}

// tooDense reports whether a response has too many fields, counted by its commas, or too many items in a list. Content that is not JSON has
// no items: it is the text of an error, or client-go fails to decode it. Like client-go, tooDense does not take ITEMS for items.
func tooDense(content []byte, limit int64) bool {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	return manyFields(content) || caseSensitive.Unmarshal(content, &list) == nil && int64(len(list.Items)) > max(limit/bytesPerItem, 1)
}

func manyFields(content []byte) bool {
	return bytes.Count(content, []byte(",")) > leastFields+len(content)/bytesPerField
}

// events is the body of a watch: JSON values, however they are separated. Each event is checked before any part of it is returned.
type events struct {
	io.ReadCloser
	bounded *io.LimitedReader
	decoder *json.Decoder // of bounded
	left    int64         // how many more events may follow

	rest []byte
	err  error
}

// Read reads from the present event or, at its end, from the next one.
func (e *events) Read(p []byte) (int, error) {
	if len(e.rest) == 0 && e.err == nil {
		e.rest, e.err = e.next()
	}
	if e.err != nil {
		return 0, e.err
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// next reads and checks an event. After the maximum number of events it ends the watch as if the connection had broken: client-go continues
// with a new watch or, if the server sends a list as a watch without end, drops the list.
func (e *events) next() ([]byte, error) {
	e.left--
	if e.left < 0 {
		return nil, io.ErrUnexpectedEOF
	}
	e.bounded.N = longestEvent
	var event json.RawMessage
	err := e.decoder.Decode(&event)
	switch {
	case err != nil && e.bounded.N <= 0:
		return nil, tooLong(longestEvent)
	case err == nil && manyFields(event):
		return nil, errDense
	}
	return event, err
}

// encodings are the other media types that client-go decodes, even if a request asks for JSON. (rest.Request, transformResponse and
// newStreamWatcher)
var encodings = []string{
	runtime.ContentTypeProtobuf, runtime.ContentTypeYAML, runtime.ContentTypeCBOR, runtime.ContentTypeCBORSequence,
}

// decodable reports whether client-go decodes a response as JSON, or not at all. A success without a media type is not decodable.
func decodable(answer *http.Response, succeeded bool) bool {
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil && !succeeded { // the error of a proxy: as text/plain, client-go shows it and does not decode it
		media, err = "text/plain", nil
		answer.Header.Set("Content-Type", media)
	}
	return err == nil && !slices.Contains(encodings, media)
}

// ofProxy reports whether a response is not from an API server: it is empty or a text, and its status is a success or, in the core group,
// 404. A proxy in front of a server that is gone may send 200 or 404 for all requests.
//
// The probe of ClusterCache (the path /) accepts any response, so other requests must detect that the cluster cannot be reached. Otherwise
// nodes would be judged by an old cache for ever, and objects to be deleted would count as gone. An API server sends no such 404 in the
// core group, because it always serves that group.
func ofProxy(path string, answer *http.Response) bool {
	missing := answer.StatusCode == http.StatusNotFound && strings.HasPrefix(path, "/api/v1/")
	nothing := answer.ContentLength == 0 || strings.HasPrefix(answer.Header.Get("Content-Type"), "text/")
	return path != "/" && nothing && (missing || answer.StatusCode/100 == 2)
}
