package nodehealthcheck

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turn gives a node a Ready condition of that status since now.
func (k *fixture) turn(node string, ready corev1.ConditionStatus) {
	k.t.Helper()
	n := k.node(node)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(k.clock.Now())}}
	if err := k.client.Status().Update(k.t.Context(), n); err != nil {
		k.t.Fatal(err)
	}
}

// label sets labels of a node; one with the value "-" is removed.
func (k *fixture) label(node string, labels map[string]string) {
	k.t.Helper()
	n := k.node(node)
	for key, value := range labels {
		if value == "-" {
			delete(n.Labels, key)
			continue
		}
		metav1.SetMetaDataLabel(&n.ObjectMeta, key, value)
	}
	k.update(n)
}

func (k *fixture) update(obj client.Object) {
	k.t.Helper()
	fails := k.fails
	k.fails = nil
	defer func() { k.fails = fails }()
	if err := k.client.Update(k.t.Context(), obj); err != nil {
		k.t.Fatal(err)
	}
}

// answers makes the remediator of every request of that kind say something.
func (k *fixture) answers(kind, condition, status string) {
	k.t.Helper()
	for _, obj := range k.objects() {
		if obj.GetKind() == kind {
			k.answer(obj, condition, status)
		}
	}
}

func (k *fixture) answer(obj *unstructured.Unstructured, condition, status string) {
	k.t.Helper()
	said := []any{map[string]any{"type": condition, "status": status, "lastTransitionTime": k.clock.Now().UTC().Format(time.RFC3339)}}
	if err := unstructured.SetNestedSlice(obj.Object, said, "status", "conditions"); err != nil {
		k.t.Fatal(err)
	}
	k.update(obj)
}

// pauses sets the pause requests of the check.
func (k *fixture) pauses(requests ...string) {
	k.t.Helper()
	c := k.check("nhc")
	c.Spec.PauseRequests = requests
	k.update(c)
}

// makes creates obj, or replaces the one of its name.
func (k *fixture) makes(obj *unstructured.Unstructured) {
	k.t.Helper()
	if err := client.IgnoreNotFound(k.client.Delete(k.t.Context(), obj.DeepCopy())); err != nil {
		k.t.Fatal(err)
	}
	k.create(obj)
}
