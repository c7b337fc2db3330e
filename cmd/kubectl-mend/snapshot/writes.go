package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrReadOnly is the error of a write to a snapshot.
var ErrReadOnly = errors.New("this is a snapshot of a cluster: nothing can be written to it")

// Writable is a client through which controllers act on a snapshot, in memory. New objects are dated by the clock. It is no API server: a
// write is never refused, what is deleted is gone at once, and resource versions are left out.
func (w *Snapshot) Writable(now clock.PassiveClock) *Client { return &Client{snapshot: w, clock: now} }

// Changes is how often a write has changed anything.
func (c *Client) Changes() int64 { return c.changes.Load() }

// stored is the object of the kind and name of obj, as the snapshot has it. It is shared: read only. The error is ErrReadOnly
// if nothing may be written.
func (c *Client) stored(obj client.Object) (client.Object, schema.GroupVersionKind, error) {
	gvk, err := c.GroupVersionKindFor(obj)
	if c.clock == nil {
		err = ErrReadOnly
	}
	if err != nil {
		return nil, gvk, err
	}
	c.snapshot.mu.RLock()
	defer c.snapshot.mu.RUnlock()
	stored, err := c.snapshot.lookUp(gvk, client.ObjectKeyFromObject(obj))
	if err == nil {
		stored, err = c.snapshot.as(stored, gvk, stored)
	}
	return stored, gvk, err
}

// Create adds a new object.
func (c *Client) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	_, gvk, err := c.stored(obj)
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
	stored, gvk, err := c.stored(obj)
	if err != nil || equality.Semantic.DeepEqual(stored, obj) {
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
	stored, gvk, err := c.stored(obj)
	if err != nil {
		return err
	}
	next, err := patched(stored, obj, patch)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	if err := c.Update(ctx, next); err != nil {
		return err
	}
	return client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(obj), obj))
}

// patched is a new object of the type of stored, with the changes of the patch.
func patched(stored, obj client.Object, patch client.Patch) (client.Object, error) {
	changes, err := patch.Data(obj)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	content, err := jsonpatch.MergePatch(before, changes)
	if err != nil {
		return nil, err
	}
	next := reflect.New(reflect.TypeOf(stored).Elem()).Interface().(client.Object)
	return next, json.Unmarshal(content, next)
}

// Delete removes an object.
func (c *Client) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	_, gvk, err := c.stored(obj)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	c.changes.Add(1)
	c.snapshot.Remove(gvk, client.ObjectKeyFromObject(obj))
	return nil
}

// DeleteAllOf is refused: no controller asks for it.
func (*Client) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return ErrReadOnly
}

// Apply is refused: no controller asks for it.
func (*Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return ErrReadOnly
}

// Status patches the whole object: a controller changes nothing else together with the status.
func (c *Client) Status() client.SubResourceWriter { return subresource{c} }

// SubResource is the same of any other subresource.
func (c *Client) SubResource(string) client.SubResourceClient { return subresource{c} }

// subresource patches the whole object. It refuses other writes, and reads as well: a status is read with its object.
type subresource struct{ client *Client }

func (s subresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.client.Patch(ctx, obj, patch)
}

func (subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return ErrReadOnly
}

func (subresource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return ErrReadOnly
}

func (subresource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return ErrReadOnly
}

func (subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return ErrReadOnly
}
