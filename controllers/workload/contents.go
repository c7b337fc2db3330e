package workload

import (
	"encoding/binary"
	"fmt"
	"math"
	"mime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// An answer of a few MiB can be gigabytes once it is decoded: a list of nodes without anything in them takes two bytes for each, and 768 in memory. So
// what is in an answer is counted while it is read, and one that has more in it than answers of its length have is not read to its end.
const (
	// bytesPerItem is how long an object in a list is at least, on average. A Node with nothing but what every kubelet reports has 1200 bytes.
	bytesPerItem = 512
	// bytesPerValue is how long a field, or an element of an array, is at least on average, and valuesAtLeast how many there may be in any answer. A
	// Node has 50 bytes for each, the densest that is asked for is discovery, with 17.
	bytesPerValue, valuesAtLeast = 12, 1000
	// longestOther is how long an answer in protobuf may be that is of a kind that is not asked for. Errors are.
	longestOther = 16 << 10
)

// errDense is the error of an answer that has more in it than those of its length have.
var errDense = fmt.Errorf("%w: it has more objects or fields than its length allows for", errNoAnswer)

// errMany is the error of a watch that has told as many events as one may.
var errMany = fmt.Errorf("%w: it tells of more events than a watch may", errNoAnswer)

// errEncoding is the error of an answer in an encoding that is not asked for.
var errEncoding = fmt.Errorf("%w: it is neither JSON nor protobuf", errNoAnswer)

// counted are the kinds that are asked for in protobuf. All have their metadata, spec and status as fields 1 to 3, and lists their items as field 2.
var counted = []string{"Node", "Lease", "VolumeAttachment", "PartialObjectMetadata", "Pod", "NodeList", "LeaseList", "VolumeAttachmentList",
	"PartialObjectMetadataList", "PodList"}

// contents counts what is in an answer, or in a watch, while it is read.
type contents interface {
	// read goes on with p. It returns an error if there is more than there may be.
	read(p []byte) error
}

// contentsOf is what counts in an answer of that type that may have so many bytes. One whose type cannot be read is not counted: client-go takes it for what
// was asked for, or goes by the part of it that it can read. (rest.Request, transformResponse and newStreamWatcher.)
func contentsOf(contentType string, limit int64, watch bool) (contents, error) {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return nil, errEncoding
	case media == runtime.ContentTypeProtobuf:
		return newInProtobuf(limit, watch), nil
	case media == runtime.ContentTypeYAML, media == runtime.ContentTypeCBOR, media == runtime.ContentTypeCBORSequence:
		return nil, errEncoding
	}
	if !watch {
		limit /= shortened
	}
	return &inJSON{limit: limit, watch: watch}, nil // the text of an error among it
}

// shortened is by how much shorter than others those answers have to be that take most memory for each of their bytes: those in JSON, which an API
// server that is asked for protobuf does not give of what can be long, and pods.
const shortened = 4

// tally is how much was read of an answer, or of an event of a watch, and what was in it.
type tally struct{ bytes, values, items int64 }

// over reports whether that is too much of an answer that may have so many bytes.
func (t *tally) over(limit int64) bool {
	return t.values > valuesAtLeast+t.bytes/bytesPerValue || t.items > max(limit/bytesPerItem, 1)
}

// inJSON counts what is in JSON: by its commas, whatever they separate.
type inJSON struct {
	tally
	limit         int64
	watch         bool
	depth, events int64
	text, escaped bool
}

func (j *inJSON) read(p []byte) error {
	for _, b := range p {
		j.bytes++
		switch {
		case j.escaped:
			j.escaped = false
		case j.text:
			j.escaped, j.text = b == '\\', b != '"'
		default:
			j.structure(b)
		}
		switch {
		case j.over(j.limit):
			return errDense
		case j.watch && j.events > j.limit/bytesPerItem:
			return errMany
		case !j.watch && j.bytes > j.limit:
			return tooLong(j.limit)
		case j.watch && j.bytes > longestEvent:
			return tooLong(longestEvent)
		}
	}
	return nil
}

// structure goes on with a byte that is not in a string.
func (j *inJSON) structure(b byte) {
	switch b {
	case '"':
		j.text = true
	case '{', '[':
		j.depth++
	case '}', ']':
		j.depth--
		if j.watch && j.depth <= 0 { // whatever separates events: a line that ends within one says nothing
			j.events++
			j.tally, j.depth = tally{}, 0
		}
	case ',':
		j.values++
		if j.depth <= 2 && !j.watch { // between the items of a list
			j.items++
		}
	}
}

// message is what a message in protobuf is, as far as it is counted.
type message int

const (
	frames    message = iota // a watch: events, each with its length before it
	watched                  // WatchEvent: {type, object}
	extension                // RawExtension: {raw}
	envelope                 // runtime.Unknown: {typeMeta, raw}
	list                     // {metadata, items}
	object                   // {metadata, spec, status}
	part                     // one of those, whose fields are counted
)

