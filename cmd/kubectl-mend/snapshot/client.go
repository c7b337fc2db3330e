package snapshot

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

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
	if err := w.load(ctx, question{gvk: gvk, namespace: key.Namespace, name: key.Name}); err != nil {
		return err
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	stored, err := w.lookUp(gvk, key)
	if err != nil {
		return err
	}
	if stored, err = w.as(stored, gvk, obj); err != nil {
		return err
	}
	if !ptr.Deref(o.UnsafeDisableDeepCopy, false) {
		stored = stored.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(stored).Elem())
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

// List implements client.Reader. The objects are in the order of their names, and always all of them.
func (c *Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk, err := c.GroupVersionKindFor(list)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	o := (&client.ListOptions{}).ApplyOptions(options)
	q := question{gvk: gvk, namespace: o.Namespace}
	if o.LabelSelector != nil {
		q.labels = o.LabelSelector.String()
	}
	if o.FieldSelector != nil {
		q.name, _ = o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	}
	w := c.snapshot
	if err := w.load(ctx, q); err != nil {
		return err
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	found, err := w.selected(gvk, o)
	if err != nil {
		return err
	}
	items := make([]runtime.Object, 0, len(found))
	for _, stored := range found {
		obj, err := w.as(stored, gvk, list)
		if err != nil {
			return err
		}
		if !ptr.Deref(o.UnsafeDisableDeepCopy, false) {
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
	objs := k.in(namespace)
	if o.LabelSelector != nil {
		objs = slices.DeleteFunc(objs, func(obj client.Object) bool { return !o.LabelSelector.Matches(labels.Set(obj.GetLabels())) })
	}
	if o.FieldSelector == nil {
		return objs, nil
	}
	for _, field := range o.FieldSelector.Requirements() {
		values := k.indexes[field.Field]
		if values == nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s cannot be selected by the field %q", k.plural, field.Field))
		}
		objs = slices.DeleteFunc(objs, func(obj client.Object) bool { return !slices.Contains(values(obj), field.Value) })
	}
	return objs, nil
}

func isMetadata(obj runtime.Object) bool {
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return true
	}
	return false
}

func isTree(obj runtime.Object) bool {
	_, tree := obj.(runtime.Unstructured)
	return tree
}

// as returns a stored object in a version and in the form of another object or list: as its type, as metadata or as a tree of values. It is
// shared: read only. Versions are converted by the names of the fields, as an API server does for a kind without a webhook.
func (w *Snapshot) as(stored client.Object, gvk schema.GroupVersionKind, like runtime.Object) (client.Object, error) {
	switch {
	case isMetadata(like):
		bare := meta.AsPartialObjectMetadata(stored)
		bare.SetGroupVersionKind(gvk)
		return bare, nil
	case stored.GetObjectKind().GroupVersionKind() == gvk && isTree(stored) == isTree(like):
		return stored, nil
	}
	return w.convert(stored, gvk, isTree(like))
}

// convert returns an object in another version, as a tree of values or as its type, which is known then.
func (w *Snapshot) convert(obj client.Object, gvk schema.GroupVersionKind, tree bool) (client.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	values := &unstructured.Unstructured{Object: content}
	values.SetGroupVersionKind(gvk)
	if tree {
		return values, nil
	}
	typed, err := w.scheme.New(gvk)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed)
	}
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return typed.(client.Object), nil
}
