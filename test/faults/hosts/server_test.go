package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/workload"
)

// server is the API server of a cluster, in memory: the fake client, and what that leaves out.
type server struct {
	client.WithWatch
	scheme *runtime.Scheme
	// is is what there is. The objects are shared: read only.
	is map[place]client.Object
	// wakes counts the changes of what the controllers watch, all counts every change.
	wakes, all int
	cache      *informers
	// after is called after every change.
	after func(at place)
}

// place is where an object is: its kind and its name.
type place struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// newServer returns an API server that has these objects. Its tracker keeps no managed fields: nobody here asks for them, and they take most
// of the time of the fake client.
func newServer(scheme *runtime.Scheme, mapper meta.RESTMapper, objects ...client.Object) *server {
	s := &server{scheme: scheme, is: map[place]client.Object{}, cache: &informers{scheme: scheme, has: map[place]client.Object{}}, after: func(place) {}}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithStatusSubresource(withStatus...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithObjectTracker(clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()))
	s.WithWatch = interceptor.NewClient(builder.Build(), s.strict())
	for _, o := range objects {
		if err := s.changed(context.Background(), s.WithWatch, o, nil); err != nil {
			panic(err) // what is there can be read
		}
	}
	return s
}

// strict is what an API server heeds and the fake client does not: the UID of an object that is meant. It also tells of every change.
func (s *server) strict() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return s.changed(ctx, c, o, c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return s.changed(ctx, c, o, c.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := sameUID(ctx, c, o, patch); err != nil {
				return err
			}
			return s.changed(ctx, c, o, c.Patch(ctx, o, patch, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			wanted := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
			if wanted != nil && wanted.UID != nil {
				if err := hasUID(ctx, c, o, *wanted.UID); err != nil {
					return err
				}
			}
			return s.changed(ctx, c, o, c.Delete(ctx, o))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return s.changed(ctx, c, o, c.SubResource(sub).Update(ctx, o, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := sameUID(ctx, c, o, patch); err != nil {
				return err
			}
			return s.changed(ctx, c, o, c.SubResource(sub).Patch(ctx, o, patch, opts...))
		},
	}
}

// sameUID refuses a patch that is meant for another object of the same name, as an API server does and the fake client does not.
func sameUID(ctx context.Context, c client.Client, o client.Object, patch client.Patch) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	var meant struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &meant); err != nil || meant.Metadata.UID == "" {
		return err
	}
	return hasUID(ctx, c, o, meant.Metadata.UID)
}

func hasUID(ctx context.Context, c client.Client, o client.Object, uid types.UID) error {
	is := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), is); err != nil {
		return err
	}
	if is.GetUID() != uid {
		return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, o.GetName(), errors.New("the UID in the precondition differs"))
	}
	return nil
}

// changed notes what has become of an object.
func (s *server) changed(ctx context.Context, c client.Client, o client.Object, err error) error {
	if err != nil {
		return err
	}
	at := placeOf(s.scheme, o)
	typed, err := s.scheme.New(at.kind)
	if err != nil {
		return err
	}
	is := typed.(client.Object)
	is.GetObjectKind().SetGroupVersionKind(at.kind)
	was := s.is[at]
	switch err := c.Get(ctx, at.key, is); {
	case client.IgnoreNotFound(err) != nil:
		return err
	case err != nil:
		delete(s.is, at)
	default:
		s.is[at] = is
	}
	s.cache.hear(at, s.is[at])
	s.all++
	if heard(was, s.is[at]) {
		s.wakes++
	}
	s.after(at)
	return nil
}

// heard reports whether a change wakes the controllers. What they write of how a remediation goes does not. Nor do pods and volumes: the
// watches of package fence are not connected here, so that its second way, to look again after a while, has to do.
func heard(was, is client.Object) bool {
	if was == nil || is == nil {
		return true
	}
	switch is := is.(type) {
	case *corev1.Pod, *storagev1.VolumeAttachment:
		return false
	case *bmov1alpha1.BareMetalHost:
		return !host.SameToUs(was.(*bmov1alpha1.BareMetalHost), is)
	case *infrav1.Metal3Remediation, *mendv1.HostRemediation:
		return !maps.Equal(was.GetAnnotations(), is.GetAnnotations()) || !slices.Equal(was.GetFinalizers(), is.GetFinalizers()) ||
			was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero()
	}
	return true
}

func placeOf(scheme *runtime.Scheme, o client.Object) place {
	kind, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		panic(err) // the scheme is ours
	}
	return place{kind, client.ObjectKeyFromObject(o)}
}

// informers are the caches of a program. They show every change at once, unless they lag.
type informers struct {
	scheme  *runtime.Scheme
	has     map[place]client.Object
	lag     bool
	pending []news
}

type news struct {
	at place
	is client.Object // nil if it is gone
}

func (i *informers) hear(at place, is client.Object) {
	i.pending = append(i.pending, news{at, slim(is)})
	if !i.lag {
		i.catchUp()
	}
}

// slim is what the caches of the manager keep of an object.
func slim(is client.Object) client.Object {
	var slimmed any = is
	switch is.(type) {
	case *bmov1alpha1.BareMetalHost:
		slimmed, _ = host.SlimHost(is)
	case *corev1.Node:
		slimmed, _ = workload.SlimNode(is)
	case *clusterv1.Machine:
		slimmed, _ = machinehealthcheck.SlimMachine(is)
	case nil:
		return nil
	}
	return slimmed.(client.Object)
}

// catchUp makes the caches show all that has happened.
func (i *informers) catchUp() {
	for _, n := range i.pending {
		if i.has[n.at] = n.is; n.is == nil {
			delete(i.has, n.at)
		}
	}
	i.pending = nil
}

// GetByKey makes the informers the store of nodes that package workload reads.
func (i *informers) GetByKey(name string) (any, bool, error) {
	node, has := i.has[place{nodeKind, client.ObjectKey{Name: name}}]
	return node, has, nil
}

func (i *informers) get(at client.ObjectKey, into client.Object) error {
	kind := placeOf(i.scheme, into).kind
	is, has := i.has[place{kind, at}]
	if !has {
		return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, at.Name)
	}
	if partial, only := into.(*metav1.PartialObjectMetadata); only {
		partial.Name, partial.Namespace, partial.UID = is.GetName(), is.GetNamespace(), is.GetUID()
		partial.Annotations, partial.OwnerReferences = is.GetAnnotations(), is.GetOwnerReferences()
		return nil
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(is.DeepCopyObject()).Elem())
	return nil
}

func (i *informers) list(into client.ObjectList, opts []client.ListOption) error {
	kind, err := apiutil.GVKForObject(into, i.scheme)
	if err != nil {
		return err
	}
	kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
	options := (&client.ListOptions{}).ApplyOptions(opts)
	var items []runtime.Object
	for at, o := range i.has {
		inside := at.kind == kind && (options.Namespace == "" || options.Namespace == at.key.Namespace)
		if inside && (options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(o.GetLabels()))) {
			items = append(items, o.DeepCopyObject())
		}
	}
	return meta.SetList(into, items)
}

// cached is the way of a program to an API server behind whose caches it reads.
type cached struct {
	client.WithWatch // which writes, and reads past the caches
	cache            *informers
	crashed          func() error
}

// Get reads from the cache.
func (c cached) Get(_ context.Context, at client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if err := c.crashed(); err != nil {
		return err
	}
	return c.cache.get(at, into)
}

// List reads from the cache.
func (c cached) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if err := c.crashed(); err != nil {
		return err
	}
	return c.cache.list(into, opts)
}