// within is the message that a field of another one is. What is in others is not looked at.
func within(in message, field uint64, kind string) (message, bool) {
	switch {
	case in == watched && field == 2:
		return extension, true
	case in == extension && field == 1:
		return envelope, true
	case in == envelope && field == 2 && strings.HasSuffix(kind, "List"):
		return list, true
	case in == envelope && field == 2, in == list && field == 2:
		return object, true
	case in == object && field <= 3:
		return part, true
	}
	return 0, false
}

// opened is a message that was not read to its end.
type opened struct {
	is  message
	end int64 // where
}

// inProtobuf counts what is in protobuf. It reads no message otherwise than the decoder does, and goes no further in one that it cannot read: the decoder
// does not either.
type inProtobuf struct {
	tally
	limit  int64
	at     int64 // how much was read in all
	open   []opened
	events int64
	kind   *runtime.TypeMeta // nil before it was read

	skip   int64  // how much of what follows is not looked at
	kept   []byte // or is a kind, if it is not nil
	number []byte // what was read of a number
	length bool   // the number is the length of the field, and not a tag
	value  bool   // or its value
	field  uint64
}

const magic = 4 // how many bytes say that something is protobuf

func newInProtobuf(limit int64, watch bool) *inProtobuf {
	if watch {
		return &inProtobuf{limit: limit, open: []opened{{frames, math.MaxInt64}}}
	}
	return &inProtobuf{limit: limit, open: []opened{{envelope, math.MaxInt64}}, skip: magic}
}

func (p *inProtobuf) read(b []byte) error {
	for len(b) > 0 {
		n := max(1, min(p.skip, int64(len(b))))
		p.at, p.bytes = p.at+n, p.bytes+n
		var err error
		switch {
		case p.skip == 0:
			err = p.next(b[0])
		case p.kept != nil:
			p.skip, p.kept = p.skip-n, append(p.kept, b[:n]...)
		default:
			p.skip -= n
		}
		b = b[n:]
		if p.skip == 0 && p.kept != nil && err == nil {
			err = p.known()
		}
		for p.skip == 0 && p.at >= p.open[len(p.open)-1].end {
			p.open = p.open[:len(p.open)-1]
			p.number, p.length, p.value = nil, false, false
		}
		switch {
		case err != nil:
			return err
		case p.over(p.limit):
			return errDense
		}
	}
	return nil
}

// next goes on with a byte of a number.
func (p *inProtobuf) next(b byte) error {
	in := p.open[len(p.open)-1]
	p.number = append(p.number, b)
	if in.is == frames {
		return p.begins()
	}
	if b >= 0x80 && len(p.number) < binary.MaxVarintLen64 {
		return nil
	}
	number, read := binary.Uvarint(p.number)
	p.number = nil
	length, value := p.length, p.value
	p.length, p.value = false, false
	switch {
	case read <= 0:
		p.skip = in.end - p.at
	case value:
	case length && number > uint64(in.end-p.at):
		p.skip = in.end - p.at
	case length:
		return p.enter(in.is, int64(number))
	default:
		p.tag(in, number)
	}
	return nil
}

// begins reads the length of an event.
func (p *inProtobuf) begins() error {
	if len(p.number) < 4 {
		return nil
	}
	length := int64(binary.BigEndian.Uint32(p.number))
	p.number, p.kind, p.tally = nil, nil, tally{}
	p.open = append(p.open, opened{watched, p.at + length})
	p.events++
	switch {
	case p.events > p.limit/bytesPerItem:
		return errMany
	case length > longestEvent:
		return tooLong(longestEvent)
	}
	return nil
}

// tag begins a field.
func (p *inProtobuf) tag(in opened, number uint64) {
	if in.is >= list {
		p.values++
	}
	p.field = number >> 3
	switch number & 7 {
	case 0:
		p.value = true
	case 1:
		p.skip = min(8, in.end-p.at)
	case 2:
		p.length = true
	case 3, 4: // of a group, whose fields follow
	case 5:
		p.skip = min(4, in.end-p.at)
	default:
		p.skip = in.end - p.at
	}
}

// enter begins with what is in a field.
func (p *inProtobuf) enter(in message, length int64) error {
	if in == envelope && p.field == 1 {
		if p.kind != nil || length > longestOther {
			return errDense
		}
		p.skip, p.kept = length, []byte{}
		return nil
	}
	var kind string
	if p.kind != nil {
		kind = p.kind.Kind
	}
	if in == envelope && p.field == 2 {
		switch {
		case length > longestOther && !slices.Contains(counted, kind):
			return errDense
		case length > p.limit/shortened && kind == "PodList":
			return tooLong(p.limit / shortened)
		}
	}
	is, looks := within(in, p.field, kind)
	if !looks {
		p.skip = length
		return nil
	}
	if in == list {
		p.items++
	}
	if is == envelope {
		p.skip = min(magic, length)
	}
	p.open = append(p.open, opened{is, p.at + length})
	return nil
}

// known reads a kind.
func (p *inProtobuf) known() error {
	p.kind = &runtime.TypeMeta{}
	err := p.kind.Unmarshal(p.kept)
	p.kept = nil
	if err != nil {
		return errDense
	}
	return nil
}
