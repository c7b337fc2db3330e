package remediationrecord

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/controllers/explain"
)

// readable are the kinds that the roles of the manager let it read of what a Machine consists of. What others are in, such as the objects of an infrastructure
// provider, only a user may read: the manager does not ask in vain, minute by minute.
var readable = []schema.GroupKind{
	{Group: clusterv1.GroupVersion.Group, Kind: "Cluster"}, {Group: clusterv1.GroupVersion.Group, Kind: "Machine"},
	{Group: clusterv1.GroupVersion.Group, Kind: machineSetKind}, {Group: clusterv1.GroupVersion.Group, Kind: "MachineDeployment"},
	{Group: clusterv1.GroupVersion.Group, Kind: "MachineHealthCheck"}, {Group: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane"},
	{Group: infrav1.GroupVersion.Group, Kind: "Metal3Machine"}, {Group: bmov1alpha1.GroupVersion.Group, Kind: "BareMetalHost"},
	{Group: corev1.GroupName, Kind: "Namespace"},
}

// NewReader returns a reader that reads through live what the manager may read, and nothing else.
func NewReader(live client.Reader, c client.Client) client.Reader { return reader{live, c} }

type reader struct {
	client.Reader
	of client.Client
}

// Get implements client.Reader.
func (r reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := r.mayRead(obj); err != nil {
		return err
	}
	return r.Reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (r reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.mayRead(list); err != nil {
		return err
	}
	return r.Reader.List(ctx, list, opts...)
}

// mayRead is explain.ErrUnread for an object, or a list, of a kind that is not to be read.
func (r reader) mayRead(obj runtime.Object) error {
	kind, err := apiutil.GVKForObject(obj, r.of.Scheme())
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	if !slices.Contains(readable, schema.GroupKind{Group: kind.Group, Kind: strings.TrimSuffix(kind.Kind, "List")}) {
		return explain.ErrUnread
	}
	return nil
}

// Recent reads past the caches what no cache has, and remembers it for a moment: after a restart hundreds of records ask for the same few owners.
type Recent struct {
	Live  client.Reader
	Clock clock.PassiveClock

	mu      sync.Mutex
	answers map[string]answer
}

type answer struct {
	at  time.Time
	obj runtime.Object
	err error
}

const (
	// remembered is for how long an answer counts. A record is reconciled later than that after a change of another Machine of its Cluster. (neighbours)
	remembered = 3 * time.Second
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
	id := fmt.Sprintf("%T %s %s", obj, obj.GetObjectKind().GroupVersionKind(), key)
	return r.answer(id, obj, func() error { return r.Live.Get(ctx, key, obj, opts...) })
}

// List implements client.Reader. What list refers to is shared: read only.
func (r *Recent) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	among := (&client.ListOptions{}).ApplyOptions(opts)
	id := fmt.Sprintf("%T %s %s %v %v", list, list.GetObjectKind().GroupVersionKind(), among.Namespace, among.LabelSelector, among.FieldSelector)
	return r.answer(id, list, func() error { return r.Live.List(ctx, list, opts...) })
}

// answer makes obj the answer that is remembered by id or, if there is none, what read reads.
func (r *Recent) answer(id string, obj runtime.Object, read func() error) error {
	now := r.Clock.Now()
	r.mu.Lock()
	found, known := r.answers[id]
	r.mu.Unlock()
	if known && now.Sub(found.at) < remembered {
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(found.obj).Elem())
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
	kept := reflect.New(reflect.TypeOf(obj).Elem())
	kept.Elem().Set(reflect.ValueOf(obj).Elem())
	r.answers[id] = answer{now, kept.Interface().(runtime.Object), err}
	return err
}
