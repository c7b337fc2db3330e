package snapshot

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

// as returns an object in a shape. It is shared: read only.
func (w *Snapshot) as(obj client.Object, s shape) (client.Object, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if s == shapeOf(obj, gvk) {
		return obj, nil
	}
	if s.bare {
		bare := meta.AsPartialObjectMetadata(obj)
		bare.SetGroupVersionKind(s.gvk)
		return bare, nil
	}
	other, err := converted(w.scheme, obj, s)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return other, nil
}

// converted returns obj in a shape with more than metadata.
func converted(scheme *runtime.Scheme, obj client.Object, s shape) (client.Object, error) {
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

// convert makes to what from is by name of the fields, as an API server does for a kind without a webhook: others are read in the version in
// which they are stored, or as metadata.
func convert(from, to client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from.DeepCopyObject())
	if err != nil {
		return err
	}
	if tree, ok := to.(*unstructured.Unstructured); ok {
		tree.Object = content
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, to)
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
