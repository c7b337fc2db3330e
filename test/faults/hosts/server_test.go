package hosts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
)

// server is the API server of a cluster, in memory. It heeds what the controllers rely on: versions and UIDs as preconditions, finalizers,
// and the status as a resource of its own. It does what controller-runtime's fake client does, and the UIDs, in a tenth of the time, which is
// what most of a campaign is spent on.
type server struct {
	client.WithWatch // nil: what is not below is not asked for
	scheme           *runtime.Scheme
	mapper           meta.RESTMapper
	// is is what there is. The objects are shared: read only.
	is      map[place]client.Object
	version int
	// enqueues counts the changes that enqueue a reconcile, all counts every change.
	enqueues, all int
	cache         *informers
	// reads counts what was read past all caches.
	reads int
	// after is called after every change.
	after func(at place)
	// now is the creation time of objects; nil for none.
	now func() time.Time
}

// place is where an object is: its kind and its name.
type place struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// newServer returns an API server that has these objects, with their status.
func newServer(scheme *runtime.Scheme, mapper meta.RESTMapper, objects ...client.Object) *server {
	s := &server{
		scheme: scheme, mapper: mapper, is: map[place]client.Object{}, cache: &informers{scheme: scheme, has: map[place]client.Object{}},
		after: func(place) {},
	}
	for _, o := range objects {
		s.store(placeOf(scheme, o), o.DeepCopyObject().(client.Object))
	}
	return s
}

// fork returns a server that has the same.
func (s *server) fork() *server {
	f := *s
	f.is, f.cache = maps.Clone(s.is), &informers{scheme: s.scheme, has: maps.Clone(s.cache.has)}
	return &f
}

// Scheme, RESTMapper and GroupVersionKindFor are about the kinds.
func (s *server) Scheme() *runtime.Scheme     { return s.scheme }
func (s *server) RESTMapper() meta.RESTMapper { return s.mapper }

// GroupVersionKindFor is the kind of an object.
func (s *server) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, s.scheme)
}

// Get reads an object.
func (s *server) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.reads++
	kind := placeOf(s.scheme, into).kind
	return give(s.is[place{kind, key}], kind, key, into)
}

// List reads the objects of a kind. Of fields it knows the node of a pod.
func (s *server) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	s.reads++
	return list(s.scheme, s.is, into, opts)
}

// Create makes an object, without a status.
func (s *server) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	at := placeOf(s.scheme, o)
	if s.is[at] != nil {
		return apierrors.NewAlreadyExists(resource(at.kind), at.key.Name)
	}
	is := o.DeepCopyObject().(client.Object)
	if status := statusOf(is); status.IsValid() {
		status.SetZero()
	}
	if is.GetUID() == "" {
		is.SetUID(types.UID(fmt.Sprintf("created-%d", s.version+1)))
	}
	if s.now != nil {
		is.SetCreationTimestamp(metav1.NewTime(s.now().Truncate(time.Second))) // to the second, as an API server has it
	}
	s.store(at, is)
	return give(is, at.kind, at.key, o)
}

// Delete deletes an object, or only says that it is to be deleted, if finalizers keep it.
func (s *server) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	at := placeOf(s.scheme, o)
	was := s.is[at]
	if was == nil {
		return apierrors.NewNotFound(resource(at.kind), at.key.Name)
	}
	if wanted := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions; wanted != nil && wanted.UID != nil && *wanted.UID != was.GetUID() {
		return conflict(at, "the UID in the precondition differs")
	}
	is := was.DeepCopyObject().(client.Object)
	if is.GetDeletionTimestamp() == nil {
		is.SetDeletionTimestamp(&metav1.Time{Time: noon})
	}
	s.replace(at, was, is)
	return nil
}

// Update writes all of an object but its status.
func (s *server) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	return s.update(o, false)
}

// Patch merges a patch into all of an object but its status.
func (s *server) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return s.patch(o, patch, false)
}

