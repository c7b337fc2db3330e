package snapshot

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func merged(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

func TestWhatIsCreatedIsAsAnAPIServerMakesIt(t *testing.T) {
	w, at := aWorld(t)
	w.Install(mendv1.GroupVersion.WithKind("HostRemediation"), "hostremediations", true)
	at.SetTime(noon.Add(time.Hour + time.Nanosecond))
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
	rem.Status.Message = "said too early"
	if err := w.Client().Create(t.Context(), rem); err != nil {
		t.Fatal(err)
	}
	want := metav1.ObjectMeta{
		Namespace: "ns", Name: "m", UID: rem.UID, ResourceVersion: rem.ResourceVersion, Generation: 1,
		CreationTimestamp: metav1.NewTime(noon.Add(time.Hour)),
	}
	if diff := cmp.Diff(want, rem.ObjectMeta); diff != "" || rem.UID == "" || rem.ResourceVersion == "" || rem.Status.Message != "" {
		t.Errorf("created with status %q (-want +got):\n%s", rem.Status.Message, diff)
	}
	again := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
	if err := w.Client().Create(t.Context(), again); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created once more: %v", err)
	}
	for name, o := range map[string]client.Object{
		"with a version": &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", ResourceVersion: "1"}},
		"without a name": &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}},
	} {
		if err := w.Client().Create(t.Context(), o); err == nil {
			t.Errorf("one was created %s", name)
		}
	}
	generated := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "g-"}}
	if err := w.Client().Create(t.Context(), generated); err != nil || len(generated.Name) < 4 {
		t.Errorf("with a generated name %q: %v", generated.Name, err)
	}
}

func TestAKindWithoutATypeIsWrittenAsATree(t *testing.T) {
	w, _ := aWorld(t)
	w.Install(poisonKind, "poisons", true)
	req := whole(poisonKind)
	req.SetNamespace("ns")
	req.SetName("m")
	req.Object["spec"] = map[string]any{"dose": int64(3)}
	if err := w.Client().Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b := bare(poisonKind)
	b.Namespace, b.Name = "ns", "m"
	if err := w.Client().Patch(t.Context(), b, merged(`{"metadata":{"annotations":{"a":"b"}}}`)); err != nil {
		t.Fatal(err)
	}
	is := whole(poisonKind)
	if err := w.Client().Get(t.Context(), key("m"), is); err != nil {
		t.Fatal(err)
	}
	dose, _, _ := unstructured.NestedInt64(is.Object, "spec", "dose")
	if dose != 3 || is.GetAnnotations()["a"] != "b" || is.GetGeneration() != 1 || b.Annotations["a"] != "b" {
		t.Errorf("it is %v, the writer has %v", is.Object, b)
	}
}

func TestAWriteChangesItsPartAlone(t *testing.T) {
	both := `{"metadata":{"labels":{"new":"1"}},"spec":{"providerID":"p://1"},"status":{"phase":"Running"}}`
	for name, tc := range map[string]struct {
		write      func(c client.Client, m *clusterv1.Machine) error
		main       bool // metadata and spec were written
		status     bool
		generation int64
	}{
		"a patch": {func(c client.Client, m *clusterv1.Machine) error { return c.Patch(t.Context(), m, merged(both)) }, true, false, 3},
		"a patch of the status": {func(c client.Client, m *clusterv1.Machine) error {
			return c.Status().Patch(t.Context(), m, merged(both))
		}, false, true, 2},
		"an update": {func(c client.Client, m *clusterv1.Machine) error {
			m.Labels["new"], m.Spec.ProviderID, m.Status.Phase = "1", "p://1", "Running"
			return c.Update(t.Context(), m)
		}, true, false, 3},
		"an update of the status": {func(c client.Client, m *clusterv1.Machine) error {
			m.Labels["new"], m.Spec.ProviderID, m.Status.Phase = "1", "p://1", "Running"
			return c.Status().Update(t.Context(), m)
		}, false, true, 2},
		"a patch that is made from two versions": {func(c client.Client, m *clusterv1.Machine) error {
			was := m.DeepCopy()
			m.Labels["new"], m.Spec.ProviderID, m.Status.Phase = "1", "p://1", "Running"
			return c.Patch(t.Context(), m, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
		}, true, false, 3},
		"a JSON patch": {func(c client.Client, m *clusterv1.Machine) error {
			return c.Patch(t.Context(), m, client.RawPatch(types.JSONPatchType,
				[]byte(`[{"op":"add","path":"/metadata/labels/new","value":"1"},{"op":"add","path":"/spec/providerID","value":"p://1"}]`)))
		}, true, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := aWorld(t, aMachine("m"))
			m := get(t, w, "m")
			if err := tc.write(w.Client(), m); err != nil {
				t.Fatal(err)
			}
			is := get(t, w, "m")
			if diff := cmp.Diff(is, m); diff != "" {
				t.Errorf("the writer has not what was saved (-saved +had):\n%s", diff)
			}
			if got := is.Labels["new"] == "1" && is.Spec.ProviderID == "p://1"; got != tc.main {
				t.Errorf("metadata and spec were written: %t, want %t", got, tc.main)
			}
			if got := is.Status.Phase == "Running"; got != tc.status {
				t.Errorf("the status was written: %t, want %t", got, tc.status)
			}
			if is.Generation != tc.generation || is.Status.NodeRef.Name != "node-of-m" || is.UID != "uid-of-m" {
				t.Errorf("generation %d, want %d; the rest is %+v", is.Generation, tc.generation, is)
			}
			before, _ := strconv.Atoi("7")
			if after, err := strconv.Atoi(is.ResourceVersion); err != nil || after <= before {
				t.Errorf("version %s after 7", is.ResourceVersion)
			}
		})
	}
}

