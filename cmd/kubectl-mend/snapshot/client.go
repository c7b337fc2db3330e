package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
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

// ErrReadOnly is the error of a write to a snapshot.
var ErrReadOnly = errors.New("this is a snapshot of a cluster: nothing can be written to it")

// Client reads a snapshot, and writes to it if it has a clock. It is safe for concurrent use, but by one writer for each object. What it
// does not implement itself no controller asks of it.
type Client struct {
	client.Client

	snapshot *Snapshot
	clock    clock.PassiveClock
	changes  atomic.Int64
}

// ReadOnly is a client with the answers that an API server gives: also of kinds that are not installed, or that the user may not read. It
// refuses every write. With client.UnsafeDisableDeepCopy what is read is shared: read only.
func (s *Snapshot) ReadOnly() client.Client { return &Client{snapshot: s} }

// Writable is a client through which controllers act on a snapshot, in memory. New objects are dated by the clock. It is no API server: a
// write is never refused, what is deleted is gone at once, and resource versions are left out.
func (s *Snapshot) Writable(now clock.PassiveClock) *Client { return &Client{snapshot: s, clock: now} }

// Changes is how often a write has changed anything.
func (c *Client) Changes() int64 { return c.changes.Load() }

// RESTMapper knows the kinds that the cluster serves.
func (c *Client) RESTMapper() meta.RESTMapper { return c.snapshot.RESTMapper() }

// Get reads an object, and its kind if nobody has asked for it yet.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	if err := c.snapshot.load(ctx, gvk, question{namespace: key.Namespace, name: key.Name}); err != nil {
		return err
	}
	stored, err := c.snapshot.stored(gvk, key)
	if err == nil {
		stored, err = as(stored, gvk, obj)
	}
	if err != nil {
		return err
	}
	if o := (&client.GetOptions{}).ApplyOptions(options); !ptr.Deref(o.UnsafeDisableDeepCopy, false) {
		stored = stored.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(stored).Elem())
	return nil
}

// stored is the object of a name, which is shared: read only. One that there may be where nothing was read is not called missing.
func (s *Snapshot) stored(gvk schema.GroupVersionKind, key client.ObjectKey) (client.Object, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k, err := s.find(gvk)
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
	gvk, err := apiutil.GVKForObject(list, scheme)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	o := (&client.ListOptions{}).ApplyOptions(options)
	q := question{namespace: o.Namespace}
	if o.LabelSelector != nil {
		q.labels = o.LabelSelector.String()
	}
	if o.FieldSelector != nil {
		q.name, _ = o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	}
	if err := c.snapshot.load(ctx, gvk, q); err != nil {
		return err
	}
	found, err := c.snapshot.selected(gvk, o)
	if err != nil {
		return err
	}
	items := make([]runtime.Object, 0, len(found))
	for _, stored := range found {
		obj, err := as(stored, gvk, list)
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
	return nil
}

// selected are the objects that a list is about, by name.
func (s *Snapshot) selected(gvk schema.GroupVersionKind, o *client.ListOptions) ([]client.Object, error) {
	s.mu.RLock()
	k, err := s.find(gvk)
	namespace := o.Namespace
	if err == nil && !k.namespaced {
		namespace = ""
	}
	if err == nil {
		err = k.unread(namespace)
	}
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	objs := s.Objects(gvk, namespace)
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
func as(stored client.Object, gvk schema.GroupVersionKind, like runtime.Object) (client.Object, error) {
	switch {
	case isMetadata(like):
		bare := meta.AsPartialObjectMetadata(stored)
		bare.SetGroupVersionKind(gvk)
		return bare, nil
	case stored.GetObjectKind().GroupVersionKind() == gvk && isTree(stored) == isTree(like):
		return stored, nil
	}
	return convert(stored, gvk, isTree(like))
}

// convert returns an object in another version, as a tree of values or as its type, which is known then.
func convert(obj client.Object, gvk schema.GroupVersionKind, tree bool) (client.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	values := &unstructured.Unstructured{Object: content}
	values.SetGroupVersionKind(gvk)
	if tree {
		return values, nil
	}
	typed, err := scheme.New(gvk)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed)
	}
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return typed.(client.Object), nil
}

// before is the object of the kind and name of obj, as the snapshot has it. It is shared: read only. The error is ErrReadOnly if nothing
// may be written.
func (c *Client) before(obj client.Object) (client.Object, schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if c.clock == nil {
		err = ErrReadOnly
	}
	if err != nil {
		return nil, gvk, err
	}
	stored, err := c.snapshot.stored(gvk, client.ObjectKeyFromObject(obj))
	if err == nil {
		stored, err = as(stored, gvk, stored)
	}
	return stored, gvk, err
}

// Create adds a new object.
func (c *Client) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	_, gvk, err := c.before(obj)
	if err == nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, obj.GetName())
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	created := obj.DeepCopyObject().(client.Object)
	created.SetCreationTimestamp(metav1.NewTime(c.clock.Now()).Rfc3339Copy())
	created.SetGeneration(1)
	created.GetObjectKind().SetGroupVersionKind(gvk)
	c.changes.Add(1)
	if err := c.snapshot.Add(created); err != nil {
		return err
	}
	return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// Update replaces the object of that kind and name. An equal object changes nothing.
func (c *Client) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	before, gvk, err := c.before(obj)
	if err != nil || equality.Semantic.DeepEqual(before, obj) {
		return err
	}
	c.changes.Add(1)
	if !obj.GetDeletionTimestamp().IsZero() && len(obj.GetFinalizers()) == 0 {
		c.snapshot.Remove(gvk, client.ObjectKeyFromObject(obj))
		return nil
	}
	return c.snapshot.Add(obj)
}

// Patch applies a merge patch (RFC 7386).
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	before, gvk, err := c.before(obj)
	if err != nil {
		return err
	}
	next, err := patched(before, obj, patch)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	if err := c.Update(ctx, next); err != nil {
		return err
	}
	return client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(obj), obj))
}

// patched is a new object of the type of before, with the changes of the patch.
func patched(before, obj client.Object, patch client.Patch) (client.Object, error) {
	changes, err := patch.Data(obj)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	if content, err = jsonpatch.MergePatch(content, changes); err != nil {
		return nil, err
	}
	next := reflect.New(reflect.TypeOf(before).Elem()).Interface().(client.Object)
	return next, json.Unmarshal(content, next)
}

// Delete removes an object.
func (c *Client) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	_, gvk, err := c.before(obj)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	c.changes.Add(1)
	c.snapshot.Remove(gvk, client.ObjectKeyFromObject(obj))
	return nil
}

// Status patches the whole object: a controller changes nothing else together with the status.
func (c *Client) Status() client.SubResourceWriter { return status{client: c} }

type status struct {
	client.SubResourceWriter

	client *Client
}

// Patch patches the whole object.
func (s status) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.client.Patch(ctx, obj, patch)
}
