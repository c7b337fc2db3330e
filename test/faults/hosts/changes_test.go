package hosts

import (
	"maps"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// editHost changes the BareMetalHost, or its status.
func (e *environment) editHost(status bool, change func(*bmov1alpha1.BareMetalHost)) {
	e.t.Helper()
	edit(e, e.management, e.host(), status, change)
}

// edit writes a change of an object.
func edit[T client.Object](e *environment, s *server, was T, status bool, change func(T)) {
	e.t.Helper()
	is := was.DeepCopyObject().(T)
	if is.GetAnnotations() == nil {
		is.SetAnnotations(map[string]string{})
	}
	change(is)
	if status {
		e.do(s.Status().Update(e.t.Context(), is))
		return
	}
	e.do(s.Update(e.t.Context(), is))
}

// vanish deletes an object for good, whatever finalizers it has.
func (e *environment) vanish(s *server, o client.Object) {
	e.t.Helper()
	if len(o.GetFinalizers()) > 0 {
		edit(e, s, o, false, func(o client.Object) { o.SetFinalizers(nil) })
	}
	e.do(client.IgnoreNotFound(s.Delete(e.t.Context(), o)))
}

// pause sets or clears spec.paused of the Cluster.
func (e *environment) pause(paused bool) {
	e.t.Helper()
	c := e.management.At(clusterv1.GroupVersion.WithKind("Cluster"), clusterKey).(*clusterv1.Cluster)
	edit(e, e.management, c, false, func(c *clusterv1.Cluster) { c.Spec.Paused = &paused })
}

// move makes the remediation be another object of the same content, without a status, as `clusterctl move` does.
func (e *environment) move() {
	e.t.Helper()
	was := e.remediation()
	is := e.make(metav1.ObjectMeta{
		Namespace: was.GetNamespace(), Name: was.GetName(), Labels: was.GetLabels(), OwnerReferences: was.GetOwnerReferences(),
		Annotations: maps.Clone(was.GetAnnotations()), Finalizers: slices.Clone(was.GetFinalizers()),
	}, *strategyOf(was))
	e.safety.moving = true
	e.vanish(e.management, was)
	e.do(e.management.Create(e.t.Context(), e.named(is)))
	e.safety.moving = false
}
