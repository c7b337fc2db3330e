package remediation

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func names(all []OfKind) []string {
	var found []string
	for _, rem := range all {
		found = append(found, rem.Kind.Kind+" "+client.ObjectKeyFromObject(rem).String())
	}
	return found
}

func TestRemediationsAreFoundByTheirMachineAndByTheirHost(t *testing.T) {
	owned := func(namespace, name string, uid, machine types.UID, remembers string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: machine},
		}}
		if remembers != "" {
			m.Annotations = map[string]string{mendv1.PowerCycleAnnotation: remembers}
		}
		return m
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(bmov1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), infrav1.AddToScheme(scheme), mendv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&infrav1.Metal3Remediation{ObjectMeta: owned("ns", "a", "a-uid", "m-uid", "")},
		&mendv1.HostRemediation{ObjectMeta: owned("ns", "b", "b-uid", "m-uid", `{"state":"PoweringOff","uid":"b-before"}`)},
		&mendv1.HostRemediation{ObjectMeta: owned("ns", "former", "c-uid", "another-uid", "")},
		&mendv1.HostRemediation{ObjectMeta: owned("elsewhere", "d", "d-uid", "m-uid", "")},
	).Build()
	kinds := []Kind{Metal3, Own}

	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "m-uid"}}
	existing, err := List(t.Context(), c, kinds, "ns")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Metal3Remediation ns/a", "HostRemediation ns/b"}, names(existing.Of(m))); diff != "" {
		t.Errorf("of the machine (-want +got):\n%s", diff)
	}

	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", Annotations: map[string]string{
		infrav1.PowerOffAnnotationPrefix + "b-before": "", infrav1.PowerOffAnnotationPrefix + "gone": "", mendv1.RebootedForAnnotation: "a-uid/1", "reboot.metal3.io/by-hand": "", infrav1.PowerOffAnnotationPrefix + "d-uid": "",
	}}}
	known, unknown := existing.OnHost(h)
	if diff := cmp.Diff([]string{"Metal3Remediation ns/a", "HostRemediation ns/b"}, names(known)); diff != "" {
		t.Errorf("on the host (-want +got):\n%s", diff)
	}
	if want := []types.UID{"d-uid", "gone"}; !slices.Equal(unknown, want) {
		t.Errorf("%v act on it and are not known, want %v", unknown, want)
	}
	var none client.Reader = fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	if _, err := List(t.Context(), none, kinds, "ns"); err == nil {
		t.Error("what cannot be listed is no error")
	}
}
