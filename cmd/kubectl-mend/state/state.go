// Package state is the cluster that a simulation changes: a snapshot, of which objects are replaced and removed.
//
// It is no API server. A write is never refused, and resource versions and conversions are left out.
package state

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// State is the management cluster, or, by Of, a workload cluster of it. It is safe for concurrent use.
type State struct {
	snapshot *snapshot.Snapshot
	clock    clock.PassiveClock
	changes  *atomic.Int64
}

// New returns the state of w, which changes with it. New objects are dated by the clock.
func New(w *snapshot.Snapshot, c clock.PassiveClock) *State {
	return &State{snapshot: w, clock: c, changes: &atomic.Int64{}}
}

// Of is the state of a workload cluster. Its changes count as changes of s.
func (s *State) Of(cluster client.ObjectKey) *State {
	return &State{snapshot: s.snapshot.Workload(cluster), clock: s.clock, changes: s.changes}
}

// Changes is how often anything has changed.
func (s *State) Changes() int64 { return s.changes.Load() }

// Put replaces the object of that kind and name. An equal object changes nothing; one that is being deleted and has no finalizer is removed.
func (s *State) Put(obj client.Object) error {
	kind, err := apiutil.GVKForObject(obj, s.snapshot.Scheme())
	if err != nil {
		return fmt.Errorf("put %s: %w", client.ObjectKeyFromObject(obj), err)
	}
	was, err := s.snapshot.Stored(kind, client.ObjectKeyFromObject(obj))
	switch {
	case client.IgnoreNotFound(err) != nil:
		return err
	case err == nil && equality.Semantic.DeepEqual(was, obj):
		return nil
	case err == nil && obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0:
		return s.remove(kind, was)
	}
	s.changes.Add(1)
	return s.snapshot.Add(obj)
}

// Delete removes an object: at once, or, if it has finalizers, when the last of them is removed.
func (s *State) Delete(kind schema.GroupVersionKind, key client.ObjectKey) error {
	is, err := s.snapshot.Stored(kind, key)
	switch {
	case err != nil:
		return client.IgnoreNotFound(err)
	case len(is.GetFinalizers()) == 0:
		return s.remove(kind, is)
	case is.GetDeletionTimestamp() != nil:
		return nil
	}
	deleted, at := is.DeepCopyObject().(client.Object), s.now()
	deleted.SetDeletionTimestamp(&at)
	return s.Put(deleted)
}

// remove removes an object, and deletes the objects that have no other owner.
func (s *State) remove(kind schema.GroupVersionKind, obj client.Object) error {
	s.changes.Add(1)
	s.snapshot.Remove(kind, client.ObjectKeyFromObject(obj))
	for _, owned := range s.snapshot.OwnedBy(obj.GetUID()) {
		left := owned.DeepCopyObject().(client.Object)
		left.SetOwnerReferences(slices.DeleteFunc(left.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == obj.GetUID() }))
		err := s.Put(left)
		if err == nil && len(left.GetOwnerReferences()) == 0 {
			err = s.Delete(left.GetObjectKind().GroupVersionKind(), client.ObjectKeyFromObject(left))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *State) now() metav1.Time { return metav1.NewTime(s.clock.Now()).Rfc3339Copy() }

// Client is the client of the controllers: they observe the state through it, and apply their plans to it.
func (s *State) Client() client.Client { return &writer{s.snapshot.ReadOnly(), s} }

// writer puts one whole object for each write.
type writer struct {
	client.Client

	state *State
}

// stored is the object as the state has it.
func (w *writer) stored(obj client.Object) (client.Object, schema.GroupVersionKind, error) {
	kind, err := w.GroupVersionKindFor(obj)
	if err != nil {
		return nil, kind, err
	}
	is, err := w.state.snapshot.Stored(kind, client.ObjectKeyFromObject(obj))
	return is, kind, err
}

// Create puts a new object.
func (w *writer) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	_, kind, err := w.stored(obj)
	if err == nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, obj.GetName())
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	made := obj.DeepCopyObject().(client.Object)
	made.SetCreationTimestamp(w.state.now())
	made.SetGeneration(1)
	made.GetObjectKind().SetGroupVersionKind(kind)
	if err := w.state.Put(made); err != nil {
		return err
	}
	return w.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// Update puts obj.
func (w *writer) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return w.state.Put(obj)
}

// Patch puts the stored object with the changes of the patch.
func (w *writer) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	is, kind, err := w.stored(obj)
	if err != nil {
		return err
	}
	next, err := patched(is, obj, patch)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", kind.Kind, obj.GetName(), err)
	}
	if err := w.state.Put(next); err != nil {
		return err
	}
	return client.IgnoreNotFound(w.Get(ctx, client.ObjectKeyFromObject(obj), obj))
}

// patched is a new object of the type of is, with the changes of a merge patch (RFC 7386).
func patched(is, obj client.Object, patch client.Patch) (client.Object, error) {
	changes, err := patch.Data(obj)
	if err != nil {
		return nil, err
	}
	was, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	content, err := jsonpatch.MergePatch(was, changes)
	if err != nil {
		return nil, err
	}
	next := reflect.New(reflect.TypeOf(is).Elem()).Interface().(client.Object)
	return next, json.Unmarshal(content, next)
}

// Delete deletes obj.
func (w *writer) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	kind, err := w.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	return w.state.Delete(kind, client.ObjectKeyFromObject(obj))
}

// Status patches the whole object: a controller changes nothing else together with the status.
func (w *writer) Status() client.SubResourceWriter { return status{w.Client.Status(), w} }

type status struct {
	client.SubResourceWriter

	writer *writer
}

// Patch patches the whole object.
func (s status) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.writer.Patch(ctx, obj, patch)
}
