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

// SlimNode is the transform of node caches. It keeps the fields that controllers read (name, UID, zone, roles, provider ID, taints, the
// annotation fenced-by, boot ID, and of each condition its type, status, reason and last transition). A node of 8 KiB becomes one of 1 KiB.
// It drops heartbeat times, so a heartbeat changes only the resourceVersion.
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

// keptLabels are the labels of a node that SlimNode keeps.
var keptLabels = append(controlplane.RoleLabels(), corev1.LabelTopologyZone)

const (
	// mostKept limits the conditions, and the taints, of a node. Node problem detectors add a dozen conditions to the kubelet's five.
	mostKept = 64
	// longestKept limits the length of a text in bytes. Names and labels in Kubernetes are shorter.
	longestKept = 512
	// textsKept limits the length of the texts of all conditions together, and of all taints.
	textsKept = 4096
)

// cut truncates a text that is too long, so that a hostile server or kubelet cannot fill the memory.
func cut[S ~string](s S) S {
	if len(s) <= longestKept {
		return s
	}
	return S(strings.Clone(string(s[:longestKept])))
}

// firstOf applies slim to items, and returns the first ones, up to the limits mostKept and textsKept. slim returns the length of the texts.
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

// SlimSecret is the transform of the cache of Secrets. It drops the data of Secrets that are not kubeconfigs.
func SlimSecret(obj any) (any, error) {
	if s, ok := obj.(*corev1.Secret); ok {
		s.ManagedFields, s.Annotations = nil, nil
		if !strings.HasSuffix(s.Name, "-"+string(secret.Kubeconfig)) {
			s.Data = nil
		}
	}
	return obj, nil
}

// Interned returns the copy of s that all caches share, because thousands of objects have the same few texts in their conditions.
func Interned[S ~string](s S) S { return S(unique.Make(string(s)).Value()) }

// NodeChanges passes only events that may change the verdict on a node. A heartbeat does not.
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
