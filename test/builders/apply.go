package builders

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is who the API server thinks writes what Apply writes.
const fieldOwner = client.FieldOwner("kubemend-builders")

// Apply makes the objects exist as they are given, in this order, and may be repeated. Each object is then what the API
// server answered. Status is left alone.
//
// It is also the quick way to create the first object of a kind: for two seconds after a kind is established, the API
// server refuses to create one at first, but not to apply one.
func Apply(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, object := range objects {
		if err := apply(ctx, c, object); err != nil {
			return fmt.Errorf("apply %T %s: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

func apply(ctx context.Context, c client.Client, object client.Object) error {
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	wanted := &unstructured.Unstructured{Object: content}
	wanted.SetGroupVersionKind(kind)
	wanted.SetManagedFields(nil)
	wanted.SetResourceVersion("")
	wanted.SetUID("") // an object that was deleted meanwhile is made anew
	unstructured.RemoveNestedField(wanted.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(wanted.Object, "metadata", "generation")
	unstructured.RemoveNestedField(wanted.Object, "status")
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldOwner, client.ForceOwnership); err != nil {
		return err
	}
	if answer, ok := object.(*unstructured.Unstructured); ok {
		answer.Object = wanted.Object
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object, object)
}