// Status writes the status.
func (s *server) Status() client.SubResourceWriter { return s.SubResource("status") }

// SubResource writes a status: there is no other.
func (s *server) SubResource(string) client.SubResourceClient { return statuses{s: s} }

type statuses struct {
	client.SubResourceClient // nil: what is not below is not asked for
	s                        *server
}

// Update writes the status of an object.
func (w statuses) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return w.s.update(o, true)
}

// Patch merges a patch into the status of an object.
func (w statuses) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.s.patch(o, patch, true)
}

func (s *server) update(o client.Object, status bool) error {
	at := placeOf(s.scheme, o)
	return s.write(at, o, status, o.DeepCopyObject().(client.Object))
}

func (s *server) patch(o client.Object, patch client.Patch, status bool) error {
	at := placeOf(s.scheme, o)
	was := s.is[at]
	if was == nil {
		return apierrors.NewNotFound(resource(at.kind), at.key.Name)
	}
	if patch.Type() != types.MergePatchType {
		return fmt.Errorf("patch %s %s: %s is not known here", at.kind.Kind, at.key, patch.Type())
	}
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	var changes map[string]any
	if err := json.Unmarshal(data, &changes); err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(was)
	if err != nil {
		return err
	}
	typed, err := s.scheme.New(at.kind)
	if err != nil {
		return err
	}
	is := typed.(client.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(merged(content, changes), is); err != nil {
		return err
	}
	return s.write(at, o, status, is)
}

// merged is base with a merge patch on it (RFC 7386).
func merged(base, patch map[string]any) map[string]any {
	for key, value := range patch {
		below, more := value.(map[string]any)
		switch is, has := base[key].(map[string]any); {
		case value == nil:
			delete(base, key)
		case more && has:
			base[key] = merged(is, below)
		case more:
			base[key] = merged(map[string]any{}, below)
		default:
			base[key] = value
		}
	}
	return base
}

// write makes an object be what it is to be: its status, or all but that.
func (s *server) write(at place, o client.Object, status bool, is client.Object) error {
	was := s.is[at]
	switch {
	case was == nil:
		return apierrors.NewNotFound(resource(at.kind), at.key.Name)
	case is.GetUID() != was.GetUID() && is.GetUID() != "":
		return conflict(at, "the UID in the precondition differs")
	case is.GetResourceVersion() != was.GetResourceVersion() && is.GetResourceVersion() != "":
		return conflict(at, "the object has been modified")
	}
	next := is
	if status {
		next = was.DeepCopyObject().(client.Object)
		statusOf(next).Set(statusOf(is))
	} else if kept := statusOf(next); kept.IsValid() {
		kept.Set(statusOf(was.DeepCopyObject().(client.Object)))
		next.SetDeletionTimestamp(was.GetDeletionTimestamp())
	}
	next.SetUID(was.GetUID())
	next.SetResourceVersion(was.GetResourceVersion())
	s.replace(at, was, next)
	if now := s.is[at]; now != nil {
		next = now
	}
	return give(next, at.kind, at.key, o)
}

// replace stores what has changed, and nothing if nothing has. What is to be deleted goes with its last finalizer.
func (s *server) replace(at place, was, is client.Object) {
	switch {
	case is.GetDeletionTimestamp() != nil && len(is.GetFinalizers()) == 0:
		s.store(at, nil)
	case !equality.Semantic.DeepEqual(was, is):
		s.store(at, is)
	}
}

// store stores an object in a new version; nil is none. Every watch sees it.
func (s *server) store(at place, is client.Object) {
	was := s.is[at]
	if is == nil {
		delete(s.is, at)
	} else {
		s.version++
		is.SetResourceVersion(strconv.Itoa(s.version))
		is.SetManagedFields(nil)
		s.is[at] = is
	}
	s.cache.hear(at, is)
	s.all++
	if heard(was, is) {
		s.enqueues++
	}
	s.after(at)
}

// statusOf is the field Status of a typed object; no value if it has none, or if that is no resource of its own.
func statusOf(o client.Object) reflect.Value {
	if _, whole := o.(*mendv1.RemediationRecord); whole {
		return reflect.Value{}
	}
	v := reflect.ValueOf(o).Elem()
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName("Status")
}

func resource(kind schema.GroupVersionKind) schema.GroupResource {
	return schema.GroupResource{Group: kind.Group, Resource: kind.Kind}
}

func conflict(at place, why string) error {
	return apierrors.NewConflict(resource(at.kind), at.key.Name, errors.New(why))
}

// give copies an object, or its metadata, into the target of a read.
func give(is client.Object, kind schema.GroupVersionKind, key client.ObjectKey, into client.Object) error {
	if is == nil {
		return apierrors.NewNotFound(resource(kind), key.Name)
	}
	if partial, only := into.(*metav1.PartialObjectMetadata); only {
		metadataOf(is).DeepCopyInto(partial)
		return nil
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(is.DeepCopyObject()).Elem())
	return nil
}

func metadataOf(o client.Object) *metav1.PartialObjectMetadata {
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Annotations: maps.Clone(o.GetAnnotations()), OwnerReferences: o.GetOwnerReferences(),
	}}
	partial.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	return partial
}

