package managerlease

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EnsureNamespace makes a namespace unless there is one. It is no error that the namespace may not be read: it is there then as a rule, and if it is not, the
// lease cannot be written and that is logged.
func EnsureNamespace(ctx context.Context, c client.Client, name string) error {
	is := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, is)
	if err == nil || apierrors.IsForbidden(err) {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read namespace %s: %w", name, err)
	}
	is = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Create(ctx, is); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("there is no namespace %s: make it: %w", name, err)
	}
	return nil
}

// FromOutside reports whether a lease is that of a manager which says that it runs outside of the cluster.
func FromOutside(lease *coordinationv1.Lease) bool {
	a, err := read(lease)
	return err == nil && a != nil && a.Outside
}
