// Package state has the client through which controllers act on a snapshot, in memory.
//
// It is no API server. A write is never refused, what is deleted is gone at once, and resource versions and conversions are left out.
package state

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync/atomic"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// Client reads a snapshot and writes to it. New objects are dated by the clock. It is safe for concurrent use, but by one writer for each
// object.
type Client struct {
	client.Client

	snapshot *snapshot.Snapshot
	clock    clock.PassiveClock
	changes  atomic.Int64
}

// New returns the client of w.
func New(w *snapshot.Snapshot, c clock.PassiveClock) *Client {
	return &Client{Client: w.ReadOnly(), snapshot: w, clock: c}
}

// Changes is how often a write has changed anything.
func (c *Client) Changes() int64 { return c.changes.Load() }

// stored is the object of the kind and name of obj, as the snapshot has it.
func (c *Client) stored(obj client.Object) (client.Object, schema.GroupVersionKind, error) {
	kind, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return nil, kind, err
	}
	stored, err := c.snapshot.Stored(kind, client.ObjectKeyFromObject(obj))
	return stored, kind, err
}

// Create adds a new object.
func (c *Client) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	_, kind, err := c.stored(obj)
	if err == nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, obj.GetName())
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	created := obj.DeepCopyObject().(client.Object)
	created.SetCreationTimestamp(metav1.NewTime(c.clock.Now()).Rfc3339Copy())
	created.SetGeneration(1)
	created.GetObjectKind().SetGroupVersionKind(kind)
	c.changes.Add(1)
	if err := c.snapshot.Add(created); err != nil {
		return err
	}
	return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// Update replaces the object of that kind and name. An equal object changes nothing.
func (c *Client) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	stored, kind, err := c.stored(obj)
	switch {
	case err != nil:
		return err
	case equality.Semantic.DeepEqual(stored, obj):
		return nil
	}
	c.changes.Add(1)
	if !obj.GetDeletionTimestamp().IsZero() && len(obj.GetFinalizers()) == 0 {
		c.snapshot.Remove(kind, client.ObjectKeyFromObject(obj))
		return nil
	}
	return c.snapshot.Add(obj)
}

// Patch applies a merge patch (RFC 7386).
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	stored, kind, err := c.stored(obj)
	if err != nil {
		return err
	}
	next, err := patched(stored, obj, patch)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", kind.Kind, obj.GetName(), err)
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
	_, kind, err := c.stored(obj)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	c.changes.Add(1)
	c.snapshot.Remove(kind, client.ObjectKeyFromObject(obj))
	return nil
}

// Status patches the whole object: a controller changes nothing else together with the status.
func (c *Client) Status() client.SubResourceWriter { return status{c.Client.Status(), c} }

type status struct {
	client.SubResourceWriter

	client *Client
}

// Patch patches the whole object.
func (s status) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.client.Patch(ctx, obj, patch)
}
