package snapshot

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrReadOnly is the error of a write to a world that is only looked at.
var ErrReadOnly = errors.New("this is a snapshot of a cluster that is only looked at: nothing can be written to it")

var errDryRun = errors.New("a snapshot knows no dry run: it is one")

// writes locks the world for a write to objects of obj's kind.
func (a *api) writes(obj client.Object, dryRun []string) (*kind, schema.GroupVersionKind, func(), error) {
	gvk, err := a.GroupVersionKindFor(obj)
	switch {
	case err != nil:
		return nil, gvk, nil, fmt.Errorf("find the kind of a %T: %w", obj, err)
	case a.readOnly:
		return nil, gvk, nil, ErrReadOnly
	case len(dryRun) > 0:
		return nil, gvk, nil, errDryRun
	}
	a.world.mu.Lock()
	k, err := a.world.find(gvk)
	if err == nil {
		err = k.unread(obj.GetNamespace())
	}
	if err != nil {
		a.world.mu.Unlock()
		return nil, gvk, nil, err
	}
	return k, gvk, a.world.mu.Unlock, nil
}

// Create implements client.Writer.
func (a *api) Create(_ context.Context, obj client.Object, options ...client.CreateOption) error {
	k, gvk, done, err := a.writes(obj, (&client.CreateOptions{}).ApplyOptions(options).DryRun)
	if err != nil {
		return err
	}
	defer done()
	w := a.world
	content, err := tree(obj)
	if err != nil {
		return fmt.Errorf("create %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	switch {
	case u.GetResourceVersion() != "":
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case u.GetName() == "" && u.GetGenerateName() != "":
		u.SetName(fmt.Sprintf("%s%05d", u.GetGenerateName(), w.made+1))
	case u.GetName() == "":
		return invalid(k, "", field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
	}
	if k.records[client.ObjectKeyFromObject(u)] != nil {
		return apierrors.NewAlreadyExists(k.resource(), u.GetName())
	}
	u.SetUID(w.newUID(k, client.ObjectKeyFromObject(u)))
	u.SetCreationTimestamp(now(w.Clock))
	u.SetResourceVersion(w.nextVersion())
	u.SetDeletionTimestamp(nil)
	u.SetManagedFields(nil)
	if k.custom() {
		u.SetGeneration(1)
	}
	if !k.stateless {
		delete(u.Object, "status") // it is written on its own
	}
	stored, err := w.likeOthers(u)
	if err != nil {
		return fmt.Errorf("create %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return w.store(k, stored).into(obj, gvk, false)
}

// likeOthers returns a new object as the others are stored: as its type, if that is known.
func (w *World) likeOthers(u *unstructured.Unstructured) (client.Object, error) {
	gvk := u.GroupVersionKind()
	if !w.scheme.Recognizes(gvk) {
		return u, nil
	}
	return converted(w.scheme, u, shape{gvk: gvk})
}

// Update implements client.Writer.
func (a *api) Update(_ context.Context, obj client.Object, options ...client.UpdateOption) error {
	return a.update(obj, "", (&client.UpdateOptions{}).ApplyOptions(options).DryRun)
}

func (a *api) update(obj client.Object, part string, dryRun []string) error {
	k, gvk, done, err := a.writes(obj, dryRun)
	if err != nil {
		return err
	}
	defer done()
	r, err := a.world.lookUp(gvk, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	if obj.GetResourceVersion() == "" && k.custom() {
		return invalid(k, obj.GetName(), field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"))
	}
	next, err := tree(obj)
	if err != nil {
		return fmt.Errorf("update %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return a.world.change(r, gvk, next, part, obj)
}

// change writes next in the place of what r is, as far as a part of the object may be written, and has obj be what came of it. A write that
// changes nothing is none. The lock is held.
func (w *World) change(r *record, gvk schema.GroupVersionKind, next map[string]any, part string, obj client.Object) error {
	k := r.kind
	if part == "status" && k.stateless {
		return apierrors.NewNotFound(k.resource(), r.key.Name)
	}
	was, err := r.content(gvk)
	if err != nil {
		return err
	}
	to := &unstructured.Unstructured{Object: next}
	if err := w.allowed(k, was, to); err != nil {
		return err
	}
	before, err := r.content(r.is.GetObjectKind().GroupVersionKind())
	if err != nil {
		return err
	}
	stored, err := r.stored(merge(k, was, to, part))
	if err != nil {
		return fmt.Errorf("write %s %s: %w", k.Kind, r.key, err)
	}
	after, err := tree(stored)
	if err != nil {
		return fmt.Errorf("write %s %s: %w", k.Kind, r.key, err)
	}
	if !reflect.DeepEqual(before.Object, after) {
		if k.custom() && specChanged(before.Object, after, k) {
			stored.SetGeneration(before.GetGeneration() + 1)
		}
		stored.SetResourceVersion(w.nextVersion())
		w.store(k, stored)
	}
	err = r.into(obj, gvk, false)
	if !stored.GetDeletionTimestamp().IsZero() && len(stored.GetFinalizers()) == 0 {
		w.end(r, true)
	}
	return err
}

// content is the record as a tree of values of its own, in a version.
func (r *record) content(gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	obj, err := r.as(shape{gvk: gvk, tree: !isMetadata(r.is), bare: isMetadata(r.is)})
	if err != nil {
		return nil, err
	}
	if u, is := obj.(*unstructured.Unstructured); is {
		return u.DeepCopy(), nil
	}
	content, err := tree(obj)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", r.kind.Kind, r.key, err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// stored is u in the shape in which the record is.
func (r *record) stored(u *unstructured.Unstructured) (client.Object, error) {
	is := r.is.GetObjectKind().GroupVersionKind()
	if isMetadata(r.is) {
		into := &metav1.PartialObjectMetadata{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
			return nil, err
		}
		into.SetGroupVersionKind(is)
		return into, nil
	}
	if from := u.GroupVersionKind(); from.Version != is.Version && r.scheme.Recognizes(from) {
		typed, err := converted(r.scheme, u, shape{gvk: from})
		if err != nil {
			return nil, err
		}
		return converted(r.scheme, typed, shapeOf(r.is, is))
	}
	return converted(r.scheme, u, shapeOf(r.is, is))
}

// allowed refuses a write on top of what its writer has not seen.
func (w *World) allowed(k *kind, was, to *unstructured.Unstructured) error {
	if uid := to.GetUID(); uid != "" && uid != was.GetUID() {
		return apierrors.NewConflict(k.resource(), was.GetName(),
			fmt.Errorf("the UID is %s, and not %s", was.GetUID(), uid))
	}
	if version := to.GetResourceVersion(); version != "" && version != was.GetResourceVersion() {
		return apierrors.NewConflict(k.resource(), was.GetName(),
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if was.GetDeletionTimestamp() == nil {
		return nil
	}
	for _, f := range to.GetFinalizers() {
		if !slices.Contains(was.GetFinalizers(), f) {
			return invalid(k, was.GetName(), field.Forbidden(field.NewPath("metadata", "finalizers"),
				"no new finalizers can be added if the object is being deleted, found new finalizers []string{"+fmt.Sprintf("%q", f)+"}"))
		}
	}
	return nil
}

// merge takes from to what may be written together: the status alone, or all but the status. What only the API server says of an object stays.
func merge(k *kind, was, to *unstructured.Unstructured, part string) *unstructured.Unstructured {
	if part == "status" {
		merged := &unstructured.Unstructured{Object: was.Object}
		setStatus(merged, to)
		return merged
	}
	merged := &unstructured.Unstructured{Object: to.Object}
	if !k.stateless {
		setStatus(merged, was)
	}
	merged.SetGroupVersionKind(was.GroupVersionKind())
	merged.SetName(was.GetName())
	merged.SetNamespace(was.GetNamespace())
	merged.SetUID(was.GetUID())
	merged.SetResourceVersion(was.GetResourceVersion())
	merged.SetGeneration(was.GetGeneration())
	merged.SetCreationTimestamp(was.GetCreationTimestamp())
	merged.SetDeletionTimestamp(was.GetDeletionTimestamp())
	merged.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	merged.SetManagedFields(nil)
	return merged
}

func setStatus(to, from *unstructured.Unstructured) {
	delete(to.Object, "status")
	if status, has := from.Object["status"]; has {
		to.Object["status"] = status
	}
}

// specChanged reports whether two versions of an object differ in what generations count: all but metadata, and but the status if that is
// written on its own.
func specChanged(before, after map[string]any, k *kind) bool {
	for _, fields := range []map[string]any{before, after} {
		for name := range fields {
			if name == "metadata" || name == "status" && !k.stateless {
				continue
			}
			if !reflect.DeepEqual(before[name], after[name]) {
				return true
			}
		}
	}
	return false
}

func invalid(k *kind, name string, why *field.Error) error {
	return apierrors.NewInvalid(k.GroupKind, name, field.ErrorList{why})
}

// Delete implements client.Writer.
func (a *api) Delete(_ context.Context, obj client.Object, options ...client.DeleteOption) error {
	o := (&client.DeleteOptions{}).ApplyOptions(options)
	k, gvk, done, err := a.writes(obj, o.DryRun)
	if err != nil {
		return err
	}
	defer done()
	r, err := a.world.lookUp(gvk, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	if p := o.Preconditions; p != nil {
		precondition := &unstructured.Unstructured{Object: map[string]any{}}
		precondition.SetUID(ptr.Deref(p.UID, ""))
		precondition.SetResourceVersion(ptr.Deref(p.ResourceVersion, ""))
		was, err := r.content(gvk)
		if err != nil {
			return err
		}
		if err := a.world.allowed(k, was, precondition); err != nil {
			return err
		}
	}
	a.world.delete(r, ptr.Deref(o.PropagationPolicy, metav1.DeletePropagationBackground) != metav1.DeletePropagationOrphan)
	return nil
}

// delete ends an object, or, if somebody still has to let go of it, says when that was asked for. The lock is held.
func (w *World) delete(r *record, collect bool) {
	if len(r.is.GetFinalizers()) == 0 {
		w.end(r, collect)
		return
	}
	if r.is.GetDeletionTimestamp() != nil {
		return
	}
	leaving := r.is.DeepCopyObject().(client.Object)
	at := now(w.Clock)
	leaving.SetDeletionTimestamp(&at)
	leaving.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
	if leaving.GetGeneration() > 0 {
		leaving.SetGeneration(leaving.GetGeneration() + 1)
	}
	leaving.SetResourceVersion(w.nextVersion())
	w.store(r.kind, leaving)
}

// end takes an object out of the world, and does to what it owned as the garbage collector does: what has no other owner is deleted, too.
// An owner that the world does not hold counts as there: nobody knows that it is not. The lock is held.
func (w *World) end(r *record, collect bool) {
	uid := r.is.GetUID()
	w.remove(r)
	w.nextVersion()
	for _, d := range w.dependants(uid) {
		left := slices.DeleteFunc(slices.Clone(d.is.GetOwnerReferences()), func(o metav1.OwnerReference) bool { return o.UID == uid })
		if len(left) == 0 && collect {
			w.delete(d, true)
			continue
		}
		freed := d.is.DeepCopyObject().(client.Object)
		freed.SetOwnerReferences(left)
		freed.SetResourceVersion(w.nextVersion())
		w.store(d.kind, freed)
	}
}

// DeleteAllOf implements client.Writer.
func (a *api) DeleteAllOf(_ context.Context, obj client.Object, options ...client.DeleteAllOfOption) error {
	o := (&client.DeleteAllOfOptions{}).ApplyOptions(options)
	_, gvk, done, err := a.writes(obj, o.DryRun)
	if err != nil {
		return err
	}
	defer done()
	found, err := a.world.selected(gvk, &o.ListOptions)
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(found) {
		if r.kind.records[r.key] == r { // it may have gone with another
			a.world.delete(r, true)
		}
	}
	return nil
}

// Apply implements client.Writer: nobody here applies.
func (a *api) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	if a.readOnly {
		return ErrReadOnly
	}
	return errors.New("a snapshot knows no server-side apply")
}
