package snapshot

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ErrReadOnly is the error of a write to a snapshot.
var ErrReadOnly = errors.New("this is a snapshot of a cluster: nothing can be written to it")

// ReadOnly is a client with the answers that an API server gives: also of kinds that are not installed, or that the user may not read. It refuses
// every write. With client.UnsafeDisableDeepCopy what is read is shared: read only.
func (w *Snapshot) ReadOnly() client.Client { return &api{snapshot: w} }

// api is the client of a snapshot. It refuses every write.
type api struct{ snapshot *Snapshot }

var _ client.Client = &api{}

func (*api) Create(context.Context, client.Object, ...client.CreateOption) error { return ErrReadOnly }

func (*api) Update(context.Context, client.Object, ...client.UpdateOption) error { return ErrReadOnly }

func (*api) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return ErrReadOnly
}

func (*api) Delete(context.Context, client.Object, ...client.DeleteOption) error { return ErrReadOnly }

func (*api) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return ErrReadOnly
}

func (*api) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return ErrReadOnly
}

func (*api) Status() client.SubResourceWriter { return subresource{} }

func (*api) SubResource(string) client.SubResourceClient { return subresource{} }

// subresource refuses writes, and reads as well: a status is read with its object.
type subresource struct{}

func (subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return ErrReadOnly
}

func (subresource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return ErrReadOnly
}

func (subresource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return ErrReadOnly
}

func (subresource) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return ErrReadOnly
}

func (subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return ErrReadOnly
}

func (a *api) Scheme() *runtime.Scheme { return a.snapshot.scheme }

func (a *api) RESTMapper() meta.RESTMapper { return a.snapshot.RESTMapper() }

func (a *api) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, a.snapshot.scheme)
}

func (a *api) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(obj, a.snapshot.scheme, a.RESTMapper())
}

func (a *api) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	gvk, err := a.GroupVersionKindFor(obj)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	o := (&client.GetOptions{}).ApplyOptions(options)
	w := a.snapshot
	if err := w.load(ctx, query{gvk: gvk, bare: isMetadata(obj), namespace: key.Namespace, name: key.Name}); err != nil {
		return err
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	stored, err := w.lookUp(gvk, key)
	if err != nil {
		return err
	}
	stored, err = w.as(stored, shapeOf(obj, gvk))
	if err != nil {
		return err
	}
	if !ptr.Deref(o.UnsafeDisableDeepCopy, false) {
		stored = stored.DeepCopyObject().(client.Object)
	}
	to, from := reflect.ValueOf(obj), reflect.ValueOf(stored)
	if !from.Type().AssignableTo(to.Type()) {
		return fmt.Errorf("read %s %s: it is a %T, and not a %T", gvk.Kind, key, stored, obj)
	}
	to.Elem().Set(from.Elem())
	return nil
}

// lookUp returns the object of a name. One that there may be where nothing was read is not called missing. The lock is held.
func (w *Snapshot) lookUp(gvk schema.GroupVersionKind, key client.ObjectKey) (client.Object, error) {
	k, err := w.find(gvk)
	if err != nil {
		return nil, err
	}
	if obj := k.get(key); obj != nil {
		return obj, nil
	}
	if err := k.unread(key.Namespace); err != nil {
		return nil, err
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.plural}, key.Name)
}

// Stored returns an object as it is kept, in a version: as its type, as a tree of values, or as metadata alone. It is shared: read only.
func (w *Snapshot) Stored(kind schema.GroupVersionKind, key client.ObjectKey) (client.Object, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	obj, err := w.lookUp(kind, key)
	if err != nil {
		return nil, err
	}
	return w.as(obj, shapeOf(obj, kind))
}

// All are the objects of a type in a namespace, or in all if that is empty, by name. There are none of a kind that is not installed or was not read, and
// what is known by its metadata alone is left out. They are shared: read only.
func All[T any, P interface {
	*T
	client.Object
}](w *Snapshot, namespace string) []P {
	gvk, _ := apiutil.GVKForObject(P(new(T)), w.scheme) // an unknown type has no objects
	var objs []P
	for _, obj := range w.Objects(gvk, namespace) {
		if typed, ok := obj.(P); ok {
			objs = append(objs, typed)
		}
	}
	return objs
}

