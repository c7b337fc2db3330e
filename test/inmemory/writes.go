package inmemory

import (
	"errors"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// merged applies a merge patch (RFC 7386) to base.
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

// next returns the object after a write of is: with its new status, or with everything new except the status and the fields that only the
// server writes.
func (s *Server) next(
	kind schema.GroupVersionKind, resource schema.GroupResource, was, is, obj client.Object, status bool,
) (client.Object, error) {
	conflict := func(why string) error { return apierrors.NewConflict(resource, obj.GetName(), errors.New(why)) }
	switch {
	case was == nil:
		return nil, apierrors.NewNotFound(resource, obj.GetName())
	case is.GetUID() != was.GetUID() && is.GetUID() != "":
		return nil, conflict("the UID in the precondition differs")
	case is.GetResourceVersion() != was.GetResourceVersion() && is.GetResourceVersion() != "":
		return nil, conflict("the object has been modified")
	}
	if status {
		next := was.DeepCopyObject().(client.Object)
		takeStatus(next, is)
		return next, nil
	}
	if !s.kinds[kind].Whole {
		takeStatus(is, was)
	}
	is.SetUID(was.GetUID())
	is.SetCreationTimestamp(was.GetCreationTimestamp())
	is.SetDeletionTimestamp(was.GetDeletionTimestamp())
	is.SetResourceVersion(was.GetResourceVersion())
	is.SetGeneration(was.GetGeneration())
	if !equality.Semantic.DeepEqual(specOf(was), specOf(is)) {
		is.SetGeneration(was.GetGeneration() + 1)
	}
	return is, nil
}

// write carries out a write, stores the result if it differs, and fills obj with it. An object with a deletion timestamp is deleted with
// its last finalizer.
func (s *Server) write(
	obj client.Object, become func(kind schema.GroupVersionKind, resource schema.GroupResource, was client.Object) (client.Object, error),
) error {
	mapping, err := s.mapping(obj)
	if err != nil {
		return err
	}
	kind, key := mapping.GroupVersionKind, client.ObjectKeyFromObject(obj)
	s.mu.Lock()
	var was client.Object
	if key.Name != "" {
		was = s.At(kind, key)
	}
	is, err := become(kind, mapping.Resource.GroupResource(), was)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	change, changed := Change{kind, was, is}, was == nil || !equality.Semantic.DeepEqual(was, is)
	if key.Name = is.GetName(); is.GetDeletionTimestamp() != nil && len(is.GetFinalizers()) == 0 {
		change.Is, changed = nil, true
	}
	if changed {
		s.keep(kind, key, was, change.Is)
	}
	s.mu.Unlock()
	if s.After != nil && changed {
		s.After(change)
	}
	return fill(obj, is, kind)
}

// keep stores an object with a new resource version; nil deletes it.
func (s *Server) keep(kind schema.GroupVersionKind, key client.ObjectKey, was, is client.Object) {
	s.version++
	if is != nil {
		is.SetResourceVersion(strconv.Itoa(s.version))
		is.GetObjectKind().SetGroupVersionKind(kind)
	}
	s.set(kind, key, is)
	s.changes = append(s.changes, Change{kind, was, is})
}

// normal converts an object to the type in which it is stored, by way of JSON.
func (s *Server) normal(kind schema.GroupVersionKind, obj client.Object) (client.Object, error) {
	all, err := content(obj)
	if err != nil {
		return nil, err
	}
	return s.decode(kind, all)
}

func (s *Server) decode(kind schema.GroupVersionKind, all map[string]any) (client.Object, error) {
	made, err := s.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	obj, is := made.(client.Object)
	if u, unknown := made.(*unstructured.Unstructured); unknown || !is {
		if u == nil {
			u = &unstructured.Unstructured{}
		}
		u.Object = maps.Clone(all)
		obj = u
	} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all, obj); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj, nil
}

// take returns the changes since its last call.
func (s *Server) take() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.changes
	s.changes = nil
	return taken
}
