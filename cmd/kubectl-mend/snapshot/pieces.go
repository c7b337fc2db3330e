package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// longestObject is how long an object may be, in bytes: etcd stores 1.5 MiB, and JSON may spell a byte with six. The length of a list is bounded only by
// the time that it may take: objects are parsed, and most of each dropped, while the next ones arrive.
const longestObject = 16 << 20

var (
	errNoList = errors.New("the answer is not a list of objects")
	errCut    = errors.New("the answer ends in the middle of a list")
	errPage   = errors.New("the answer is a part of a list, and not all of it")
	errLong   = errors.New("an object in the answer does not end")
)

// inPieces reads a list as one stream, and parses the objects in it while the rest arrives: on all processors, and without ever having all of them whole
// in memory. Why it reads no pages: docs/adr/0054-the-command-line-reads-lists-in-one-stream.md
func (r *reading) inPieces(ctx context.Context, t task, options []client.ListOption) (all []client.Object, err error) {
	reader, err := apiutil.RESTClientForGVK(t.gvk, true, false, r.config, r.codecs, r.http)
	if err != nil {
		return nil, err
	}
	is := r.served[t.gvk.GroupKind()]
	list, err := reader.Get().NamespaceIfScoped(t.namespace, is.namespaced && t.namespace != "").Resource(is.plural).
		VersionedParams((&client.ListOptions{}).ApplyOptions(options).AsListOptions(), metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = list.Close() }() // it was only read
	var mu sync.Mutex
	err = eachObject(list, func(object []byte) error {
		made, err := r.snapshot.scheme.New(t.gvk)
		if err != nil {
			return err
		}
		if err := utiljson.Unmarshal(object, made); err != nil {
			return err
		}
		if kept := t.kept(made.(client.Object)); kept != nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, kept)
		}
		return nil
	})
	return all, err
}

// eachObject reads a list, and parses each object in it as soon as it has arrived: on all processors.
func eachObject(list io.Reader, parse func(object []byte) error) error {
	objects := make(chan []byte, 16) // without some that wait, the reader of the list and the parsers wait for each other half of the time
	var parsing errgroup.Group
	for range runtime.GOMAXPROCS(0) {
		parsing.Go(func() (first error) {
			for object := range objects {
				first = cmp.Or(first, parse(object))
			}
			return first
		})
	}
	err := split(list, func(object []byte) { objects <- object })
	close(objects)
	return errors.Join(err, parsing.Wait())
}

// lax is what encoding/json accepts too.
var lax = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// split reads a list of objects, and gives each of them away as soon as it has arrived. All of it is valid JSON.
func split(list io.Reader, give func(object []byte)) error {
	bound := &io.LimitedReader{R: list, N: longestObject}
	err := eachItem(jsontext.NewDecoder(bound, lax), func(object []byte) {
		bound.N = longestObject
		give(object)
	})
	switch syntax := (*jsontext.SyntacticError)(nil); {
	case err != nil && bound.N <= 0:
		return errLong
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: %w", errNoList, err)
	}
	return err
}

// eachItem goes over a list and the items in it. What has no items is no list, such as an error that came with the status 200; and a page of a list is not
// the whole of it.
func eachItem(list *jsontext.Decoder, give func(object []byte)) error {
	if begin, err := list.ReadToken(); err != nil || begin.Kind() != '{' {
		return cmp.Or(err, errNoList)
	}
	isList, head := false, metav1.ListMeta{}
	for list.PeekKind() != '}' {
		field, err := list.ReadToken()
		if err != nil {
			return err
		}
		switch field.String() {
		case "items":
			isList = true
			err = items(list, give)
		case "metadata":
			err = json.UnmarshalDecode(list, &head)
		default:
			err = list.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	if _, err := list.ReadToken(); err != nil {
		return err
	}
	if _, err := list.ReadToken(); !errors.Is(err, io.EOF) {
		return cmp.Or(err, errNoList)
	}
	switch {
	case !isList:
		return errNoList
	case head.Continue != "":
		return errPage
	}
	return nil
}

func items(list *jsontext.Decoder, give func(object []byte)) error {
	if begin, err := list.ReadToken(); err != nil || begin.Kind() == 'n' { // null
		return err
	} else if begin.Kind() != '[' {
		return errNoList
	}
	for list.PeekKind() == '{' {
		object, err := list.ReadValue()
		if err != nil {
			return err
		}
		give(bytes.Clone(object)) // the list reuses it
	}
	if end, err := list.ReadToken(); err != nil || end.Kind() != ']' {
		return cmp.Or(err, errNoList)
	}
	return nil
}
