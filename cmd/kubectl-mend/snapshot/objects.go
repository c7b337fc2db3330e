package snapshot

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

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

// Objects are all that are known of a kind, as they are kept, by name. They are shared: read only.
func (w *Snapshot) Objects(gvk schema.GroupVersionKind, namespace string) []client.Object {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if k := w.kinds[gvk.GroupKind()]; k != nil {
		return k.in(namespace)
	}
	return nil
}

// NamespaceLabels are what is known of the labels of a Namespace, which are those that claim checks: known says that they are. A record
// from before they were read does not know them.
func (w *Snapshot) NamespaceLabels(name string) (labels map[string]string, known bool) {
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
