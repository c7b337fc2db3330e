package hostremediation

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// Until the controller is set up nothing may be read from the cache: that would begin a watch.
func TestRemediationsAreReadFromTheCacheOnceTheyAreWatched(t *testing.T) {
	k := fixtureOf(t)
	own := remediation.Own.GroupVersionKind
	for name, tc := range map[string]struct {
		r         *Reconciler
		kind      schema.GroupVersionKind
		namespace string
		has       bool
		all       int
	}{
		"those of a kind":           {k.r, own, k.key.Namespace, true, 1},
		"those of another place":    {k.r, own, "elsewhere", true, 0},
		"those of a kind of others": {k.r, mendv1.GroupVersion.WithKind("Another"), k.key.Namespace, false, 0},
		"before it is set up":       {&Reconciler{Installed: k.r.Installed, Client: k.client}, own, k.key.Namespace, false, 0},
	} {
		if all, has, err := tc.r.Cached(t.Context(), tc.kind, tc.namespace); err != nil || has != tc.has || len(all) != tc.all {
			t.Errorf("%s: %d, %t, %v; want %d, %t", name, len(all), has, err, tc.all, tc.has)
		}
	}
}
