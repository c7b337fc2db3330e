package apiserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var namespaceKind = Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, ClusterScoped: true}

// event is a change of an object from was, nil for a creation, to is, nil for a deletion.
type event struct {
	version  int
	resource schema.GroupResource
	was, is  *unstructured.Unstructured
}

// watcher is one watch of a client.
type watcher struct {
	wake chan struct{}
	once sync.Once
	over chan struct{}
}

func (w *watcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it will wake up anyway
	}
}

func (w *watcher) close() { w.once.Do(func() { close(w.over) }) }

// watch answers with a stream of the changes after a resource version. Like a real API server it ends the stream after timeoutSeconds.
func (s *Server) watch(r *http.Request, kind Kind, call Call) *http.Response {
	reader, writer := io.Pipe()
	w := &watcher{wake: make(chan struct{}, 1), over: make(chan struct{})}
	s.mu.Lock()
	s.watchers[w] = true
	s.mu.Unlock()
	go func() {
		defer func() {
			s.mu.Lock()
			delete(s.watchers, w)
			s.mu.Unlock()
			_ = writer.Close()
		}()
		s.stream(r, kind, call, w, json.NewEncoder(writer))
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Status: "OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: &body{reader, w}, ContentLength: -1,
	}
}

// body is the response body of a watch. The watch ends when the client closes it.
type body struct {
	*io.PipeReader
	w *watcher
}

// Read returns io.EOF after a Close, as for a closed connection, because clients do not treat it as an error.
func (b *body) Read(into []byte) (int, error) {
	n, err := b.PipeReader.Read(into)
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

// Close ends the watch.
func (b *body) Close() error {
	b.w.close()
	return b.PipeReader.Close()
}

func (s *Server) stream(r *http.Request, kind Kind, call Call, w *watcher, to *json.Encoder) {
	query := r.URL.Query()
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil {
		seconds = 3600
	}
	timeout := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timeout.Stop()
	at, err := strconv.Atoi(query.Get("resourceVersion"))
	initial := query.Get("sendInitialEvents") == "true" || err != nil || at == 0
	s.mu.Lock()
	if initial {
		if at = s.version; !s.first(r, kind, call, query.Get("sendInitialEvents") == "true", to) {
			s.mu.Unlock()
			return
		}
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		missed := s.since(kind, at)
		if s.lag {
			missed = nil
		} else {
			at = s.version
		}
		s.mu.Unlock()
		for _, change := range missed {
			if what, obj := seen(r, call, change); obj != nil && send(to, frame(r, what, versioned(obj, kind))) != nil {
				return
			}
		}
		select {
		case <-w.wake:
		case <-w.over:
			return
		case <-timeout.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// first sends all objects, and then a bookmark if the client asked for one. It reports whether the client still reads.
func (s *Server) first(r *http.Request, kind Kind, call Call, bookmark bool, to *json.Encoder) bool {
	var frames []map[string]any
	for _, obj := range sorted(s.objects[kind.resource().GroupResource()]) {
		if selects(r, call, obj) {
			frames = append(frames, frame(r, watch.Added, versioned(obj, kind)))
		}
	}
	if bookmark {
		mark := &unstructured.Unstructured{}
		mark.SetGroupVersionKind(kind.GroupVersionKind)
		mark.SetResourceVersion(s.now())
		mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		frames = append(frames, frame(r, watch.Bookmark, mark))
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	for _, f := range frames {
		if send(to, f) != nil {
			return false
		}
	}
	return true
}

// send writes a frame. It fails if the client has closed the watch.
func send(to *json.Encoder, frame map[string]any) error { return to.Encode(frame) }

func frame(r *http.Request, kind watch.EventType, obj *unstructured.Unstructured) map[string]any {
	return map[string]any{"type": kind, "object": asAsked(r, obj).Object}
}

func (s *Server) since(kind Kind, version int) []event {
	resource := kind.resource().GroupResource()
	later := slices.Clone(s.history[min(version, len(s.history)):]) // resource versions are consecutive
	return slices.DeleteFunc(later, func(e event) bool { return e.resource != resource })
}

// seen returns the event that a watch with selectors gets for a change: if the object is no longer selected, the watch gets a deletion.
// (Kubernetes, cacher: watchCacheInterval.)
func seen(r *http.Request, call Call, change event) (watch.EventType, *unstructured.Unstructured) {
	before, after := change.was != nil && selects(r, call, change.was), change.is != nil && selects(r, call, change.is)
	switch {
	case before && after:
		return watch.Modified, change.is
	case after:
		return watch.Added, change.is
	case before && change.is != nil:
		gone := change.was.DeepCopy()
		gone.SetResourceVersion(strconv.Itoa(change.version))
		return watch.Deleted, gone
	case before:
		return watch.Deleted, change.was
	}
	return "", nil
}

// selects reports whether a list or watch selects an object, by namespace, labels and fields.
func selects(r *http.Request, call Call, obj *unstructured.Unstructured) bool {
	if call.Namespace != "" && call.Namespace != obj.GetNamespace() {
		return false
	}
	query := r.URL.Query()
	byLabels, err := labels.Parse(query.Get("labelSelector"))
	if err != nil || !byLabels.Matches(labels.Set(obj.GetLabels())) {
		return false
	}
	byFields, err := fields.ParseSelector(query.Get("fieldSelector"))
	return err == nil && byFields.Matches(fieldsOf{obj})
}

// fieldsOf gives access to the fields of an object by their paths.
type fieldsOf struct{ obj *unstructured.Unstructured }

// Get returns the value of a field.
func (f fieldsOf) Get(path string) string {
	value, _, _ := unstructured.NestedString(f.obj.Object, strings.Split(path, ".")...)
	return value
}

// Has reports whether the object has a field.
func (f fieldsOf) Has(path string) bool {
	_, has, _ := unstructured.NestedString(f.obj.Object, strings.Split(path, ".")...)
	return has
}
