package remediationrecord

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
)

// reader is where the objects of an observation are read: what watches have from the caches, and past them what none has. If it is live,
// no cache is read but for checks and lists of Machines, of which there may be thousands, and what others have read a moment ago does not
// count. A list of Machines is no older than what the same watch has shown of the target. What an object refers to is shared: read only.
type reader struct {
	*Reconciler

	live   bool
	recent *Recent
}

func (r reader) of(obj runtime.Object, namespace string) client.Reader {
	cacheHas := false
	switch obj.(type) {
	case *clusterv1.MachineHealthCheck, *clusterv1.MachineHealthCheckList, *clusterv1.MachineList: // the manager may not get the first ones
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

// machinesOf returns the Machines of the owner of s as they were a moment ago: hundreds of records ask for those of one owner. The notable
// ones are few, and the cache has them by an index.
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

// actsOnNodes reports whether kubemend acts on NodeHealthChecks, so that NodeCache has them and the nodes of this cluster.
func (r *Reconciler) actsOnNodes() bool { return r.ActsOnNodes == nil || r.ActsOnNodes() }

// Recent reads past the caches what no cache has, and remembers it for a moment: after a restart hundreds of records ask for the same few
// owners. What obj refers to is shared: read only.
type Recent struct {
	Live  client.Reader
	Clock clock.PassiveClock

	mu      sync.Mutex
	answers map[string]answer
}

// answer is what was read, and until when that counts.
type answer struct {
	until time.Time
	value any
	err   error
}

const (
	// remembered is for how long an answer counts. A record is reconciled later than that after a change of another Machine of its Cluster.
	// (neighbours)
	remembered = 3 * time.Second
	// versionRemembered is for how long one counts of an object of which a watch shows each new version.
	versionRemembered = 24 * time.Hour
	// mostAnswers is how many are remembered.
	mostAnswers = 4096
)

// Get implements client.Reader.
func (r *Recent) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if obj.GetObjectKind().GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) { // a Machine may refer to any
		return explain.ErrUnread
	}
	return r.fill(obj, key.String(), remembered, func() error { return r.Live.Get(ctx, key, obj, opts...) })
}

// Version reads an object of which a watch has shown that version: that one is read once.
func (r *Recent) Version(ctx context.Context, key client.ObjectKey, obj client.Object, version string) error {
	return r.fill(obj, key.String()+" "+version, versionRemembered, func() error { return r.Live.Get(ctx, key, obj) })
}

// List implements client.Reader.
func (r *Recent) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	among := (&client.ListOptions{}).ApplyOptions(opts)
	selected := fmt.Sprintf("%s %v %v", among.Namespace, among.LabelSelector, among.FieldSelector)
	return r.fill(list, selected, remembered, func() error { return r.Live.List(ctx, list, opts...) })
}

// fill makes obj the answer that is remembered or, if there is none, what read reads into it.
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

// once is what is remembered or, if nothing is, what read returns. An error that says nothing about an object is not remembered.
func (r *Recent) once(id string, lasts time.Duration, read func() (any, error)) (any, error) {
	now := r.Clock.Now()
	r.mu.Lock()
	found, known := r.answers[id]
	r.mu.Unlock()
	if known && now.Before(found.until) {
		return found.value, found.err
	}
	value, err := read()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil || len(r.answers) >= mostAnswers {
		r.answers = map[string]answer{}
	}
	r.answers[id] = answer{now.Add(lasts), value, err}
	return value, err
}

// copyOf is a copy of an object, or of a list in which items may be sorted and deleted. What these refer to is shared.
func copyOf(obj any) reflect.Value {
	kept := reflect.New(reflect.TypeOf(obj).Elem())
	kept.Elem().Set(reflect.ValueOf(obj).Elem())
	if items := kept.Elem().FieldByName("Items"); items.IsValid() && items.Kind() == reflect.Slice {
		items.Set(reflect.AppendSlice(reflect.MakeSlice(items.Type(), 0, items.Len()), items))
	}
	return kept
}
