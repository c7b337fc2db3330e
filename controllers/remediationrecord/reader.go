package remediationrecord

import (
	"context"
	"fmt"
	"reflect"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
)

// reader reads the objects of one observation: kinds that are watched from the caches, others from the API server, where Recent remembers
// them for a moment. A live reader uses neither the caches nor earlier answers, except for MachineHealthChecks and lists of Machines, of
// which there may be thousands; such a list is no older than the target in the same cache. Contents of objects are shared: read only.
type reader struct {
	*Reconciler

	live   bool
	recent *Recent
}

func (r reader) of(obj runtime.Object, namespace string) client.Reader {
	cacheHas := false
	switch obj.(type) {
	case *clusterv1.MachineHealthCheck, *clusterv1.MachineHealthCheckList, *clusterv1.MachineList: // the manager may not get checks
		cacheHas = true
	case *clusterv1.Machine, *clusterv1.Cluster, *clusterv1.MachineSet, *clusterv1.MachineSetList, *clusterv1.MachineDeployment:
		cacheHas = !r.live
	case *bmov1alpha1.BareMetalHostList:
		if !r.live && r.HostLists != nil {
			return r.HostLists
		}
	case *corev1.Node, *nhcv1.NodeHealthCheck:
		if !r.live && r.NodeCache != nil && r.actsOnNodes() {
			return r.NodeCache
		}
	}
	if cacheHas && (r.Namespace == "" || r.Namespace == namespace) {
		return r.Client
	}
	return r.recent
}

// Get implements client.Reader.
func (r reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return r.of(obj, key.Namespace).Get(ctx, key, obj, append(opts, client.UnsafeDisableDeepCopy)...)
}

// List implements client.Reader.
func (r reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	among := (&client.ListOptions{}).ApplyOptions(append(opts, client.UnsafeDisableDeepCopy))
	return r.of(list, among.Namespace).List(ctx, list, among)
}

// machinesOf returns the Machines of the owner of s. The list may be some seconds old, since hundreds of records may ask for the same
// owner. Notable Machines are few, and come from the cache by an index.
func (r reader) machinesOf(ctx context.Context, s *capacity.Subject, notable bool) ([]*clusterv1.Machine, error) {
	if notable && (r.Namespace == "" || r.Namespace == s.Namespace) {
		return capacity.Machines(ctx, r, s, client.MatchingFields{notableIndex: makerOf(*s)})
	}
	listed, err := r.recent.once(fmt.Sprint("machines ", s.Namespace, " ", s.Owner, " ", s.Deployment), remembered, func() (any, error) {
		return capacity.Machines(ctx, r, s)
	})
	machines, _ := listed.([]*clusterv1.Machine)
	return machines, err
}

// actsOnNodes reports whether kubemend acts on NodeHealthChecks, and so whether NodeCache has them and the nodes of this cluster.
func (r *Reconciler) actsOnNodes() bool { return r.ActsOnNodes == nil || r.ActsOnNodes() }

// Recent reads objects that no cache has from the API server, and remembers them for a moment: after a restart, hundreds of records ask for
// the same few owners. Objects share their contents: read only.
type Recent struct {
	Live    client.Reader
	answers *expiring.LRUExpireCache
}

// NewRecent returns a Recent that reads through live.
func NewRecent(live client.Reader, now clock.PassiveClock) *Recent {
	return &Recent{live, expiring.NewLRUExpireCacheWithClock(mostAnswers, now)}
}

type answer struct {
	value any
	err   error
}

const (
	// remembered is how long an answer counts. It is shorter than neighbours, so that a change of another Machine is seen.
	remembered = 3 * time.Second
	// versionRemembered is how long an answer counts for one version of an object.
	versionRemembered = 24 * time.Hour
	// mostAnswers is how many answers are remembered.
	mostAnswers = 4096
)

// Get implements client.Reader.
func (r *Recent) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if obj.GetObjectKind().GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) { // a Machine may refer to any Secret
		return explain.ErrUnread
	}
	return r.fill(obj, key.String(), remembered, func() error { return r.Live.Get(ctx, key, obj, opts...) })
}

// Version reads an object once for each version that a watch has shown.
func (r *Recent) Version(ctx context.Context, key client.ObjectKey, obj client.Object, version string) error {
	return r.fill(obj, key.String()+" "+version, versionRemembered, func() error { return r.Live.Get(ctx, key, obj) })
}

// List implements client.Reader.
func (r *Recent) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	among := (&client.ListOptions{}).ApplyOptions(opts)
	selected := fmt.Sprintf("%s %v %v", among.Namespace, among.LabelSelector, among.FieldSelector)
	return r.fill(list, selected, remembered, func() error { return r.Live.List(ctx, list, opts...) })
}

// fill sets obj to the remembered answer, or to what read reads into it.
func (r *Recent) fill(obj runtime.Object, which string, lasts time.Duration, read func() error) error {
	id := fmt.Sprintf("%T %s %s", obj, obj.GetObjectKind().GroupVersionKind(), which)
	value, err := r.once(id, lasts, func() (any, error) {
		err := read()
		return copyOf(obj).Interface(), err
	})
	if value != nil {
		reflect.ValueOf(obj).Elem().Set(copyOf(value).Elem())
	}
	return err
}

// once returns the remembered answer, or what read returns. It remembers no error but NotFound and Forbidden.
func (r *Recent) once(id string, lasts time.Duration, read func() (any, error)) (any, error) {
	if found, known := r.answers.Get(id); known {
		return found.(answer).value, found.(answer).err
	}
	value, err := read()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, err
	}
	r.answers.Add(id, answer{value, err}, lasts)
	return value, err
}

// copyOf returns a copy of an object or a list. Items of the copy may be sorted and deleted; what they refer to is shared.
func copyOf(obj any) reflect.Value {
	kept := reflect.New(reflect.TypeOf(obj).Elem())
	kept.Elem().Set(reflect.ValueOf(obj).Elem())
	if items := kept.Elem().FieldByName("Items"); items.IsValid() && items.Kind() == reflect.Slice {
		items.Set(reflect.AppendSlice(reflect.MakeSlice(items.Type(), 0, items.Len()), items))
	}
	return kept
}