func TestAWriteThatChangesNothingIsNone(t *testing.T) {
	w, _ := aWorld(t, aMachine("m"))
	before := w.Version()
	for _, patch := range []string{`{}`, `{"metadata":{"labels":{"pool":"a"}}}`, `{"spec":{"clusterName":"c1"}}`, `{"metadata":{"annotations":{"no":null}}}`} {
		if err := w.Client().Patch(t.Context(), aMachine("m"), merged(patch)); err != nil {
			t.Fatal(err)
		}
	}
	if w.Version() != before || get(t, w, "m").ResourceVersion != "7" {
		t.Errorf("the version went from %d to %d", before, w.Version())
	}
}

func TestAWriteIsRefused(t *testing.T) {
	w, _ := aWorld(t, aMachine("m"), aMachine("leaving", finalized, func(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: noon} }))
	c := w.Client()
	stale, unseen := aMachine("m"), aMachine("m")
	stale.ResourceVersion, unseen.ResourceVersion = "6", ""
	held := get(t, w, "leaving")
	held.Finalizers = append(held.Finalizers, "new/one")
	ofUID := func(uid types.UID) client.Preconditions { return client.Preconditions{UID: ptr.To(uid)} }
	for name, tc := range map[string]struct {
		err  error
		want func(error) bool
	}{
		"a patch on top of another version": {
			c.Patch(t.Context(), aMachine("m"), merged(`{"metadata":{"resourceVersion":"6","labels":{"a":"b"}}}`)), apierrors.IsConflict,
		},
		"the same of the status": {
			c.Status().Patch(t.Context(), aMachine("m"), merged(`{"metadata":{"resourceVersion":"6"},"status":{"phase":"x"}}`)), apierrors.IsConflict,
		},
		"a patch of another object of the name":  {c.Patch(t.Context(), aMachine("m"), merged(`{"metadata":{"uid":"another"}}`)), apierrors.IsConflict},
		"an update on top of another version":    {c.Update(t.Context(), stale), apierrors.IsConflict},
		"an update that does not say which":      {c.Update(t.Context(), unseen), apierrors.IsInvalid},
		"a deletion of another object":           {c.Delete(t.Context(), aMachine("m"), ofUID("another")), apierrors.IsConflict},
		"a patch of what is not there":           {c.Patch(t.Context(), aMachine("x"), merged(`{}`)), apierrors.IsNotFound},
		"a deletion of what is not there":        {c.Delete(t.Context(), aMachine("x")), apierrors.IsNotFound},
		"a finalizer on what is being deleted":   {c.Update(t.Context(), held), apierrors.IsInvalid},
		"what is no patch":                       {c.Patch(t.Context(), aMachine("m"), merged(`[`)), apierrors.IsBadRequest},
		"a dry run":                              {c.Delete(t.Context(), aMachine("m"), client.DryRunAll), func(err error) bool { return errors.Is(err, errDryRun) }},
		"a kind of patch that nobody makes here": {c.Patch(t.Context(), aMachine("m"), client.RawPatch(types.StrategicMergePatchType, []byte(`{}`))), func(err error) bool { return err != nil }},
		"a create in a read-only world":          {w.ReadOnly().Create(t.Context(), aMachine("n")), isReadOnly},
		"an update in a read-only world":         {w.ReadOnly().Update(t.Context(), aMachine("m")), isReadOnly},
		"a patch in a read-only world":           {w.ReadOnly().Patch(t.Context(), aMachine("m"), merged(`{}`)), isReadOnly},
		"a status patch in a read-only world":    {w.ReadOnly().Status().Patch(t.Context(), aMachine("m"), merged(`{}`)), isReadOnly},
		"a status update in a read-only world":   {w.ReadOnly().Status().Update(t.Context(), aMachine("m")), isReadOnly},
		"a deletion in a read-only world":        {w.ReadOnly().Delete(t.Context(), aMachine("m")), isReadOnly},
		"a deletion of all in a read-only world": {w.ReadOnly().DeleteAllOf(t.Context(), aMachine("m")), isReadOnly},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.want(tc.err) {
				t.Errorf("the error is %v", tc.err)
			}
		})
	}
	if is := get(t, w, "m"); is.ResourceVersion != "7" {
		t.Errorf("what was refused was written all the same: %+v", is)
	}
}

