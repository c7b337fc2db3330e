package workload

import (
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// SlimNode is the transform of node caches: it keeps what is judged or fenced (name, UID, provider ID, taints, who has fenced it, boot ID, and
// of each condition its type, status, reason and last transition) and drops the rest. A node of 8 KiB becomes one of 1 KiB.
//
// Heartbeat times are among what is dropped: two heartbeats of an unchanged node are the same object afterwards.
func SlimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:              node.Name,
			UID:               node.UID,
			ResourceVersion:   node.ResourceVersion,
			CreationTimestamp: node.CreationTimestamp,
			DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec: corev1.NodeSpec{ProviderID: node.Spec.ProviderID, Taints: node.Spec.Taints},
	}
	if by, fenced := node.Annotations[mendv1.FencedByAnnotation]; fenced {
		slim.Annotations = map[string]string{mendv1.FencedByAnnotation: by}
	}
	slim.Status.NodeInfo.BootID = node.Status.NodeInfo.BootID
	slim.Status.Conditions = make([]corev1.NodeCondition, len(node.Status.Conditions))
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		slim.Status.Conditions[i] = corev1.NodeCondition{
			Type:               Interned(c.Type),
			Status:             Interned(c.Status),
			Reason:             Interned(c.Reason),
			LastTransitionTime: c.LastTransitionTime,
		}
	}
	return slim, nil
}

// SlimSecret is the transform of the cache of Secrets: it drops the data of all that are not kubeconfigs.
func SlimSecret(obj any) (any, error) {
	if s, ok := obj.(*corev1.Secret); ok {
		s.ManagedFields, s.Annotations = nil, nil
		if !strings.HasSuffix(s.Name, "-"+string(secret.Kubeconfig)) {
			s.Data = nil
		}
	}
	return obj, nil
}

// Interned returns s from the one copy that all caches share. The same few words
// stand in the conditions of thousands of objects, and every decoder makes them anew.
func Interned[S ~string](s S) S { return S(unique.Make(string(s)).Value()) }

// NodeChanges passes the events of a node after which it may be judged otherwise. A heartbeat is none.
func NodeChanges() predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
			return e.ObjectOld.UID != e.ObjectNew.UID || !sameConditions(e.ObjectOld.Status.Conditions, e.ObjectNew.Status.Conditions)
		},
		GenericFunc: func(event.TypedGenericEvent[*corev1.Node]) bool { return false },
	}
}

func sameConditions(a, b []corev1.NodeCondition) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Type != b[i].Type || a[i].Status != b[i].Status || a[i].Reason != b[i].Reason ||
			!a[i].LastTransitionTime.Equal(&b[i].LastTransitionTime) {
			return false
		}
	}
	return true
}
