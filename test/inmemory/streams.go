package inmemory

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// streams are the watches of a server: each follows the log of all changes at its own pace.
type streams struct {
	mu   sync.Mutex
	log  []change
	cut  map[string]bool // the kinds that are not answered
	open map[*stream]bool
}

func newStreams() *streams {
	return &streams{cut: map[string]bool{}, open: map[*stream]bool{}}
}

func (s *streams) add(ch change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, ch)
	s.nudgeAll()
}

func (s *streams) nudgeAll() {
	for one := range s.open {
		select {
		case one.nudge <- struct{}{}:
		default:
		}
	}
}

// Cut breaks the watches of a kind, and has neither lists nor watches of it answered until the returned function is called.
func (s *Server) Cut(kind string) (goOn func()) {
	s.cut(kind, true)
	s.Break(kind)
	return func() { s.cut(kind, false) }
}

// Break ends the watches of a kind, as an API server does from time to time.
func (s *Server) Break(kind string) {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	for one := range s.streams.open {
		if one.kind.Kind == kind {
			one.end()
		}
	}
}

func (s *Server) cut(kind string, cut bool) {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	s.streams.cut[kind] = cut
	s.streams.nudgeAll()
}

// follower lists and watches a kind for a cache, in the form of the objects of that cache.
type follower struct {
	server   *Server
	kind     schema.GroupVersionKind
	form     runtime.Object
	selector labels.Selector // nil for all
	// at is the place in the log up to which the cache has heard: objects have versions of their own, by which it is not known.
	at int
}

// IsWatchListSemanticsUnSupported says that a watch begins after a list.
func (f *follower) IsWatchListSemanticsUnSupported() bool { return true }

func (f *follower) answers() error {
	if f.server.streams.cut[f.kind.Kind] {
		return apierrors.NewServiceUnavailable("the test lets nothing through")
	}
	_, err := f.server.mapper.RESTMapping(f.kind.GroupKind(), f.kind.Version)
	return err
}

// List lists what there is.
func (f *follower) List(metav1.ListOptions) (runtime.Object, error) {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	f.server.streams.mu.Lock()
	defer f.server.streams.mu.Unlock()
	if err := f.answers(); err != nil {
		return nil, err
	}
	f.at = len(f.server.streams.log)
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, obj := range f.server.store.of(f.kind) {
		if f.sees(obj) {
			list.Items = append(list.Items, runtime.RawExtension{Object: f.shown(obj)})
		}
	}
	return list, nil
}

// Watch begins where the list, or the watch before, has ended.
func (f *follower) Watch(metav1.ListOptions) (watch.Interface, error) {
	s := f.server.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := f.answers(); err != nil {
		return nil, err
	}
	one := &stream{follower: f, out: make(chan watch.Event), nudge: make(chan struct{}, 1), stop: make(chan struct{})}
	one.end = sync.OnceFunc(func() { close(one.stop) })
	s.open[one] = true
	go one.run()
	return one, nil
}

func (f *follower) sees(obj client.Object) bool {
	return obj != nil && (f.selector == nil || f.selector.Matches(labels.Set(obj.GetLabels())))
}

// shown is an object in the form of the cache.
func (f *follower) shown(obj client.Object) runtime.Object {
	switch f.form.(type) {
	case *metav1.PartialObjectMetadata:
		is := &metav1.PartialObjectMetadata{ObjectMeta: *metaOf(obj)}
		is.SetGroupVersionKind(f.kind)
		return is
	case *unstructured.Unstructured:
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
		if err != nil {
			panic(fmt.Errorf("show %s %s: %w", f.kind.Kind, obj.GetName(), err))
		}
		is := &unstructured.Unstructured{Object: content}
		is.SetGroupVersionKind(f.kind)
		return is
	}
	return obj.DeepCopyObject()
}

func metaOf(obj client.Object) *metav1.ObjectMeta {
	if o, is := obj.(metav1.ObjectMetaAccessor); is {
		if typed, is := o.GetObjectMeta().(*metav1.ObjectMeta); is {
			return typed.DeepCopy()
		}
	}
	is := &metav1.PartialObjectMetadata{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.(*unstructured.Unstructured).Object, is); err != nil {
		panic(fmt.Errorf("show the metadata of %s: %w", obj.GetName(), err))
	}
	return &is.ObjectMeta
}

// stream is one watch.
type stream struct {
	*follower
	out   chan watch.Event
	nudge chan struct{}
	stop  chan struct{}
	end   func()
}

// ResultChan is where events come.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }

// Stop ends it.
func (s *stream) Stop() { s.end() }

func (s *stream) run() {
	defer close(s.out)
	defer func() {
		s.server.streams.mu.Lock()
		defer s.server.streams.mu.Unlock()
		delete(s.server.streams.open, s)
	}()
	for {
		event, after, found := s.take()
		if !found {
			select {
			case <-s.stop:
				return
			case <-s.nudge:
			}
			continue
		}
		select {
		case <-s.stop:
			return
		case s.out <- event:
			s.at = after
		}
	}
}

// take is the next event that the watch may show, and the place in the log after it.
func (s *stream) take() (event watch.Event, after int, found bool) {
	all := s.server.streams
	all.mu.Lock()
	defer all.mu.Unlock()
	for next := s.at; next < len(all.log); next++ {
		ch := all.log[next]
		if ch.kind != s.kind {
			continue
		}
		switch saw, sees := s.sees(ch.was), s.sees(ch.is); {
		case sees && saw && ch.was.GetUID() == ch.is.GetUID():
			return watch.Event{Type: watch.Modified, Object: s.shown(ch.is)}, next + 1, true
		case sees:
			return watch.Event{Type: watch.Added, Object: s.shown(ch.is)}, next + 1, true
		case saw:
			return watch.Event{Type: watch.Deleted, Object: s.shown(ch.was)}, next + 1, true
		}
	}
	return watch.Event{}, 0, false
}
