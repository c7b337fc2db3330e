package workload

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A list of nodes without anything in them has two bytes for each node, and takes 768 in memory once it is decoded: an answer of a few MiB
// would take gigabytes. So the objects and fields of an answer are counted before client-go decodes it.
const (
	// bytesPerItem is the least average length of an object in a list. A Node with nothing but what every kubelet reports has 1200 bytes.
	bytesPerItem = 512
	// bytesPerField is the least average length of a field. A Node has 50 bytes for each, the densest that is asked for is discovery, with
	// 17.
	bytesPerField = 12
	// leastFields is the number of fields that every answer may have.
	leastFields = 1000
	// longestOther is the longest protobuf answer, in bytes, of a kind that is not in counted. Errors are of kind Status.
	longestOther = 16 << 10
	// shortened divides the limit for answers that take most memory for each byte: pods, and JSON, which an API server that is asked for
	// protobuf sends for nothing that is long.
	shortened = 4
	// longestEvent is how long one event of a watch may be, in bytes: what etcd stores of an object is 1.5 MiB, and that much again in
	// JSON.
	longestEvent = 3 << 20
)

var (
	errDense    = fmt.Errorf("%w: it has more objects or fields than its length allows for", errNoAnswer)
	errEncoding = fmt.Errorf("%w: it is neither JSON nor protobuf", errNoAnswer)
)

// protobufMagic begins every object that an API server sends in protobuf.
var protobufMagic = []byte("k8s\x00")

// counted are the kinds that are asked for in protobuf, one by one or as a list. All have their metadata, spec and status as fields 1 to 3,
// and lists their items as field 2.
var counted = []string{"Node", "Lease", "VolumeAttachment", "PartialObjectMetadata", "Pod"}

// checkJSON counts the fields of an answer by its commas, those in texts among them, and the items of a list.
func checkJSON(content []byte, limit int64) error {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	switch {
	case int64(bytes.Count(content, []byte(","))) > leastFields+int64(len(content))/bytesPerField:
		return errDense
	case json.Unmarshal(content, &list) == nil && int64(len(list.Items)) > max(limit/bytesPerItem, 1):
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
	length, depth, items := int64(len(object.Raw)), 2, int64(0)
	kind, list := strings.CutSuffix(object.Kind, "List")
	if list {
		depth, items = 3, countFields(object.Raw, 1)
	}
	switch {
	case length > longestOther && !slices.Contains(counted, kind):
		return errDense
	case list && kind == "Pod" && length > limit/shortened:
		return tooLong(limit / shortened)
	case items > max(limit/bytesPerItem, 1) || countFields(object.Raw, depth) > leastFields+length/bytesPerField:
		return errDense
	}
	return nil
}

// countFields returns the number of fields in a protobuf message, and in the messages within it, down to depth. Only the first three fields
// are looked into.
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

// checkedBody is the body of an answer that is read part by part: a watch event by event, another answer as a whole. Each is checked
// before any of it is given out.
type checkedBody struct {
	io.ReadCloser
	next func() ([]byte, error)
	left int64 // how many parts it may still have
	end  error // after these

	rest []byte
	err  error
}

// Read reads the rest of a part, or of the next one.
func (b *checkedBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 && b.err == nil {
		b.left--
		if b.left < 0 {
			b.err = b.end
		} else {
			b.rest, b.err = b.next()
		}
	}
	if b.err != nil {
		return 0, b.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// whole returns what reads an answer that is no watch.
func whole(body io.Reader, limit int64, check func([]byte) error) func() ([]byte, error) {
	return func() ([]byte, error) {
		content, err := io.ReadAll(io.LimitReader(body, limit+1))
		switch {
		case err != nil:
			return nil, err
		case int64(len(content)) > limit:
			return nil, tooLong(limit)
		}
		return content, check(content)
	}
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
		frame := slices.Grow(header, int(length))[:len(header)+int(length)]
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