func isReadOnly(err error) bool { return errors.Is(err, ErrReadOnly) }

func TestAFinalizerKeepsWhatIsDeleted(t *testing.T) {
	w, at := aWorld(t, aMachine("m", finalized), aMachine("free"))
	c := w.Client()
	if err := errors.Join(c.Delete(t.Context(), aMachine("m")), c.Delete(t.Context(), aMachine("free"))); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key("free"), &clusterv1.Machine{}); !apierrors.IsNotFound(err) {
		t.Errorf("what nobody holds is still there: %v", err)
	}
	is := get(t, w, "m")
	if is.DeletionTimestamp == nil || !is.DeletionTimestamp.Time.Equal(noon) || is.Generation != 3 {
		t.Errorf("what is held is being deleted since %v in generation %d", is.DeletionTimestamp, is.Generation)
	}
	at.SetTime(noon.Add(time.Minute))
	if err := c.Delete(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	if again := get(t, w, "m"); again.ResourceVersion != is.ResourceVersion || !again.DeletionTimestamp.Time.Equal(noon) {
		t.Errorf("deleted once more, it was changed: %+v", again.ObjectMeta)
	}
	if err := c.Patch(t.Context(), is, merged(`{"metadata":{"finalizers":null}}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key("m"), &clusterv1.Machine{}); !apierrors.IsNotFound(err) {
		t.Errorf("what nobody holds any more is still there: %v", err)
	}
}

func owned(by ...*clusterv1.Machine) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		for _, owner := range by {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Kind: "Machine", Name: owner.Name, UID: owner.UID})
		}
	}
}

func TestWhatNobodyOwnsAnyMoreIsCollected(t *testing.T) {
	one, other := aMachine("one"), aMachine("other")
	objs := []client.Object{one, other, aMachine("ofOne", owned(one)), aMachine("ofBoth", owned(one, other)),
		aMachine("held", owned(one), finalized), aMachine("ofOfOne", owned(aMachine("ofOne"))), aMachine("ofSomebody", owned(aMachine("unknown")))}
	exist := func(w *World) (names []string) {
		list := &clusterv1.MachineList{}
		if err := w.Client().List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names
	}
	w, _ := aWorld(t, objs...)
	if err := w.Client().Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"held", "ofBoth", "ofSomebody", "other"}, exist(w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if get(t, w, "held").DeletionTimestamp == nil {
		t.Error("what a finalizer holds is not being deleted")
	}
	if refs := get(t, w, "ofBoth").OwnerReferences; len(refs) != 1 || refs[0].Name != "other" {
		t.Errorf("what has another owner is owned by %v", refs)
	}
	w, _ = aWorld(t, objs...)
	if err := w.Client().Delete(t.Context(), one, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	if got := exist(w); len(got) != len(objs)-1 || len(get(t, w, "ofOne").OwnerReferences) != 0 {
		t.Errorf("orphans are left alone, and are %v", got)
	}
}

func TestDeletingAllOfAKind(t *testing.T) {
	one := aMachine("one")
	w, _ := aWorld(t, one, aMachine("of-one", owned(one)), aMachine("b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" }))
	if err := w.Client().DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace("ns"), client.MatchingLabels{"pool": "a"}); err != nil {
		t.Fatal(err)
	}
	list := &clusterv1.MachineList{}
	if err := w.Client().List(t.Context(), list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("left are %v (%v)", list.Items, err)
	}
}

func TestALeaseIsTakenAndGivenBack(t *testing.T) {
	w, _ := aWorld(t)
	c := w.Client()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "node-n"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("us")}}
	if err := c.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	theirs := lease.DeepCopy()
	lease.Spec.HolderIdentity = ptr.To("us, still")
	if err := c.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), theirs); !apierrors.IsConflict(err) {
		t.Errorf("who was slower is told %v", err)
	}
	precondition := client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}
	if err := c.Delete(t.Context(), lease, precondition); err != nil || lease.Generation != 0 {
		t.Errorf("given back in generation %d: %v", lease.Generation, err)
	}
}

func TestOfMetadataAloneMetadataIsWritten(t *testing.T) {
	o := bare(mendv1.GroupVersion.WithKind("HostRemediation"))
	o.Namespace, o.Name = "ns", "m"
	w, _ := aWorld(t, o)
	if err := w.Client().Patch(t.Context(), o, merged(`{"metadata":{"annotations":{"a":"b"}}}`)); err != nil || o.Annotations["a"] != "b" {
		t.Errorf("it is %+v (%v)", o, err)
	}
	err := w.Client().Get(t.Context(), key("m"), &mendv1.HostRemediation{})
	if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		t.Errorf("read as what is not known of it: %v", err)
	}
}