func list(scheme *runtime.Scheme, all map[place]client.Object, into client.ObjectList, opts []client.ListOption) error {
	kind, err := apiutil.GVKForObject(into, scheme)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	options := (&client.ListOptions{}).ApplyOptions(opts)
	var items []runtime.Object
	for at, o := range all {
		pod, _ := o.(*corev1.Pod)
		switch {
		case at.kind != kind, options.Namespace != "" && options.Namespace != at.key.Namespace:
		case options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(o.GetLabels())):
		case options.FieldSelector != nil && !options.FieldSelector.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName}):
		default:
			if _, only := into.(*metav1.PartialObjectMetadataList); only {
				o = metadataOf(o)
			}
			items = append(items, o.DeepCopyObject())
		}
	}
	slices.SortFunc(items, func(a, b runtime.Object) int {
		return cmp.Compare(a.(client.Object).GetName(), b.(client.Object).GetName())
	})
	return meta.SetList(into, items)
}

// heard reports whether a change enqueues a reconcile. The controllers' own status writes do not. Nor do pods and volumes: the
// watches of package fence are not connected here, so that its requeues have to do.
func heard(was, is client.Object) bool {
	if was == nil || is == nil {
		_, record := cmp.Or(was, is).(*mendv1.RemediationRecord)
		return !record
	}
	switch is := is.(type) {
	case *corev1.Pod, *storagev1.VolumeAttachment, *mendv1.RemediationRecord:
		return false
	case *bmov1alpha1.BareMetalHost:
		return !host.SameToUs(was.(*bmov1alpha1.BareMetalHost), is)
	case *infrav1.Metal3Remediation, *mendv1.HostRemediation:
		return !maps.Equal(others(was), others(is)) || !slices.Equal(was.GetFinalizers(), is.GetFinalizers()) ||
			was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero()
	}
	return true
}

// others are the annotations of a remediation without those that kubemend writes, which enqueue nothing.
func others(o client.Object) map[string]string {
	all := maps.Clone(o.GetAnnotations())
	delete(all, mendv1.PowerCycleAnnotation)
	delete(all, mendv1.RecordAnnotation)
	return all
}

func placeOf(scheme *runtime.Scheme, o client.Object) place {
	kind, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		panic(err) // the scheme is ours
	}
	return place{kind, client.ObjectKeyFromObject(o)}
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(coordinationv1.AddToScheme(s), corev1.AddToScheme(s), storagev1.AddToScheme(s), clusterv1.AddToScheme(s), bmov1alpha1.AddToScheme(s),
		infrav1.AddToScheme(s), nhcv1.AddToScheme(s), mendv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	s.AddKnownTypeWithName(betweenKind, &unstructured.Unstructured{})
	return s
}
