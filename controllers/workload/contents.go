package workload

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A list of nodes without anything in them has two bytes for each node, and takes 768 in memory once it is decoded: an answer of a few MiB would take
// gigabytes. So the objects and fields of an answer are counted before client-go decodes it.
const (
	// bytesPerItem is the least average length of an object in a list. A Node with nothing but what every kubelet reports has 1200 bytes.
	bytesPerItem = 512
	// bytesPerField is the least average length of a field. A Node has 50 bytes for each, the densest that is asked for is discovery, with 17.
	bytesPerField = 12
	// leastFields is the number of fields that every answer may have.
	leastFields = 1000
	// longestOther is the longest protobuf answer, in bytes, of a kind that is not in counted. Errors are of kind Status.
	longestOther = 16 << 10
	// shortened divides the limit for answers that take most memory for each byte: pods, and JSON, which an API server that is asked for protobuf sends
	// for nothing that is long.
	shortened = 4
)

var (
	errDense    = fmt.Errorf("%w: it has more objects or fields than its length allows for", errNoAnswer)
	errMany     = fmt.Errorf("%w: it tells of more events than a watch may", errNoAnswer)
	errEncoding = fmt.Errorf("%w: it is neither JSON nor protobuf", errNoAnswer)
)

// protobufMagic begins every object that an API server sends in protobuf.
var protobufMagic = []byte("k8s\x00")

// counted are the kinds that are asked for in protobuf. All have their metadata, spec and status as fields 1 to 3, and lists their items as field 2.
var counted = []string{
	"Node", "Lease", "VolumeAttachment", "PartialObjectMetadata", "Pod",
	"NodeList", "LeaseList", "VolumeAttachmentList", "PartialObjectMetadataList", "PodList",
}

// isProtobuf reports whether the answers of that content type are protobuf, and not JSON or text. Another encoding is an error: client-go would decode it as
// what was asked for. (rest.Request, transformResponse and newStreamWatcher.)
func isProtobuf(contentType string) (bool, error) {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return false, errEncoding
	case media == runtime.ContentTypeYAML, media == runtime.ContentTypeCBOR, media == runtime.ContentTypeCBORSequence:
		return false, errEncoding
	}
	return media == runtime.ContentTypeProtobuf, nil
}

// checkJSON counts the fields of an answer by its commas, those in texts among them, and the items of a list.
func checkJSON(content []byte, limit int64) error {
	length := int64(len(content))
	if int64(bytes.Count(content, []byte(","))) > leastFields+length/bytesPerField {
		return errDense
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(content, &list) == nil && int64(len(list.Items)) > max(limit/bytesPerItem, 1) {
		return errDense
	}
	return nil // what is not JSON is the text of an error, or an error of the decoder
}

// checkProtobuf counts the items of a list, and the fields of metadata, spec and status of each object.
func checkProtobuf(content []byte, limit int64) error {
	var object runtime.Unknown
	raw, found := bytes.CutPrefix(content, protobufMagic)
	if !found || object.Unmarshal(raw) != nil {
		return errEncoding
	}
	length := int64(len(object.Raw))
	switch {
	case length > longestOther && !slices.Contains(counted, object.Kind):
		return errDense
	case object.Kind == "PodList" && length > limit/shortened:
		return tooLong(limit / shortened)
	}
	depth, items := 2, int64(0)
	if strings.HasSuffix(object.Kind, "List") {
		depth, items = 3, countFields(object.Raw, 1)
	}
	if items > max(limit/bytesPerItem, 1) || countFields(object.Raw, depth) > leastFields+length/bytesPerField {
		return errDense
	}
	return nil
}

// countFields returns the number of fields in a protobuf message, and in the messages within it, down to depth. Only the first three fields are looked into.
func countFields(message []byte, depth int) int64 {
	fields := int64(0)
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeField(message)
		if length < 0 {
			return fields // the decoder of Kubernetes stops here as well
		}
		fields++
		if kind == protowire.BytesType && number <= 3 && depth > 1 {
			_, _, tag := protowire.ConsumeTag(message)
			inner, _ := protowire.ConsumeBytes(message[tag:])
			fields += countFields(inner, depth-1)
		}
		message = message[length:]
	}
	return fields
}

// answerBody is the body of an answer that is read, and checked, before any of it is given out.
type answerBody struct {
	io.ReadCloser
	limit int64
	check func(content []byte) error

	content *bytes.Reader
	err     error // how the reading has ended, if not well
}

// Read reads the answer, at its first call up to the limit.
func (a *answerBody) Read(p []byte) (int, error) {
	if a.content == nil && a.err == nil {
		var content []byte
		content, a.err = io.ReadAll(io.LimitReader(a.ReadCloser, a.limit+1))
		switch {
		case a.err != nil:
		case int64(len(content)) > a.limit:
			a.err = tooLong(a.limit)
		default:
			a.err = a.check(content)
		}
		a.content = bytes.NewReader(content)
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.content.Read(p)
}

// watchBody is the body of a watch, which is read event by event. Each is checked before it is given out.
type watchBody struct {
	io.ReadCloser
	next  func() ([]byte, error)
	most  int64 // events
	since time.Time
	now   func() time.Time

	rest  []byte
	count int64
	err   error
}

// Read reads the rest of an event, or of the next one.
func (w *watchBody) Read(p []byte) (int, error) {
	if len(w.rest) == 0 && w.err == nil {
		w.count++
		switch {
		case w.count <= w.most:
			w.rest, w.err = w.next()
		case w.now().Sub(w.since) < flood:
			w.err = errMany
		default:
			w.err = io.ErrUnexpectedEOF
		}
	}
	if w.err != nil {
		return 0, w.err
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// protobufEvents returns what reads the next event of a watch in protobuf: its length in four bytes, and a WatchEvent.
func protobufEvents(body io.Reader, limit int64) func() ([]byte, error) {
	return func() ([]byte, error) {
		header := make([]byte, 4)
		if _, err := io.ReadFull(body, header); err != nil {
			return nil, err
		}
		length := binary.BigEndian.Uint32(header)
		if length > longestEvent {
			return nil, tooLong(longestEvent)
		}
		frame := make([]byte, len(header)+int(length))
		copy(frame, header)
		if _, err := io.ReadFull(body, frame[len(header):]); err != nil {
			return nil, err
		}
		var event metav1.WatchEvent
		if event.Unmarshal(frame[len(header):]) != nil {
			return nil, errEncoding
		}
		return frame, checkProtobuf(event.Object.Raw, limit)
	}
}

// jsonEvents returns what reads the next event of a watch in JSON: one value after the other, however they are separated.
func jsonEvents(body io.Reader) func() ([]byte, error) {
	bounded := &io.LimitedReader{R: body}
	decoder := json.NewDecoder(bounded)
	return func() ([]byte, error) {
		bounded.N = longestEvent
		var event json.RawMessage
		err := decoder.Decode(&event)
		switch {
		case err != nil && bounded.N <= 0:
			return nil, tooLong(longestEvent)
		case err != nil:
			return nil, err
		}
		return event, checkJSON(event, longestEvent)
	}
}
