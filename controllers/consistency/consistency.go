// Package consistency lets a controller read its own writes: it stores the resourceVersion of each object after a write of this process, so
// that a controller that reads an older version from a cache can wait for the cache.
package consistency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lag is how long a controller first waits before it reads a stale cache again.
const Lag = 20 * time.Millisecond

// Wait returns how long to wait after a cache was stale that many times in a row. It doubles each time, up to 1.28 s, because a cache that
// gets no updates must not be polled. Nearly always the event that shows the write comes first.
func Wait(times int) time.Duration { return Lag << min(max(times, 1)-1, 6) }

// ErrStale says that a cache does not yet show a write of this process.
var ErrStale = errors.New("the cache lags behind")

// Writes has the last write to each object of one kind. The zero value is empty. It is safe for concurrent use.
type Writes struct{ written sync.Map } // client.ObjectKey to version

type version struct {
	of      types.UID
	version string
}

// Note stores the version of obj, which the API server has returned for a write.
func (w *Writes) Note(obj client.Object) {
	key, noted := client.ObjectKeyFromObject(obj), version{of: obj.GetUID(), version: obj.GetResourceVersion()}
	for {
		value, known := w.written.LoadOrStore(key, noted)
		if !known || noted.older(value.(version)) || w.written.CompareAndSwap(key, value, noted) {
			return
		}
	}
}

// older reports whether v and w are of the same object and v is older.
func (v version) older(w version) bool { return v.of == w.of && Older(v.version, w.version) }

// Older reports whether the resourceVersion a is older than b, of the same object. It is false if one of them is not a number.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Forget deletes what is stored about an object that is gone.
func (w *Writes) Forget(key client.ObjectKey) { w.written.Delete(key) }

// Stale reports whether obj is older than the last write to it.
func (w *Writes) Stale(obj client.Object) bool {
	key := client.ObjectKeyFromObject(obj)
	value, wrote := w.written.Load(key)
	if !wrote {
		return false
	}
	if (version{of: obj.GetUID(), version: obj.GetResourceVersion()}).older(value.(version)) {
		return true
	}
	w.written.CompareAndDelete(key, value) // the cache shows the write, and does not go back to an older version
	return false
}

// Noted returns the names of the objects in namespace whose last write no call of Stale has seen in a cache yet.
func (w *Writes) Noted(namespace string) []string {
	var names []string
	w.written.Range(func(name, _ any) bool {
		if key := name.(client.ObjectKey); key.Namespace == namespace {
			names = append(names, key.Name)
		}
		return true
	})
	return names
}

// Unseen returns ErrStale if the API server has an object with a write that no call of Stale has seen in a cache yet, in this namespace or,
// if it is empty, in any. Call it after Stale was false for all objects in the cache: the API server tells whether an object that the cache
// does not have is new or gone. Unseen forgets objects that are gone.
func (w *Writes) Unseen(ctx context.Context, live client.Reader, kind schema.GroupVersionKind, namespace string) error {
	var unseen error
	w.written.Range(func(name, _ any) bool {
		obj, key := &metav1.PartialObjectMetadata{}, name.(client.ObjectKey)
		if namespace != "" && namespace != key.Namespace {
			return true
		}
		obj.SetGroupVersionKind(kind)
		switch err := live.Get(ctx, key, obj); {
		case err == nil:
			unseen = ErrStale
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
			w.Forget(key)
		default:
			unseen = fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
		}
		return unseen == nil
	})
	return unseen
}

// Kinds has the Writes of several kinds. The zero value is empty. It is safe for concurrent use.
type Kinds struct{ kinds sync.Map } // schema.GroupKind to *Writes

// Of returns the Writes of one kind.
func (k *Kinds) Of(kind schema.GroupKind) *Writes {
	writes, _ := k.kinds.LoadOrStore(kind, &Writes{})
	return writes.(*Writes)
}

// Waits counts for each object how many times in a row it was stale. The zero value is ready for use.
type Waits struct{ times sync.Map } // client.ObjectKey to int

// Next counts that an object was stale once more, and returns how long to wait before it is read again.
func (w *Waits) Next(key client.ObjectKey) time.Duration {
	times := 1
	if before, again := w.times.Load(key); again {
		times = before.(int) + 1
	}
	w.times.Store(key, times)
	return Wait(times)
}

// Reset starts the count of an object again, because it was not stale.
func (w *Waits) Reset(key client.ObjectKey) { w.times.Delete(key) }

// Read reads an object from a cache or, if the cache does not have it, from the API server, because a new object may not be in the cache
// yet. It reports whether the object exists.
func Read(
	ctx context.Context, cache, live client.Reader, key client.ObjectKey, obj client.Object, options ...client.GetOption,
) (found bool, err error) {
	if err = cache.Get(ctx, key, obj, options...); apierrors.IsNotFound(err) {
		err = live.Get(ctx, key, obj)
	}
	return err == nil, client.IgnoreNotFound(err)
}