// One is the object of a type and name; nil if it is not known. It is shared: read only.
func One[T any, P interface {
	*T
	client.Object
}](w *Snapshot, key client.ObjectKey) P {
	gvk, _ := apiutil.GVKForObject(P(new(T)), w.scheme) // an unknown type has no objects
	w.mu.RLock()
	defer w.mu.RUnlock()
	if k := w.kinds[gvk.GroupKind()]; k != nil {
		typed, _ := k.get(key).(P)
		return typed
	}
	return nil
}

// NamespaceLabels are what is known of the labels of a Namespace, which are those that claim checks: known says that they are. A record from before
// they were read does not know them.
func (w *Snapshot) NamespaceLabels(name string) (all map[string]string, known bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	k := w.kinds[namespaceGVK.GroupKind()]
	if k == nil {
		return nil, false
	}
	if namespace := k.get(client.ObjectKey{Name: name}); namespace != nil {
		return namespace.GetLabels(), true
	}
	unread, said := k.scopes[""]
	return nil, said && unread == nil
}

// Objects are all that are known of a kind, as they are kept, by name. They are shared: read only.
func (w *Snapshot) Objects(gvk schema.GroupVersionKind, namespace string) []client.Object {
	w.mu.RLock()
	defer w.mu.RUnlock()
	k := w.kinds[gvk.GroupKind()]
	if k == nil {
		return nil
	}
	return k.in(namespace)
}

// List implements client.Reader. The objects are in the order of their names, and always all of them.
func (a *api) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk, err := a.GroupVersionKindFor(list)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	o := (&client.ListOptions{}).ApplyOptions(options)
	shared := ptr.Deref(o.UnsafeDisableDeepCopy, false)
	w := a.snapshot
	if err := w.load(ctx, queryOf(gvk, isMetadata(list), o)); err != nil {
		return err
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	found, err := w.selected(gvk, o)
	if err != nil {
		return err
	}
	s := shapeOf(list, gvk)
	items := make([]runtime.Object, 0, len(found))
	for _, stored := range found {
		obj, err := w.as(stored, s)
		if err != nil {
			return err
		}
		if !shared {
			obj = obj.DeepCopyObject().(client.Object)
		}
		items = append(items, obj)
	}
	if err := meta.SetList(list, items); err != nil {
		return fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	list.SetResourceVersion(strconv.FormatInt(w.version, 10))
	return nil
}

// queryOf is what a list reads.
func queryOf(gvk schema.GroupVersionKind, bare bool, o *client.ListOptions) query {
	q := query{gvk: gvk, bare: bare, namespace: o.Namespace}
	if o.LabelSelector != nil {
		q.labels = o.LabelSelector.String()
	}
	if o.FieldSelector != nil {
		q.name, _ = o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	}
	return q
}

// selected are the objects that a list is about, by name. The lock is held.
func (w *Snapshot) selected(gvk schema.GroupVersionKind, o *client.ListOptions) ([]client.Object, error) {
	k, err := w.find(gvk)
	if err != nil {
		return nil, err
	}
	if err := k.unread(o.Namespace); err != nil {
		return nil, err
	}
	var wanted fields.Requirements
	if o.FieldSelector != nil {
		wanted = o.FieldSelector.Requirements()
	}
	objs := k.in
	for _, f := range wanted {
		switch {
		case k.objects.GetIndexers()[f.Field] != nil:
			objs = func(namespace string) []client.Object {
				found, _ := k.objects.ByIndex(f.Field, indexKey(namespace, f.Value)) // there is the index
				return sorted(found)
			}
		case f.Field != metav1.ObjectNameField && f.Field != metadataNamespace:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s cannot be selected by the field %q", k.plural, f.Field))
		}
	}
	found := objs(o.Namespace)
	if len(wanted) == 0 && (o.LabelSelector == nil || o.LabelSelector.Empty()) {
		return found, nil
	}
	return slices.DeleteFunc(found, func(obj client.Object) bool {
		return o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(obj.GetLabels())) || !k.hasFields(obj, wanted)
	}), nil
}

// metadataNamespace is a field by which an API server selects objects of every kind, as by metav1.ObjectNameField.
const metadataNamespace = "metadata.namespace"

func (k *kind) hasFields(obj client.Object, wanted fields.Requirements) bool {
	for _, f := range wanted {
		var has bool
		switch f.Field {
		case metav1.ObjectNameField:
			has = obj.GetName() == f.Value
		case metadataNamespace:
			has = obj.GetNamespace() == f.Value
		default:
			keys, _ := k.objects.GetIndexers()[f.Field](obj) // no indexer returns an error
			has = slices.Contains(keys, indexKey("", f.Value))
		}
		if !has {
			return false
		}
	}
	return true
}
