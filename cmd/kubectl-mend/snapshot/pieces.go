package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// errNoList is the error of what does not look like a list.
var errNoList = errors.New("the answer is not a list of objects")

// items are the elements of what stands under "items" in a list that an API server has sent, each as it is there. What is in them is not looked at:
// to parse them is most of the work with a large list, and can be shared out. Nothing is under "items" in an empty list, or null is.
func items(list []byte) ([][]byte, error) {
	c := cursor{data: list}
	found, is := c.member("items")
	switch {
	case !is:
		return nil, errNoList
	case !found:
		return nil, nil
	case c.take('['):
		return c.elements()
	case string(c.value()) == "null":
		return nil, nil
	}
	return nil, errNoList
}

// unmanaged is an object without what says who manages its fields, which is a third of it and is not looked at. It takes the place of the object.
func unmanaged(object []byte) []byte {
	c := cursor{data: object}
	for _, name := range []string{"metadata", "managedFields"} {
		if found, _ := c.member(name); !found {
			return object
		}
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

// cursor goes over JSON without understanding it.
type cursor struct {
	data []byte
	at   int
}

// take steps over the next character that is not blank, if it is this one.
func (c *cursor) take(wanted byte) bool {
	for c.at < len(c.data) && bytes.IndexByte([]byte(" \t\r\n"), c.data[c.at]) >= 0 {
		c.at++
	}
	if c.at == len(c.data) || c.data[c.at] != wanted {
		return false
	}
	c.at++
	return true
}

// member goes into the object that comes next, up to the value of a member of that name. It has none if it was not found, and is no object that ends
// if it is not one.
func (c *cursor) member(name string) (found, is bool) {
	if !c.take('{') {
		return false, false
	}
	for !c.take('}') {
		called := c.value()
		if len(called) < 2 || !c.take(':') {
			return false, false
		}
		if string(called[1:len(called)-1]) == name {
			return true, true
		}
		if len(c.value()) == 0 {
			return false, false
		}
		c.take(',')
	}
	return false, true
}

// elements are those of the array that was begun.
func (c *cursor) elements() ([][]byte, error) {
	var all [][]byte
	for !c.take(']') {
		element := c.value()
		if len(element) == 0 {
			return nil, errNoList
		}
		all = append(all, element)
		c.take(',')
	}
	return all, nil
}

// value steps over the next value, and returns it; nothing if there is none that ends.
func (c *cursor) value() []byte {
	for _, open := range []byte(`"{[`) {
		if !c.take(open) {
			continue
		}
		begin := c.at - 1
		if open == '"' && !c.string() || open != '"' && !c.nested() {
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

// string steps over the rest of a string.
func (c *cursor) string() bool {
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
			if !c.string() {
				return false
			}
		}
	}
	return depth == 0
}

// shared does something for each of n things, of which each processor takes its share, and returns what came of each, in their order.
func shared[T any](n int, do func(i int) (T, error)) ([]T, error) {
	all := make([]T, n)
	var work errgroup.Group
	hands := runtime.GOMAXPROCS(0)
	for hand := range hands {
		work.Go(func() (err error) {
			for i := n * hand / hands; i < n*(hand+1)/hands; i++ {
				if all[i], err = do(i); err != nil {
					return fmt.Errorf("item %d of %d: %w", i, n, err)
				}
			}
			return nil
		})
	}
	return all, work.Wait()
}
