package snapshot

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ErrReadOnly is the error of a write to a snapshot.
var ErrReadOnly = errors.New("this is a snapshot of a cluster: nothing can be written to it")

// ReadOnly is a client with the answers that an API server gives: also of kinds that are not installed, or that the user may not read. It
// refuses every write. With client.UnsafeDisableDeepCopy what is read is shared: read only.
func (w *Snapshot) ReadOnly() client.Client { return &Client{snapshot: w} }

// Client reads a snapshot, and writes to it if it has a clock. It is safe for concurrent use, but by one writer for each object.
type Client struct {
	snapshot *Snapshot
	clock    clock.PassiveClock
	changes  atomic.Int64
}

var _ client.Client = &Client{}

// DeleteAllOf is refused: no controller asks for it.
func (*Client) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return ErrReadOnly
}

// Apply is refused: no controller asks for it.
func (*Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return ErrReadOnly
}

// Scheme has the kinds that controllers and pages read.
func (c *Client) Scheme() *runtime.Scheme { return c.snapshot.scheme }

// RESTMapper knows the kinds that the cluster serves.
func (c *Client) RESTMapper() meta.RESTMapper { return c.snapshot.RESTMapper() }

// GroupVersionKindFor is the kind of an object.
func (c *Client) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.snapshot.scheme)
}

// IsObjectNamespaced reports whether an object is in a namespace.
func (c *Client) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(obj, c.snapshot.scheme, c.RESTMapper())
}

// Get reads an object, and its kind if nobody has asked for it yet.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	o := (&client.GetOptions{}).ApplyOptions(options)
	w := c.snapshot
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
	if obj := k.objects[key]; obj != nil {
		return obj, nil
	}
	if err := k.unread(key.Namespace); err != nil {
		return nil, err
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.plural}, key.Name)
}

// All are the objects of a type in a namespace, or in all if that is empty, by name. There are none of a kind that is not installed or was
// not read, and what is known by its metadata alone is left out. They are shared: read only.
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
		typed, _ := k.objects[key].(P)
		return typed
	}
	return nil
}

// NamespaceLabels are what is known of the labels of a Namespace, which are those that claim checks: known says that they are. A record
// from before they were read does not know them.
func (w *Snapshot) NamespaceLabels(name string) (all map[string]string, known bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	k := w.kinds[namespaceGVK.GroupKind()]
	if k == nil {
		return nil, false
	}
	if namespace := k.objects[client.ObjectKey{Name: name}]; namespace != nil {
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
func (c *Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk, err := c.GroupVersionKindFor(list)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	o := (&client.ListOptions{}).ApplyOptions(options)
	shared := ptr.Deref(o.UnsafeDisableDeepCopy, false)
	w := c.snapshot
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
	namespace := o.Namespace
	if !k.namespaced {
		namespace = ""
	}
	if err := k.unread(namespace); err != nil {
		return nil, err
	}
	var wanted []func(client.Object) bool
	if o.LabelSelector != nil {
		wanted = append(wanted, func(obj client.Object) bool { return o.LabelSelector.Matches(labels.Set(obj.GetLabels())) })
	}
	if o.FieldSelector != nil {
		for _, f := range o.FieldSelector.Requirements() {
			values := k.fields[f.Field]
			if values == nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("%s cannot be selected by the field %q", k.plural, f.Field))
			}
			wanted = append(wanted, func(obj client.Object) bool { return slices.Contains(values(obj), f.Value) })
		}
	}
	return k.in(namespace, wanted...), nil
}
