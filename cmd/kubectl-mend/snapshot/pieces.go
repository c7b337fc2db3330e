package snapshot

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"

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
	var parsing errgroup.Group
	parsing.SetLimit(runtime.GOMAXPROCS(0))
	err = split(list, func(object []byte) {
		parsing.Go(func() error {
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
	})
	return all, errors.Join(err, parsing.Wait())
}

// split reads a list of objects, and gives each of them away as soon as it has arrived.
func split(list io.Reader, give func(object []byte)) error {
	bound := &io.LimitedReader{R: list, N: longestObject}
	err := eachItem(bufio.NewReaderSize(bound, 64<<10), func(object []byte) {
		bound.N = longestObject
		give(object)
	})
	switch syntax := (*json.SyntaxError)(nil); {
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
func eachItem(list *bufio.Reader, give func(object []byte)) error {
	decoder := json.NewDecoder(list)
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return cmp.Or(err, errNoList)
	}
	isList, head := false, metav1.ListMeta{}
	for decoder.More() {
		field, err := decoder.Token()
		if err != nil {
			return err
		}
		switch field {
		case "items":
			isList = true
			decoder, err = items(decoder, list, give)
		case "metadata":
			err = decoder.Decode(&head)
		default:
			err = decoder.Decode(&json.RawMessage{})
		}
		if err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
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

// items gives away the items, and returns a decoder of what follows them: as of an object with a field before that.
func items(decoder *json.Decoder, list io.Reader, give func(object []byte)) (*json.Decoder, error) {
	if begin, err := decoder.Token(); err != nil || begin == nil { // null
		return decoder, err
	} else if begin != json.Delim('[') {
		return nil, errNoList
	}
	rest := bufio.NewReaderSize(io.MultiReader(decoder.Buffered(), list), 64<<10)
	if err := objects(rest, give); err != nil {
		return nil, err
	}
	decoder = json.NewDecoder(io.MultiReader(strings.NewReader(`{"":0`), rest))
	for range 3 { // the brace, the name and the value
		if _, err := decoder.Token(); err != nil {
			return nil, err
		}
	}
	return decoder, nil
}
