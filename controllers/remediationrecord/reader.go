package remediationrecord

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/explain"
)

// Recent reads past the caches what no cache has, and remembers it for a moment: after a restart hundreds of records ask for the same few
// owners. What it may not read, such as the objects of an infrastructure provider, it does not ask for in vain, minute by minute.
type Recent struct {
	Live  client.Reader
	Clock clock.PassiveClock

	mu      sync.Mutex
	answers map[string]answer
	// refused are the errors of kinds in a namespace that may not be read.
	refused map[string]answer
}

type answer struct {
	at  time.Time
	obj runtime.Object
	err error
}

const (
	// remembered is for how long an answer counts. A record is reconciled later than that after a change of another Machine of its Cluster.
	// (neighbours)
	remembered = 3 * time.Second
	// refusedFor is for how long a right that is missing is not asked for again.
	refusedFor = 10 * time.Minute
	// mostAnswers is how many are remembered.
	mostAnswers = 256
)

// Forget makes r ask again: what an end rests on is read when it is decided.
func (r *Recent) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.answers)
}

// Get implements client.Reader. What obj refers to is shared: read only.
func (r *Recent) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if obj.GetObjectKind().GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) { // a Machine may refer to any
		return explain.ErrUnread
	}
	kind := fmt.Sprintf("%T %s %s", obj, obj.GetObjectKind().GroupVersionKind(), key.Namespace)
	return r.answer(kind, key.Name, obj, func() error { return r.Live.Get(ctx, key, obj, opts...) })
}

// List implements client.Reader. What the items of list refer to is shared: read only.
func (r *Recent) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	among := (&client.ListOptions{}).ApplyOptions(opts)
	kind := fmt.Sprintf("%T %s %s", list, list.GetObjectKind().GroupVersionKind(), among.Namespace)
	selected := fmt.Sprintf("%v %v", among.LabelSelector, among.FieldSelector)
	return r.answer(kind, selected, list, func() error { return r.Live.List(ctx, list, opts...) })
}

// answer makes obj the answer that is remembered or, if there is none, what read reads.
func (r *Recent) answer(kind, name string, obj runtime.Object, read func() error) error {
	now, id := r.Clock.Now(), kind+" "+name
	r.mu.Lock()
	found, known := r.answers[id]
	refused, isRefused := r.refused[kind]
	r.mu.Unlock()
	switch {
	case isRefused && now.Sub(refused.at) < refusedFor:
		return refused.err
	case known && now.Sub(found.at) < remembered:
		reflect.ValueOf(obj).Elem().Set(copyOf(found.obj).Elem())
		return found.err
	}
	err := read()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil || len(r.answers) >= mostAnswers {
		r.answers, r.refused = map[string]answer{}, map[string]answer{}
	}
	switch {
	case apierrors.IsForbidden(err):
		r.refused[kind] = answer{at: now, err: err}
	case err == nil || apierrors.IsNotFound(err):
		r.answers[id] = answer{now, copyOf(obj).Interface().(runtime.Object), err}
	}
	return err
}

// copyOf is a copy of an object, or of a list in which items may be sorted and deleted. What these refer to is shared.
func copyOf(obj runtime.Object) reflect.Value {
	kept := reflect.New(reflect.TypeOf(obj).Elem())
	kept.Elem().Set(reflect.ValueOf(obj).Elem())
	if items := kept.Elem().FieldByName("Items"); items.IsValid() && items.Kind() == reflect.Slice {
		items.Set(reflect.AppendSlice(reflect.MakeSlice(items.Type(), 0, items.Len()), items))
	}
	return kept
}
