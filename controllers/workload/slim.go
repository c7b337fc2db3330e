package workload

import (
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/place"
)

// SlimNode is the transform of node caches: it keeps what is judged, fenced or recorded (name, UID, zone, roles, provider ID, taints,
// who has fenced it, boot ID, and of each condition its type, status, reason and last transition) and drops the rest. A node of 8
// KiB becomes one of 1 KiB.
//
// Heartbeat times are among what is dropped: two heartbeats of an unchanged node are the same object afterwards.
func SlimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:              cut(node.Name),
			UID:               cut(node.UID),
			ResourceVersion:   cut(node.ResourceVersion),
			CreationTimestamp: node.CreationTimestamp,
			DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec: corev1.NodeSpec{ProviderID: cut(node.Spec.ProviderID), Taints: firstOf(node.Spec.Taints, slimTaint)},
	}
	if remediation, fenced := node.Annotations[mendv1.FencedByAnnotation]; fenced {
		slim.Annotations = map[string]string{mendv1.FencedByAnnotation: cut(remediation)}
	}
	for _, label := range keptLabels {
		if value, labelled := node.Labels[label]; labelled {
			if slim.Labels == nil {
				slim.Labels = map[string]string{}
			}
			slim.Labels[label] = Interned(cut(value))
		}
	}
	slim.Status.NodeInfo.BootID = cut(node.Status.NodeInfo.BootID)
	slim.Status.Conditions = firstOf(node.Status.Conditions, slimCondition)
	return slim, nil
}

// keptLabels are the labels that are kept of a node.
var keptLabels = append(controlplane.RoleLabels(), corev1.LabelTopologyZone)

const (
	// mostKept is how many conditions, and how many taints, are kept of a node. Node problem detectors add a dozen to the kubelet's five.
	mostKept = 64
	// longestKept is how long a text is of which all is kept, in bytes: longer than the names and labels that Kubernetes admits.
	longestKept = 512
	// textsKept is how long those of all conditions, and of all taints, are together.
	textsKept = 4096
)

// cut returns the beginning of a text of which not all is kept: what a server or a kubelet makes up takes no more memory than what is real.
func cut[S ~string](s S) S {
	if len(s) <= longestKept {
		return s
	}
	return S(strings.Clone(string(s[:longestKept])))
}

// firstOf are the first of items, as slim makes them, whose texts are together as long as may be kept.
func firstOf[T any](items []T, slim func(*T) (length int)) []T {
	if len(items) == 0 {
		return nil
	}
	kept, left := make([]T, min(len(items), mostKept)), textsKept
	for i := range kept {
		kept[i] = items[i]
		if left -= slim(&kept[i]); left < 0 {
			clear(kept[i:])
			return kept[:i]
		}
	}
	return kept
}

func slimCondition(cond *corev1.NodeCondition) int {
	*cond = corev1.NodeCondition{
		Type: Interned(cut(cond.Type)), Status: Interned(cut(cond.Status)), Reason: Interned(cut(cond.Reason)),
		LastTransitionTime: cond.LastTransitionTime,
	}
	return len(cond.Type) + len(cond.Status) + len(cond.Reason)
}

func slimTaint(taint *corev1.Taint) int {
	*taint = corev1.Taint{Key: cut(taint.Key), Value: cut(taint.Value), Effect: cut(taint.Effect), TimeAdded: taint.TimeAdded}
	return len(taint.Key) + len(taint.Value) + len(taint.Effect)
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
			before, after := e.ObjectOld, e.ObjectNew
			return before.UID != after.UID || before.Spec.ProviderID != after.Spec.ProviderID ||
				!sameConditions(before.Status.Conditions, after.Status.Conditions) ||
				place.SignalTaints(before) != place.SignalTaints(after)
		},
		GenericFunc: func(event.TypedGenericEvent[*corev1.Node]) bool { return false },
	}
}

func sameConditions(a, b []corev1.NodeCondition) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.NodeCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.LastTransitionTime.Equal(&b.LastTransitionTime)
	})
}
