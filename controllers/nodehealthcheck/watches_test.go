package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestWhichChangesOfANodeAreLookedAt(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"C80: none": {func(*corev1.Node) {}, false},
		"C80, seed 2.2: the status of a condition": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"C80: another condition": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "DiskBroken"})
		}, true},
		"C80: a label more": {func(n *corev1.Node) { n.Labels["pool"] = "workers" }, true},
		"C80: the confirmation that it is healthy": {
			func(n *corev1.Node) { n.Annotations = map[string]string{nhcv1.ConfirmedHealthyAnnotation: ""} }, true,
		},
		"that it is being deleted": {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: epoch} }, true},
		"the taint of a drain":     {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "medik8s.io/drain"}} }, true},
		"C80: a heartbeat":         {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(epoch) }, false},
		"C80: what it runs":        {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}} }, false},
		"unlike medik8s: a condition that turned and turned back": {
			func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(epoch) }, true,
		},
		"unlike medik8s: a node that has come for another one of its name": {func(n *corev1.Node) { n.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := node("n", nil), node("n", nil)
			tc.change(is)
			must.Is(t, tc.want, nodeChanges().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: is}), "looked at:")
		})
	}
}

// medik8s does not reconcile when a node is created.
func TestNodesThatComeAndGoAreLookedAt(t *testing.T) {
	n := node("n", nil)
	if !nodeChanges().Create(event.TypedCreateEvent[*corev1.Node]{Object: n}) {
		t.Error("a node that comes is not")
	}
	if !nodeChanges().Delete(event.TypedDeleteEvent[*corev1.Node]{Object: n}) {
		t.Error("C80: a node that goes is not")
	}
}

// ofPool returns a check for one pool of nodes; lists are the nodes in its status.
func ofPool(name, pool string, lists ...string) *nhcv1.NodeHealthCheck {
	c := check(name)
	c.Spec.Selector.MatchLabels = map[string]string{"pool": pool}
	for _, n := range lists {
		c.Status.UnhealthyNodes = append(c.Status.UnhealthyNodes, nhcv1.UnhealthyNode{Name: n})
	}
	return c
}

func TestWhichChecksANodeConcerns(t *testing.T) {
	for name, tc := range map[string]struct {
		node   *corev1.Node
		checks []client.Object
		want   []string
	}{
		"C81: there is none":                                  {node("n", map[string]string{"pool": "a"}), nil, nil},
		"C81: the one that selects it":                        {node("n", map[string]string{"pool": "a"}), []client.Object{ofPool("one", "a")}, []string{"one"}},
		"C81: the one that does not":                          {node("n", map[string]string{"pool": "b"}), []client.Object{ofPool("one", "a")}, nil},
		"C81: one of two":                                     {node("n", map[string]string{"pool": "b"}), []client.Object{ofPool("one", "a"), ofPool("two", "b")}, []string{"two"}},
		"C81: both of two":                                    {node("n", map[string]string{"pool": "a"}), []client.Object{ofPool("one", "a"), check("two")}, []string{"one", "two"}},
		"W9: one that has listed it, whatever it selects now": {node("n", map[string]string{"pool": "b"}), []client.Object{ofPool("one", "a", "n")}, []string{"one"}},
		"W3: all, if it is of the control plane":              {member("n"), []client.Object{ofPool("one", "a"), ofPool("two", "b")}, []string{"one", "two"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, tc.checks...)
			if diff := cmp.Diff(tc.want, namesOf(k.r.checksOfNode(t.Context(), tc.node)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("checks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhichChecksARequestOrATemplateConcerns(t *testing.T) {
	about := func(node string, owner *nhcv1.NodeHealthCheck, labels map[string]string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(schema.GroupVersionKind{Group: remediatorGroup, Version: "v1", Kind: "Reboot"})
		obj.SetName(node)
		obj.SetLabels(labels)
		if owner != nil {
			obj.SetOwnerReferences([]metav1.OwnerReference{ownerOf(owner)})
		}
		return obj
	}
	marked := func(obj *unstructured.Unstructured, name string, uid types.UID) *unstructured.Unstructured {
		obj.SetAnnotations(map[string]string{mendv1.MadeByNodeCheckAnnotation: name, nhcv1.NodeNameAnnotation: "n"})
		obj.SetLabels(map[string]string{mendv1.MadeByNodeCheckUIDLabel: string(uid)})
		return obj
	}
	one, two := ofPool("one", "a"), ofPool("two", "b", "w")
	for name, tc := range map[string]struct {
		obj  client.Object
		want []string
	}{
		"seed 2.2: a request concerns the check that owns it":  {about("n", one, nil), []string{"one"}},
		"one that is not owned by it any more, too":            {marked(about("n", nil, nil), "one", one.UID), []string{"one"}},
		"the one of the same name that comes after it":         {marked(about("n", nil, nil), "one", "another"), []string{"one"}},
		"and the one that is gone, which has left it behind":   {marked(about("n", nil, nil), "gone", "another"), []string{"gone"}},
		"W24: somebody else's the one that waits for it":       {about("w", nil, nil), []string{"two"}},
		"somebody else's for a node that no check lists, none": {about("n", nil, nil), nil},
		"W3: one for a node of the control plane concerns all": {about("n", one, map[string]string{nhcv1.ControlPlaneLabel: ""}), []string{"one", "two"}},
		"seed 2.2: a template concerns all":                    {template("Reboot", "reboot", false), []string{"one", "two"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, one.DeepCopy(), two.DeepCopy())
			if diff := cmp.Diff(tc.want, namesOf(k.r.checksOfRequest(t.Context(), tc.obj)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("checks (-want +got):\n%s", diff)
			}
		})
	}
}

func namesOf(requests []reconcile.Request) []string {
	var names []string
	for _, r := range requests {
		names = append(names, r.Name)
	}
	return names
}

// turn gives a node's Ready condition a status, with a transition now.
func (k *fixture) turn(node string, ready corev1.ConditionStatus) {
	k.t.Helper()
	n := k.node(node)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(k.clock.Now())}}
	must.Do(k.t, k.client.Status().Update(k.t.Context(), n))
}

// label sets labels of a node, and removes labels with the value "-".
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
	must.Do(k.t, k.client.Update(k.t.Context(), obj))
}

// answers sets a condition of each request of a kind, as its remediator would.
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
	must.Do(k.t, unstructured.SetNestedSlice(obj.Object, said, "status", "conditions"))
	k.update(obj)
}

// makes creates obj, or replaces an object of the same name.
func (k *fixture) makes(obj *unstructured.Unstructured) {
	k.t.Helper()
	must.Do(k.t, client.IgnoreNotFound(k.client.Delete(k.t.Context(), obj.DeepCopy())))
	k.create(obj)
}
