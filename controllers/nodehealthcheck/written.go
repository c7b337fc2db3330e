package nodehealthcheck

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// cachesLag is how long a request that was created is taken to be there although the cache does not show it.
const cachesLag = 30 * time.Second

// written are requests as this process wrote them last. A cache that lags behind shows a request as it was, or not at all, and a reconcile
// that believed it would do everything once more: take a second control-plane node down, for one.
type written struct {
	mu    sync.Mutex
	marks map[types.UID]mark
}

type mark struct {
	obj *unstructured.Unstructured
	// created is when it was created; zero if the cache had shown it before.
	created time.Time
}

// note remembers obj as the API server returned it. created says that it is new.
func (o *written) note(obj *unstructured.Unstructured, created bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.marks == nil {
		o.marks = map[types.UID]mark{}
	}
	m := mark{obj: obj, created: o.marks[obj.GetUID()].created}
	if created {
		m.created = now
	}
	o.marks[obj.GetUID()] = m
}

// merge returns the requests of a kind that the cache shows, each as new as it is known, and those that it does not show yet, until the
// moment at which it has to; zero if there are none. One of those may have been deleted before the cache showed it, which nobody hears of.
func (o *written) merge(kind schema.GroupVersionKind, cached []unstructured.Unstructured, now time.Time) (all []*unstructured.Unstructured, until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all = make([]*unstructured.Unstructured, 0, len(cached))
	missing := map[types.UID]mark{}
	for uid, m := range o.marks {
		if m.obj.GroupVersionKind().GroupKind() == kind.GroupKind() {
			missing[uid] = m
		}
	}
	for i := range cached {
		obj := &cached[i]
		if m, wrote := missing[obj.GetUID()]; wrote {
			delete(missing, obj.GetUID())
			if older(obj, m.obj) {
				obj = m.obj
			} else {
				delete(o.marks, obj.GetUID()) // the cache shows it, and from here on never less
			}
		}
		all = append(all, obj)
	}
	for uid, m := range missing {
		if m.created.IsZero() || now.Sub(m.created) > cachesLag {
			delete(o.marks, uid) // it is gone
			continue
		}
		all = append(all, m.obj)
		until = health.Earliest(until, m.created.Add(cachesLag).Add(time.Millisecond))
	}
	return all, until
}

// forget forgets a request that was deleted.
func (o *written) forget(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.marks, uid)
}

func older(a, b *unstructured.Unstructured) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}
