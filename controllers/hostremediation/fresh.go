package hostremediation

import (
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errStale says that the cache does not show yet what this process wrote last. To act on that would repeat a step, and its memory could
// not be saved afterwards: that a host was seen on when it was asked, for one, would be lost, and 90 s with it.
var errStale = errors.New("the cache lags behind")

// freshness knows the version of each remediation as this process left it.
type freshness struct{ written sync.Map } // client.ObjectKey to version

type version struct {
	of      types.UID
	version string
}

func (f *freshness) note(rem client.Object) {
	f.written.Store(client.ObjectKeyFromObject(rem), version{rem.GetUID(), rem.GetResourceVersion()})
}

func (f *freshness) forget(key client.ObjectKey) { f.written.Delete(key) }

// stale reports whether rem is older than what was written.
func (f *freshness) stale(rem client.Object) bool {
	key := client.ObjectKeyFromObject(rem)
	value, wrote := f.written.Load(key)
	if !wrote {
		return false
	}
	last := value.(version)
	order, err := resourceversion.CompareResourceVersion(rem.GetResourceVersion(), last.version)
	if last.of == rem.GetUID() && err == nil && order < 0 {
		return true
	}
	f.forget(key) // the cache shows it, and from here on never less
	return false
}
