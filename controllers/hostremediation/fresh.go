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
type freshness struct{ written sync.Map } // types.UID to the resource version

func (f *freshness) note(rem client.Object) { f.written.Store(rem.GetUID(), rem.GetResourceVersion()) }

func (f *freshness) forget(uid types.UID) { f.written.Delete(uid) }

// stale reports whether rem is older than what was written.
func (f *freshness) stale(rem client.Object) bool {
	version, wrote := f.written.Load(rem.GetUID())
	if !wrote {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(rem.GetResourceVersion(), version.(string))
	if err == nil && order < 0 {
		return true
	}
	f.forget(rem.GetUID()) // the cache shows it, and from here on never less
	return false
}
