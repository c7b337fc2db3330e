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
	// longestError is how long the answer may be that says why there is none, in bytes.
	longestError = 64 << 10
	// longestEvent is how long one event of a watch may be, in bytes: what etcd stores of an object is 1.5 MiB, and that much again in
	// JSON.
	longestEvent = 3 << 20
	// shortened divides the limit for pods, which take most memory for each byte once they are decoded.
	shortened = 4

	// A list of nodes without anything in them has three bytes for each node, and takes 768 in memory once it is decoded: an answer of a
	// few MiB would take gigabytes. So objects and fields are counted before client-go decodes them.

	// bytesPerItem is the least average length of an object in a list. A Node with nothing but what every kubelet reports has 1200 bytes.
	bytesPerItem = 512
	// bytesPerField is the least average length of a field. A Node has 50 bytes for each, the densest that is asked for is discovery, with
	// 17.
	bytesPerField = 12
	// leastFields is the number of fields that every answer may have.
	leastFields = 1000
)

var (
	// errNoAnswer is what is wrong with all answers that an API server does not give: too long ones, and redirections. For a circuit they
	// are none.
	errNoAnswer = errors.New("the API server does not answer as one does")
	errRedirect = fmt.Errorf("%w: it redirects, and is not followed", errNoAnswer)
	errProxy    = fmt.Errorf("%w: nothing comes in place of an object, or a text, as a proxy gives it", errNoAnswer)
	errDense    = fmt.Errorf("%w: it has more objects or fields than its length allows for", errNoAnswer)
	errEncoding = fmt.Errorf("%w: it is not JSON", errNoAnswer)
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

// RoundTrip sends a request, and returns its answer once all of it was read and may be decoded. Of a watch each event is.
//
// Answers are asked for in JSON, of which it is simple to say what is in them before they are decoded.
func (b binding) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.Header.Set("Accept", inJSON(asked.Header.Get("Accept")))
	answer, err := b.next.RoundTrip(asked)
	if err != nil {
		return nil, err
	}
	body, err := b.bind(r, answer)
	if err != nil {
		_ = answer.Body.Close() // nothing of it is wanted
		return nil, err
	}
	answer.Body, answer.Request = body, r
	return answer, nil
}

// inJSON is what is accepted of the types that a client accepts.
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

// bind returns the body of an answer to a request, as far as it may be decoded.
func (b binding) bind(r *http.Request, answer *http.Response) (io.ReadCloser, error) {
	succeeded := answer.StatusCode/100 == 2
	longest := b.limit
	switch {
	case answer.StatusCode/100 == 3 && answer.Header.Get("Location") != "":
		return nil, errRedirect
	case ofProxy(r.URL.Path, answer):
		return nil, errProxy
	case answer.ContentLength == 0:
		return answer.Body, nil // an empty one has no type, and nothing to count: that of the probe, or an error
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

// whole reads an answer to its end.
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

// tooDense counts the fields of an answer by its commas, those in texts among them, and the items of a list. What is not JSON is the text
// of an error, or an error of the decoder. As client-go does, it tells items from ITEMS.
func tooDense(content []byte, limit int64) bool {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	return manyFields(content) || caseSensitive.Unmarshal(content, &list) == nil && int64(len(list.Items)) > max(limit/bytesPerItem, 1)
}

func manyFields(content []byte) bool {
	return bytes.Count(content, []byte(",")) > leastFields+len(content)/bytesPerField
}

// events is the body of a watch: one value after the other, however they are separated. Each is checked before any of it is given out.
type events struct {
	io.ReadCloser
	bounded *io.LimitedReader
	decoder *json.Decoder // of bounded
	left    int64         // how many it may still have

	rest []byte
	err  error
}

// Read reads the rest of an event, or of the next one.
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

// next reads an event. After the last one that there may be the watch ends as if the connection broke: client-go goes on from that event,
// or drops the list that a server tells as a watch without end.
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

// encodings are those besides JSON that client-go decodes, whatever was asked for. (rest.Request, transformResponse and newStreamWatcher.)
var encodings = []string{
	runtime.ContentTypeProtobuf, runtime.ContentTypeYAML, runtime.ContentTypeCBOR, runtime.ContentTypeCBORSequence,
}

// decodable reports whether client-go decodes an answer as JSON, or not at all. One of no type it would decode as what was asked for.
func decodable(answer *http.Response, succeeded bool) bool {
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil && !succeeded { // of a proxy: its text is shown, and not decoded
		media, err = "text/plain", nil
		answer.Header.Set("Content-Type", media)
	}
	return err == nil && !slices.Contains(encodings, media)
}

// ofProxy reports whether an answer that says that something is there or done, or that it is not there, has nothing in it but a text, and
// so is none of an API server to what is asked for here. A proxy in front of a server that is gone may give 200 to everything, or 404. The
// probe of ClusterCache, of the path /, only wants to see whether there is an answer, so what is asked besides has to tell that the cluster
// is out of reach: else its nodes would be judged for ever as the cache has them, and what was to be deleted would count as gone. Nodes and
// pods are of a group that is always served: 404 is not about that.
func ofProxy(path string, answer *http.Response) bool {
	missing := answer.StatusCode == http.StatusNotFound && strings.HasPrefix(path, "/api/v1/")
	nothing := answer.ContentLength == 0 || strings.HasPrefix(answer.Header.Get("Content-Type"), "text/")
	return path != "/" && nothing && (missing || answer.StatusCode/100 == 2)
}
