package hosts

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// What the campaigns rest on must not be kinder than the fake client of controller-runtime.
func TestTheServerIsAsStrictAsTheFakeClient(t *testing.T) {
	machine := func(edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", Labels: map[string]string{"a": "b"}}}
		for _, edit := range edits {
			edit(m)
		}
		return m
	}
	raw := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }
	type call func(context.Context, client.Client) error
	for name, calls := range map[string][]call{
		"an object is created once":      {func(ctx context.Context, c client.Client) error { return c.Create(ctx, machine()) }},
		"what is not there is not found": {func(ctx context.Context, c client.Client) error { return c.Get(ctx, theHost, machine()) }},
		"what is not there is not patched": {func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, machine(func(m *clusterv1.Machine) { m.Name = "other" }), raw(`{"metadata":{"labels":{"a":"c"}}}`))
		}},
		"a merge patch adds, changes and removes": {func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, machine(), raw(`{"metadata":{"labels":{"a":null,"b":"c"},"annotations":{"x":"y"}},"spec":{"clusterName":"c1"}}`))
		}},
		"a patch of an old version is refused": {func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, machine(), raw(`{"metadata":{"resourceVersion":"7","labels":{"a":"c"}}}`))
		}},
		"a patch leaves the status as it is": {func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, machine(), raw(`{"metadata":{"labels":{"a":"c"}},"status":{"phase":"Running"}}`))
		}},
		"a patch of the status changes nothing else": {func(ctx context.Context, c client.Client) error {
			return c.Status().Patch(ctx, machine(), raw(`{"metadata":{"labels":{"a":"c"}},"status":{"phase":"Running"}}`))
		}},
		"an update of an old version is refused": {func(ctx context.Context, c client.Client) error {
			return c.Update(ctx, machine(func(m *clusterv1.Machine) { m.ResourceVersion = "7" }))
		}},
		"a finalizer keeps what is deleted": {
			func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, machine(), raw(`{"metadata":{"finalizers":["test.example.org/keep"]}}`))
			},
			func(ctx context.Context, c client.Client) error { return c.Delete(ctx, machine()) },
		},
		"what is to be deleted goes with its last finalizer": {
			func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, machine(), raw(`{"metadata":{"finalizers":["test.example.org/keep"]}}`))
			},
			func(ctx context.Context, c client.Client) error { return c.Delete(ctx, machine()) },
			func(ctx context.Context, c client.Client) error {
				return c.Patch(ctx, machine(), raw(`{"metadata":{"finalizers":null}}`))
			},
		},
		"what is gone is not deleted again": {
			func(ctx context.Context, c client.Client) error { return c.Delete(ctx, machine()) },
			func(ctx context.Context, c client.Client) error { return c.Delete(ctx, machine()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var is [2]string
			for i, c := range []client.Client{
				fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine()).WithStatusSubresource(machine()).Build(), newServer(scheme, mapper, machine()),
			} {
				for _, call := range calls {
					is[i] += string(apierrors.ReasonForError(call(t.Context(), c))) + ";"
				}
				m := &clusterv1.Machine{}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine()), m); err != nil {
					is[i] += string(apierrors.ReasonForError(err))
					continue
				}
				m.ResourceVersion, m.TypeMeta = "", metav1.TypeMeta{}
				if m.DeletionTimestamp != nil {
					m.DeletionTimestamp = &metav1.Time{Time: noon}
				}
				content, err := json.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				is[i] += string(content)
			}
			if is[0] != is[1] {
				t.Errorf("the fake client: %s\nthe server: %s", is[0], is[1])
			}
		})
	}
}

// The fake client heeds no UID.
func TestTheServerChecksUIDs(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "one"}}
	other := types.UID("other")
	s := newServer(scheme, mapper, node)
	for name, err := range map[string]error{
		"delete": s.Delete(t.Context(), node, client.Preconditions{UID: &other}),
		"patch":  s.Patch(t.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"uid":"other"}}`))),
	} {
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: %v, want a conflict", name, err)
		}
	}
	if err := s.Delete(t.Context(), node, client.Preconditions{UID: &node.UID}); err != nil {
		t.Error(err)
	}
}
