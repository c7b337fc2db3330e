package remediationrecord

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

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

// depth is how an observation reads.
type depth int

const (
	// cached: what watches have is read from the caches.
	cached depth = iota
	// live: no cache is read but for checks, and for the other Machines of the owner, of which there may be thousands.
	live
	// countedLive: those Machines too, whose number is the end of the record.
	countedLive
)

// depthOf is the depth at which facts have to be read for plan to be written.
func depthOf(plan Plan) depth {
	switch {
	case plan.Confirm && plan.Status.EndedBy == capacity.ScaledDown:
		return countedLive
	case plan.Confirm:
		return live
	}
	return cached
}

// reader is where the objects of an observation are read: what watches have from the caches if its depth allows that, and past them what
// none has; at another depth than cached, what others have read a moment ago does not count. What an object refers to is shared: read only.
type reader struct {
	*Reconciler

	depth  depth
	recent *Recent
}

func (r reader) of(obj runtime.Object, namespace string) client.Reader {
	cacheHas := false
	switch obj.(type) {
	case *clusterv1.MachineHealthCheck, *clusterv1.MachineHealthCheckList: // the manager may list and watch them, and get none
		cacheHas = true
	case *clusterv1.MachineList:
		cacheHas = r.depth < countedLive
	case *clusterv1.Machine, *clusterv1.Cluster, *clusterv1.MachineSet, *clusterv1.MachineSetList, *clusterv1.MachineDeployment:
		cacheHas = r.depth < live
	case *corev1.Node, *nhcv1.NodeHealthCheck:
		if r.depth < live && r.NodeCache != nil && r.actsOnNodes() {
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
	if notable && r.depth < countedLive && (r.Namespace == "" || r.Namespace == s.Namespace) {
		return capacity.Machines(ctx, r, s, client.MatchingFields{notableIndex: makerOf(*s)})
	}
	return r.recent.machinesOf(fmt.Sprint(s.Namespace, " ", s.Owner, " ", s.Deployment), func() ([]*clusterv1.Machine, error) {
		return capacity.Machines(ctx, r, s)
	})
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
	// listing guards machines, which are listed once for all who ask.
	listing  sync.Mutex
	machines map[string]machines
}

type answer struct {
	at  time.Time
	obj runtime.Object
	err error
}

// machines are those of an owner, the oldest one first.
type machines struct {
	at   time.Time
	list []*clusterv1.Machine
}

const (
	// remembered is for how long an answer counts. A record is reconciled later than that after a change of another Machine of its Cluster.
	// (neighbours)
	remembered = 3 * time.Second
	// mostAnswers is how many are remembered.
	mostAnswers = 4096
)

// machinesOf are the Machines of an owner, listed if they are not remembered.
func (r *Recent) machinesOf(owner string, list func() ([]*clusterv1.Machine, error)) ([]*clusterv1.Machine, error) {
	r.listing.Lock()
	defer r.listing.Unlock()
	now := r.Clock.Now()
	maps.DeleteFunc(r.machines, func(_ string, m machines) bool { return now.Sub(m.at) >= remembered })
	if m, known := r.machines[owner]; known {
		return m.list, nil
	}
	listed, err := list()
	if err != nil {
		return nil, err
	}
	if r.machines == nil {
		r.machines = map[string]machines{}
	}
	r.machines[owner] = machines{now, listed}
	return listed, nil
}

// Get implements client.Reader.
func (r *Recent) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if obj.GetObjectKind().GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) { // a Machine may refer to any
		return explain.ErrUnread
	}
	return r.answer(key.String(), obj, "", func() error { return r.Live.Get(ctx, key, obj, opts...) })
}

// Version reads an object of which a watch has shown that version: that one is read once.
func (r *Recent) Version(ctx context.Context, key client.ObjectKey, obj client.Object, version string) error {
	return r.answer(key.String(), obj, version, func() error { return r.Live.Get(ctx, key, obj) })
}

// List implements client.Reader.
func (r *Recent) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	among := (&client.ListOptions{}).ApplyOptions(opts)
	selected := fmt.Sprintf("%s %v %v", among.Namespace, among.LabelSelector, among.FieldSelector)
	return r.answer(selected, list, "", func() error { return r.Live.List(ctx, list, opts...) })
}

// answer makes obj the answer that is remembered or, if there is none, what read reads. One of that version counts for ever.
func (r *Recent) answer(which string, obj runtime.Object, version string, read func() error) error {
	now, id := r.Clock.Now(), fmt.Sprintf("%T %s %s", obj, obj.GetObjectKind().GroupVersionKind(), which)
	r.mu.Lock()
	found, known := r.answers[id]
	r.mu.Unlock()
	same := known && version != "" && found.err == nil && found.obj.(client.Object).GetResourceVersion() == version
	if same || known && now.Sub(found.at) < remembered {
		reflect.ValueOf(obj).Elem().Set(copyOf(found.obj).Elem())
		return found.err
	}
	err := read()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil || len(r.answers) >= mostAnswers {
		r.answers = map[string]answer{}
	}
	r.answers[id] = answer{now, copyOf(obj).Interface().(runtime.Object), err}
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
