package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

// record is an object of the snapshot. Readers share what is in it; a write puts another object in its place and changes none.
type record struct {
	kind   *kind
	key    client.ObjectKey
	scheme *runtime.Scheme

	is client.Object

	mu     sync.Mutex
	shapes map[shape]client.Object // others that it was asked for in
}

// shape is how an object is wanted: in which version, and as its type, as metadata or as a tree of values.
type shape struct {
	gvk        schema.GroupVersionKind
	bare, tree bool
}

func isMetadata(obj runtime.Object) bool {
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return true
	}
	return false
}

func shapeOf(obj runtime.Object, gvk schema.GroupVersionKind) shape {
	_, tree := obj.(runtime.Unstructured)
	return shape{gvk: gvk, bare: isMetadata(obj), tree: tree}
}

// as returns the object in a shape. It is shared: read only.
func (r *record) as(s shape) (client.Object, error) {
	if s == shapeOf(r.is, r.is.GetObjectKind().GroupVersionKind()) {
		return r.is, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if obj := r.shapes[s]; obj != nil {
		return obj, nil
	}
	obj, err := converted(r.scheme, r.is, s)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", r.kind.Kind, r.key, err)
	}
	if r.shapes == nil {
		r.shapes = map[shape]client.Object{}
	}
	r.shapes[s] = obj
	return obj, nil
}

// converted returns obj in another shape.
func converted(scheme *runtime.Scheme, obj client.Object, s shape) (client.Object, error) {
	if s.bare {
		bare := meta.AsPartialObjectMetadata(obj)
		bare.SetGroupVersionKind(s.gvk)
		return bare, nil
	}
	if isMetadata(obj) {
		return nil, unreadError{errors.New("no more than its metadata is known")}
	}
	to := client.Object(&unstructured.Unstructured{})
	if scheme.Recognizes(s.gvk) {
		typed, err := scheme.New(s.gvk)
		if err != nil {
			return nil, err
		}
		to = typed.(client.Object)
	}
	if err := convert(obj, to); err != nil {
		return nil, err
	}
	if s.tree {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(to)
		if err != nil {
			return nil, err
		}
		to = &unstructured.Unstructured{Object: content}
	}
	to.GetObjectKind().SetGroupVersionKind(s.gvk)
	return to, nil
}

// convert makes to what from is: between versions as the webhook of the kind does, or, if it has none, by name of the fields, as an API server does.
func convert(from, to client.Object) error {
	hub, isHub := to.(conversion.Hub)
	if is, ok := from.(conversion.Convertible); ok && isHub {
		return is.ConvertTo(hub)
	}
	hub, isHub = from.(conversion.Hub)
	if is, ok := to.(conversion.Convertible); ok && isHub {
		return is.ConvertFrom(hub)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from.DeepCopyObject())
	if err != nil {
		return err
	}
	if tree, is := to.(*unstructured.Unstructured); is {
		tree.Object = content
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, to)
}

// shelf is a list of records in the order of their names.
type shelf []*record

func (s shelf) with(r *record) shelf {
	if at, found := s.find(r); !found {
		return slices.Insert(s, at, r)
	}
	return s
}

func (s shelf) without(r *record) shelf {
	if at, found := s.find(r); found {
		return slices.Delete(s, at, at+1)
	}
	return s
}

func (s shelf) find(r *record) (int, bool) {
	return slices.BinarySearchFunc(s, r.key, func(a *record, key client.ObjectKey) int { return compareKeys(a.key, key) })
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
