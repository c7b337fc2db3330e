package state

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

var (
	noon        = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	requestKind = schema.GroupVersionKind{Group: "remediators.example.org", Version: "v1", Kind: "Reboot"}
)

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "ns", Name: name} }

func aMachine(name string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"pool": "a"}}}
}

func aRequest(name string, owners ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(requestKind)
	u.SetNamespace("ns")
	u.SetName(name)
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: owner, UID: types.UID(owner)})
	}
	u.SetOwnerReferences(refs)
	return u
}

func of(t *testing.T, objs ...client.Object) (*State, client.Client) {
	t.Helper()
	w := snapshot.New()
	w.Install(requestKind, "reboots", true)
	if err := w.Add(objs...); err != nil {
		t.Fatal(err)
	}
	s := New(w, clocktesting.NewFakePassiveClock(noon))
	c := s.Client()
	return s, c
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func gone(c client.Client, obj client.Object) bool {
	return apierrors.IsNotFound(c.Get(context.Background(), client.ObjectKeyFromObject(obj), obj))
}

func TestWhatIsTheSameChangesNothing(t *testing.T) {
	s, c := of(t, aMachine("m"))
	m := &clusterv1.Machine{}
	must(t, c.Get(t.Context(), key("m"), m), s.Put(m))
	if s.Changes() != 0 {
		t.Error("the same object counts as another")
	}
	m.Labels["pool"] = "b"
	must(t, s.Put(m), s.Of(key("c1")).Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}))
	if s.Changes() != 2 {
		t.Errorf("%d changes, want that of the machine and that of the node", s.Changes())
	}
}

func TestAFinalizerKeepsWhatIsDeleted(t *testing.T) {
	held := aMachine("m")
	held.Finalizers = []string{"somebody"}
	s, c := of(t, held)
	must(t, c.Delete(t.Context(), aMachine("m")))
	m := &clusterv1.Machine{}
	must(t, c.Get(t.Context(), key("m"), m))
	if m.DeletionTimestamp == nil || !m.DeletionTimestamp.Time.Equal(noon) {
		t.Errorf("it is being deleted since %v", m.DeletionTimestamp)
	}
	m.Finalizers = nil
	must(t, s.Put(m))
	if !gone(c, m) {
		t.Error("it is there although nothing holds it")
	}
}

func TestWhatHasNoOtherOwnerGoesWithItsOwner(t *testing.T) {
	_, c := of(t, aMachine("a"), aMachine("b"), aRequest("of-a", "a"), aRequest("of-both", "a", "b"), aRequest("of-none"))
	must(t, c.Delete(t.Context(), aMachine("a")))
	if !gone(c, aRequest("of-a")) || gone(c, aRequest("of-none")) {
		t.Error("what goes is not what a alone owned")
	}
	both := aRequest("of-both")
	if gone(c, both) || len(both.GetOwnerReferences()) != 1 || both.GetOwnerReferences()[0].UID != "b" {
		t.Errorf("what b owns too is owned by %v", both.GetOwnerReferences())
	}
}

func TestAPatchChangesItsFieldsAlone(t *testing.T) {
	_, c := of(t, aMachine("m"))
	was := aMachine("m")
	is := was.DeepCopy()
	is.Annotations, is.Status.Phase = map[string]string{"a": "b"}, "Running"
	must(t, c.Patch(t.Context(), is.DeepCopy(), client.MergeFrom(was)))
	if m := get(t, c); m.Annotations["a"] != "b" || m.Labels["pool"] != "a" || m.Status.Phase != "Running" {
		t.Errorf("it is %+v", m)
	}
	must(t, c.Status().Patch(t.Context(), was.DeepCopy(), client.MergeFrom(is)))
	if m := get(t, c); len(m.Annotations) != 0 || m.Status.Phase != "" {
		t.Errorf("reverted it is %+v", m)
	}
	if err := c.Patch(t.Context(), aMachine("other"), client.MergeFrom(was)); !apierrors.IsNotFound(err) {
		t.Errorf("one that is not there is changed: %v", err)
	}
}

func get(t *testing.T, c client.Client) *clusterv1.Machine {
	t.Helper()
	m := &clusterv1.Machine{}
	must(t, c.Get(t.Context(), key("m"), m))
	return m
}

func TestAKindWithoutATypeIsKeptAsATree(t *testing.T) {
	s, c := of(t)
	made := aRequest("r")
	made.Object["spec"] = map[string]any{"size": int64(3)}
	must(t, c.Create(t.Context(), made))
	if made.GetUID() == "" || !made.GetCreationTimestamp().Time.Equal(noon) {
		t.Errorf("it was made %v with the UID %q", made.GetCreationTimestamp(), made.GetUID())
	}
	if err := c.Create(t.Context(), aRequest("r")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("one of its name: %v", err)
	}
	must(t, c.Patch(t.Context(), aRequest("r"), client.MergeFrom(func() client.Object {
		was := aRequest("r")
		was.SetAnnotations(map[string]string{"a": "b"})
		return was
	}())))
	is := aRequest("r")
	must(t, c.Get(t.Context(), key("r"), is))
	if size, _, err := unstructured.NestedInt64(is.Object, "spec", "size"); err != nil || size != 3 {
		t.Errorf("its spec is %v (%v)", is.Object["spec"], err)
	}
	must(t, s.Delete(requestKind, key("r")))
	if !gone(c, aRequest("r")) {
		t.Error("it was deleted and is there")
	}
}

func TestALeaseIsTakenAndGivenBack(t *testing.T) {
	_, c := of(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}}
	lease.Spec.HolderIdentity = ptr.To("one")
	must(t, c.Create(t.Context(), lease))
	lease.Spec.HolderIdentity = ptr.To("other")
	must(t, c.Update(t.Context(), lease))
	is := &coordinationv1.Lease{}
	must(t, c.Get(t.Context(), key("l"), is))
	if *is.Spec.HolderIdentity != "other" {
		t.Errorf("its holder is %s", *is.Spec.HolderIdentity)
	}
	must(t, c.Delete(t.Context(), lease))
	if !gone(c, is) {
		t.Error("it was given back and is there")
	}
}

func TestANodeIsChangedInItsCluster(t *testing.T) {
	s, _ := of(t)
	in := s.Of(key("c1"))
	must(t, in.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}))
	c := in.Client()
	tainted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a"}}}}
	must(t, c.Patch(t.Context(), tainted, client.MergeFrom(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})))
	node := func(c client.Client) *corev1.Node {
		is := &corev1.Node{}
		if apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: "n"}, is)) {
			return nil
		}
		return is
	}
	if is := node(c); is == nil || len(is.Spec.Taints) != 1 {
		t.Errorf("in its cluster it is %+v", is)
	}
	if is := node(s.Client()); is != nil {
		t.Errorf("in the management cluster it is %+v", is)
	}
	kind := corev1.SchemeGroupVersion.WithKind("Node")
	must(t, in.Delete(kind, client.ObjectKey{Name: "n"}), in.Delete(kind, client.ObjectKey{Name: "n"}))
	if is := node(c); is != nil {
		t.Errorf("it was deleted, and is %+v", is)
	}
}
