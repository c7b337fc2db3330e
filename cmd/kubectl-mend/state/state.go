// Package state is a cluster that changes while it is simulated: the objects of a snapshot, in whose place others are put.
//
// It is no API server. What is put is there as it is, and what is deleted is gone: no write is refused, and nothing is numbered or converted.
package state

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
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

// Put puts obj in the place of what has its name. One that is the same changes nothing. One that is being deleted is gone when nothing holds it
// any more.
func (s *State) Put(obj client.Object) error {
	kind, err := apiutil.GVKForObject(obj, s.snapshot.Scheme())
	if err != nil {
		return fmt.Errorf("put %s: %w", client.ObjectKeyFromObject(obj), err)
	}
	was, err := s.snapshot.Stored(kind, client.ObjectKeyFromObject(obj))
	if err == nil && reflect.TypeOf(was) != reflect.TypeOf(obj) {
		if obj, err = like(was, obj); err != nil {
			return fmt.Errorf("put %s %s: %w", kind.Kind, client.ObjectKeyFromObject(was), err)
		}
	}
	switch {
	case err == nil && equality.Semantic.DeepEqual(was, obj):
		return nil
	case err == nil && obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0:
		return s.remove(kind, was)
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	s.changes.Add(1)
	return s.snapshot.Add(obj)
}

// like is obj as what is kept of it is: as its type, or as a tree of values.
func like(kept, obj client.Object) (client.Object, error) {
	content, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return decoded(content, kept)
}

func decoded(content []byte, like client.Object) (client.Object, error) {
	obj := reflect.New(reflect.TypeOf(like).Elem()).Interface().(client.Object)
	return obj, json.Unmarshal(content, obj)
}

// Delete deletes an object: at once, or, if a finalizer holds it, as soon as none does.
func (s *State) Delete(kind schema.GroupVersionKind, key client.ObjectKey) error {
	is, err := s.snapshot.Stored(kind, key)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	switch {
	case len(is.GetFinalizers()) == 0:
		return s.remove(kind, is)
	case is.GetDeletionTimestamp() != nil:
		return nil
	}
	leaving, at := is.DeepCopyObject().(client.Object), s.now()
	leaving.SetDeletionTimestamp(&at)
	return s.Put(leaving)
}

// remove takes an object away, and deletes what has no other owner.
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

// Node returns a node, shared; nil if there is none.
func (s *State) Node(name string) (*corev1.Node, error) {
	is, err := s.snapshot.Stored(nodeKind, client.ObjectKey{Name: name})
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return is.(*corev1.Node), nil
}

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

// DeleteNode takes a node away, if it is there.
func (s *State) DeleteNode(name string) error {
	return s.Delete(nodeKind, client.ObjectKey{Name: name})
}

func (s *State) now() metav1.Time { return metav1.NewTime(s.clock.Now()).Rfc3339Copy() }

// Client is what the controllers read the state through, and carry their plans out on it.
func (s *State) Client() client.Client { return &writer{s.snapshot.ReadOnly(), s} }

// writer carries out what controllers write: each write puts one whole object.
type writer struct {
	client.Client

	state *State
}

// Create puts a new object.
func (w *writer) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	kind, err := w.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(obj)
	if _, err := w.state.snapshot.Stored(kind, key); err == nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
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
	return w.Get(ctx, key, obj)
}

// Update puts obj.
func (w *writer) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return w.state.Put(obj)
}

// Patch puts what the object is with the changes of the patch.
func (w *writer) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	kind, err := w.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(obj)
	is, err := w.state.snapshot.Stored(kind, key)
	if err != nil {
		return err
	}
	changes, err := patch.Data(obj)
	if err != nil {
		return fmt.Errorf("change %s %s: %w", kind.Kind, key, err)
	}
	next, err := changed(is, changes)
	if err != nil {
		return fmt.Errorf("change %s %s: %w", kind.Kind, key, err)
	}
	if err := w.state.Put(next); err != nil {
		return err
	}
	return client.IgnoreNotFound(w.Get(ctx, key, obj))
}

// changed is another object: obj with these changes. (RFC 7386.)
func changed(obj client.Object, changes []byte) (client.Object, error) {
	was, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	is, err := jsonpatch.MergePatch(was, changes)
	if err != nil {
		return nil, err
	}
	return decoded(is, obj)
}

// Delete deletes obj.
func (w *writer) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	kind, err := w.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	return w.state.Delete(kind, client.ObjectKeyFromObject(obj))
}

// Status writes the status like everything else: a controller changes nothing else with it.
func (w *writer) Status() client.SubResourceWriter { return status{w.Client.Status(), w} }

type status struct {
	client.SubResourceWriter

	writer *writer
}

// Patch puts what the object is with the changes of the patch.
func (s status) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.writer.Patch(ctx, obj, patch)
}
