package snapshot

import (
	"bufio"
	"bytes"
)

// objects gives away the objects of an array behind its bracket, and reads up to the one that closes it. It finds where an object ends by braces and quotes
// alone: what else is wrong with it, its parser finds. (A decoder looks at each byte twice, which takes longer than to parse the objects where there are many:
// docs/adr/0094-reports-are-counted-from-records.md)
func objects(in *bufio.Reader, give func(object []byte)) error {
	last := 0
	for first := true; ; first = false {
		c, err := next(in)
		switch {
		case err != nil:
			return err
		case c == ']':
			return nil
		case !first && c != ',':
			return errNoList
		case !first:
			if c, err = next(in); err != nil {
				return err
			}
		}
		if c != '{' {
			return errNoList
		}
		object, err := object(in, last)
		if err != nil {
			return err
		}
		last = len(object)
		give(object)
	}
}

// next is the next byte that is no blank.
func next(in *bufio.Reader) (byte, error) {
	for {
		c, err := in.ReadByte()
		if err != nil || !bytes.ContainsRune([]byte(" \t\r\n"), rune(c)) {
			return c, err
		}
	}
}

// object reads an object of about that size whose brace was read.
func object(in *bufio.Reader, about int) ([]byte, error) {
	all := append(make([]byte, 0, about+about/8+64), '{')
	for is := (braces{depth: 1}); ; {
		if _, err := in.Peek(1); err != nil {
			return nil, err
		}
		arrived, _ := in.Peek(in.Buffered()) // there is that much
		n := is.read(arrived)
		all = append(all, arrived[:n]...)
		_, _ = in.Discard(n) // likewise
		switch {
		case is.depth == 0:
			return all, nil
		case len(all) > longestObject:
			return nil, errLong
		}
	}
}

// braces is where a reader of an object is: how many braces are open, and whether in a string or behind a backslash in it.
type braces struct {
	depth           int
	quoted, escaped bool
}

// read reads up to the end of the object, or of what has arrived, and returns how much that is.
func (b *braces) read(arrived []byte) int {
	for i, c := range arrived {
		switch {
		case b.escaped:
			b.escaped = false
		case b.quoted && c == '\\':
			b.escaped = true
		case c == '"':
			b.quoted = !b.quoted
		case b.quoted:
		case c == '{':
			b.depth++
		case c == '}':
			b.depth--
			if b.depth == 0 {
				return i + 1
			}
		}
	}
	return len(arrived)
}
