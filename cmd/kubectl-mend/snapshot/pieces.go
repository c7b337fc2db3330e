package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

var (
	// errNoList is the error of what does not look like a list.
	errNoList = errors.New("the answer is not a list of objects")
	// errCut is that of a list that ends before it is over.
	errCut = errors.New("the answer ends in the middle of a list")
	// errLong is that of an object which is longer than any that an API server stores.
	errLong = errors.New("an object in the answer does not end")
)

// pieceSize is how much of a list is looked at together: some dozens of objects.
const pieceSize = 256 << 10

// longestObject is how long an object may be, in bytes: etcd stores 1.5 MiB, and JSON may spell a byte with six. How long a list is nothing bounds but the
// time that it may take: objects are parsed, and most of each dropped, while the next ones come.
const longestObject = 16 << 20

// split reads a list of objects as an API server sends it, and gives out the objects in it as they stand there, some at a time, as soon as they
// have come. What is in them is not looked at: to parse them is most of the work with a large list, and can be done by others meanwhile. Objects
// that were given out belong to who got them. Why it is no pager: docs/adr/0054-the-command-line-reads-lists-in-one-stream.md
func split(list io.Reader, give func(objects [][]byte)) error {
	s := splitter{}
	piece, kept := make([]byte, pieceSize), 0 // of the piece before, which was not over
	for {
		n, err := io.ReadFull(list, piece[kept:])
		over := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !over {
			return fmt.Errorf("read a list: %w", err)
		}
		objects := s.over(piece[:kept+n])
		if len(objects) > 0 {
			give(objects)
		}
		if over {
			return s.end()
		}
		left := piece[s.first() : kept+n]
		if len(left) > longestObject {
			return errLong
		}
		if len(objects) > 0 || len(left) > len(piece)/2 {
			piece = make([]byte, max(pieceSize, 4*len(left)))
		}
		kept = copy(piece, left)
		s.moved()
	}
}

// splitter goes over a list without understanding it.
type splitter struct {
	at, depth         int
	inString, escaped bool
	// name is the last string in the list itself, which began at word: the name of what follows.
	name string
	word int
	// inItems says that it is among the objects; the one that is not over began at begin.
	inItems bool
	begin   int
	// strange says that it is no list, finished that it is over.
	strange, finished bool
}

// over goes on over data, of which all before s.at is known already, and returns the objects that end in it.
func (s *splitter) over(data []byte) (objects [][]byte) {
	for ; s.at < len(data); s.at++ {
		switch b := data[s.at]; {
		case s.inString:
			s.text(data)
		case b == '"':
			s.inString, s.word = true, s.at+1
		case b == '{', b == '[':
			s.open(b)
		case b == '}', b == ']':
			s.depth--
			if s.inItems && s.depth == 2 {
				objects = append(objects, data[s.begin:s.at+1:s.at+1])
			}
			s.inItems = s.inItems && s.depth > 1
			s.finished = s.depth == 0
		case s.depth == 0 && bytes.IndexByte(blanks, b) < 0:
			s.strange = true
		}
	}
	return objects
}

var blanks = []byte(" \t\r\n")

// text goes on in a string.
func (s *splitter) text(data []byte) {
	switch b := data[s.at]; {
	case s.escaped:
		s.escaped = false
	case b == '\\':
		s.escaped = true
	case b == '"':
		s.inString = false
		if s.depth == 1 {
			s.name = string(data[s.word:s.at])
		}
	}
}

// open goes into an object or an array.
func (s *splitter) open(b byte) {
	s.strange = s.strange || s.depth == 0 && (b != '{' || s.finished)
	s.depth++
	switch {
	case s.depth == 2 && b == '[' && s.name == "items":
		s.inItems = true
	case s.depth == 3 && s.inItems:
		s.begin = s.at
	}
}

// first is where that begins which is needed still when more has come.
func (s *splitter) first() int {
	switch {
	case s.inItems && s.depth > 2:
		return s.begin
	case s.inString:
		return s.word
	}
	return s.at
}

// moved says that what is needed still stands at the beginning now.
func (s *splitter) moved() {
	by := s.first()
	s.at, s.begin, s.word = s.at-by, s.begin-by, s.word-by
}

// end is what is wrong with a list that is to end here.
func (s *splitter) end() error {
	switch {
	case s.strange:
		return errNoList
	case !s.finished:
		return errCut
	}
	return nil
}

// unmanaged is an object without what says who manages its fields, which is half of it and is not looked at. It takes the place of the object.
func unmanaged(object []byte) []byte {
	c := cursor{data: object}
	if !c.member("metadata") || !c.member("managedFields") {
		return object
	}
	nothing := "null"
	value := c.value()
	if len(value) < len(nothing) {
		return object
	}
	begin := c.at - len(value)
	copy(object[begin:], nothing)
	return append(object[:begin+len(nothing)], object[c.at:]...)
}

// cursor goes over an object without understanding it.
type cursor struct {
	data []byte
	at   int
}

// take steps over the next character that is not blank, if it is this one.
func (c *cursor) take(wanted byte) bool {
	for c.at < len(c.data) && bytes.IndexByte(blanks, c.data[c.at]) >= 0 {
		c.at++
	}
	if c.at == len(c.data) || c.data[c.at] != wanted {
		return false
	}
	c.at++
	return true
}

// member goes into the object that comes next, up to the value of a member of that name; false if there is none.
func (c *cursor) member(name string) bool {
	if !c.take('{') {
		return false
	}
	for !c.take('}') {
		called := c.value()
		if len(called) < 2 || !c.take(':') {
			return false
		}
		if string(called[1:len(called)-1]) == name {
			return true
		}
		if len(c.value()) == 0 {
			return false
		}
		c.take(',')
	}
	return false
}

// value steps over the next value, and returns it; nothing if there is none that ends.
func (c *cursor) value() []byte {
	for _, open := range []byte(`"{[`) {
		if !c.take(open) {
			continue
		}
		begin := c.at - 1
		if open == '"' && !c.text() || open != '"' && !c.nested() {
			return nil
		}
		return c.data[begin:c.at]
	}
	begin := c.at // blanks were stepped over
	for c.at < len(c.data) && bytes.IndexByte([]byte(",]} \t\r\n:"), c.data[c.at]) < 0 {
		c.at++
	}
	return c.data[begin:c.at]
}

// text steps over the rest of a string.
func (c *cursor) text() bool {
	for {
		quote := bytes.IndexByte(c.data[c.at:], '"')
		if quote < 0 {
			return false
		}
		end, escapes := c.at+quote, 0
		for c.data[end-1-escapes] == '\\' {
			escapes++
		}
		if c.at = end + 1; escapes%2 == 0 {
			return true
		}
	}
}

// nested steps over the rest of an object or an array.
func (c *cursor) nested() bool {
	depth := 1
	for depth > 0 && c.at < len(c.data) {
		c.at++
		switch c.data[c.at-1] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			if !c.text() {
				return false
			}
		}
	}
	return depth == 0
}
