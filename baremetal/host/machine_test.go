package host

import (
	"context"
	"errors"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// refusing forbids to read objects of a kind.
func refusing(kind string) interceptor.Funcs {
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
		if gvk, err := c.GroupVersionKindFor(obj); err != nil || gvk.Kind == kind {
			return errors.Join(err, apierrors.NewForbidden(corev1.Resource(kind), key.Name, nil))
		}
		return c.Get(ctx, key, obj, o...)
	}}
}

func TestMachineOf(t *testing.T) {
	owned := func(uid string) *unstructured.Unstructured {
		between := aMetal3Machine("ns/host-1")
		between.SetOwnerReferences([]metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Machine", Name: "m-2", UID: "other-uid"},
			{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "Machine", Name: "m-1", UID: "machine-uid"},
		})
		if uid != "" {
			between.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m-1", UID: "former-uid"}})
		}
		return between
	}
	elsewhere := func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.Name = "m3m-2" }
	other := func(m *clusterv1.Machine) { m.Name, m.UID = "m-2", "other-uid" }
	for name, tc := range map[string]struct {
		change  func(*bmov1alpha1.BareMetalHost)
		objects []client.Object
		fails   interceptor.Funcs
		want    string
	}{
		"the owner of the Metal3Machine that it names":          {objects: []client.Object{owned(""), aMachine(elsewhere)}, want: "m-1"},
		"or whose infrastructure that is":                       {objects: []client.Object{aMetal3Machine("ns/host-1"), aMachine(other), aMachine(elsewhere)}, want: "m-2"},
		"also if that does not exist":                           {objects: []client.Object{aMachine()}, want: "m-1"},
		"also if it must not be read":                           {objects: []client.Object{owned(""), aMachine()}, fails: refusing("Metal3Machine"), want: "m-1"},
		"that of the Metal3Machine of its HostClaim":            {change: claimed, objects: []client.Object{owned(""), aMachine(elsewhere), aHostClaim("m3m-1")}, want: "m-1"},
		"none, if its HostClaim is gone":                        {change: claimed, objects: []client.Object{owned(""), aMachine()}},
		"but not a machine that has the name of the former one": {objects: []client.Object{owned("former-uid"), aMachine(elsewhere)}},
		"none, of a host without a consumer":                    {change: func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = nil }, objects: []client.Object{aMachine()}},
		"none, of one that another kind of consumer has":        {change: func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef.Kind = "Cluster" }, objects: []client.Object{aMachine()}},
		"none, if what it names is in another namespace":        {change: func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef.Namespace = "other" }, objects: []client.Object{aMachine()}},
		"none, if no machine is built on what it names either":  {objects: []client.Object{aMetal3Machine("ns/host-1"), aMachine(elsewhere)}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change == nil {
				tc.change = func(*bmov1alpha1.BareMetalHost) {}
			}
			m, err := hosts(t, tc.fails, tc.objects...).MachineOf(t.Context(), aHost(tc.change))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if m != nil {
				got = m.Name
			}
			if got != tc.want {
				t.Errorf("it is that of %q, want %q", got, tc.want)
			}
		})
	}
	if _, err := hosts(t, refusing("Machine"), owned(""), aMachine()).MachineOf(t.Context(), aHost()); !apierrors.IsForbidden(err) {
		t.Errorf("a machine that must not be read is %v, want that it is said", err)
	}
}
