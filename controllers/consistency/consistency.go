// Package consistency lets a controller read its own writes: it knows the version in which a write of this process has left an object, so
// that who reads an older one from a cache can wait for the cache.
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

// Lag is how long to wait before a cache is read again that did not show yet what was written.
const Lag = 20 * time.Millisecond

// Wait is how long to wait before a cache is read again that was found to be stale that many times in a row: twice as long each time, up to
// 1.28 s. An event that shows the write comes first nearly always; a cache that stands still must not be polled.
func Wait(times int) time.Duration { return Lag << min(max(times, 1)-1, 6) }

// ErrStale says that a cache does not show yet what this process has written.
var ErrStale = errors.New("the cache lags behind")

// Writes are the writes to the objects of one kind. The zero value knows none. It is safe for concurrent use.
type Writes struct{ written sync.Map } // client.ObjectKey to version

type version struct {
	of      types.UID
	version string
}

// Note notes that obj is what the API server has answered to a write.
func (w *Writes) Note(obj client.Object) {
	key, noted := client.ObjectKeyFromObject(obj), version{of: obj.GetUID(), version: obj.GetResourceVersion()}
	for {
		value, known := w.written.LoadOrStore(key, noted)
		if !known || noted.older(value.(version)) || w.written.CompareAndSwap(key, value, noted) {
			return
		}
	}
}

// older reports whether v is an older version of the same object than w.
func (v version) older(w version) bool { return v.of == w.of && Older(v.version, w.version) }

// Older reports whether a resourceVersion is older than another one of the same object. Versions that are no numbers are not.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Forget forgets the object called key, which is gone.
func (w *Writes) Forget(key client.ObjectKey) { w.written.Delete(key) }

// Stale reports whether obj is older than what was written.
func (w *Writes) Stale(obj client.Object) bool {
	key := client.ObjectKeyFromObject(obj)
	value, wrote := w.written.Load(key)
	if !wrote {
		return false
	}
	if (version{of: obj.GetUID(), version: obj.GetResourceVersion()}).older(value.(version)) {
		return true
	}
	w.written.CompareAndDelete(key, value) // the cache shows it, and from here on never less
	return false
}

// Noted are the names of the objects in namespace that were written, and of which Stale has not found since that a cache shows that.
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

// Unseen returns ErrStale if an object of that kind in a namespace, or in any if that is empty, was written, or may have been, and no cache
// has shown it yet. It is for when Stale was asked of all objects that a cache shows, and none was: of the others the API server knows
// whether they are new, or gone.
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

// Kinds are the writes to objects of several kinds. The zero value knows none. It is safe for concurrent use.
type Kinds struct{ kinds sync.Map } // schema.GroupKind to *Writes

// Of are the writes to objects of one kind.
func (k *Kinds) Of(kind schema.GroupKind) *Writes {
	writes, _ := k.kinds.LoadOrStore(kind, &Writes{})
	return writes.(*Writes)
}

// Waits are how long to wait for caches that were found to be stale. The zero value waits for none.
type Waits struct{ times sync.Map } // client.ObjectKey to int

// Next is how long to wait before the object called key is read again, which was stale once more.
func (w *Waits) Next(key client.ObjectKey) time.Duration {
	times := 1
	if before, again := w.times.Load(key); again {
		times = before.(int) + 1
	}
	w.times.Store(key, times)
	return Wait(times)
}

// Reset notes that the object called key was not stale.
func (w *Waits) Reset(key client.ObjectKey) { w.times.Delete(key) }

// Read reads an object from a cache, and past it if the cache does not have it: only the API server knows what does not exist. It reports
// whether the object exists.
func Read(ctx context.Context, cache, live client.Reader, key client.ObjectKey, obj client.Object, options ...client.GetOption) (found bool, err error) {
	if err = cache.Get(ctx, key, obj, options...); apierrors.IsNotFound(err) {
		err = live.Get(ctx, key, obj)
	}
	return err == nil, client.IgnoreNotFound(err)
}
