package hostremediation

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func names(all []Named) []string {
	var found []string
	for _, n := range all {
		found = append(found, n.Kind.Kind+" "+n.Key.String())
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
	of, err := Of(t.Context(), c, kinds, m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Metal3Remediation ns/a", "HostRemediation ns/b"}, names(of)); diff != "" {
		t.Errorf("of the machine (-want +got):\n%s", diff)
	}

	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", Annotations: map[string]string{
		holdOff + "b-before": "", holdOff + "gone": "", mendv1.RebootedForAnnotation: "a-uid/1", "reboot.metal3.io/by-hand": "", holdOff + "d-uid": "",
	}}}
	holding, unknown, err := Holding(t.Context(), c, kinds, h)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Metal3Remediation ns/a", "HostRemediation ns/b"}, names(holding)); diff != "" {
		t.Errorf("holding the host (-want +got):\n%s", diff)
	}
	if want := []types.UID{"d-uid", "gone"}; !slices.Equal(unknown, want) {
		t.Errorf("%v hold it and are not known, want %v", unknown, want)
	}
	var none client.Reader = fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	if _, err := Of(t.Context(), none, kinds, m); err == nil {
		t.Error("what cannot be listed is no error")
	}
}

// H-11: 0 retries can be asked for where the wire has room for that, and no number makes anybody wait for ever.
func TestWhatAStrategyAsksFor(t *testing.T) {
	metal3Of := func(retries, seconds int32) Object {
		return metal3{&infrav1.Metal3Remediation{Spec: infrav1.Metal3RemediationSpec{
			Strategy: &infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: retries, TimeoutSeconds: seconds},
		}}}
	}
	ownOf := func(s *mendv1.HostRemediationStrategy) Object {
		return own{&mendv1.HostRemediation{Spec: mendv1.HostRemediationSpec{Strategy: s}}}
	}
	for name, row := range map[string]struct {
		of       Object
		attempts int
		timeout  time.Duration
	}{
		"a HostRemediation that says nothing":             {ownOf(&mendv1.HostRemediationStrategy{}), 2, 10 * time.Minute},
		"no retry":                                        {ownOf(&mendv1.HostRemediationStrategy{RetryLimit: ptr.To[int32](0)}), 1, 10 * time.Minute},
		"a strategy that is not there":                    {ownOf(nil), 2, 10 * time.Minute},
		"beyond the limits, stored before there were any": {ownOf(&mendv1.HostRemediationStrategy{RetryLimit: ptr.To[int32](1 << 30), TimeoutSeconds: 1 << 30}), 101, 24 * time.Hour},
		"a Metal3Remediation that says nothing":           {metal3Of(0, 0), 2, 10 * time.Minute},
		"as it likes":                                     {metal3Of(3, 300), 4, 5 * time.Minute},
		"for 68 years":                                    {metal3Of(1<<31-1, 1<<31-1), 101, 24 * time.Hour},
	} {
		if p := policyOf(row.of.Strategy()); p.Attempts() != row.attempts || p.Timeout != row.timeout {
			t.Errorf("%s: %d attempts of %s, want %d of %s", name, p.Attempts(), p.Timeout, row.attempts, row.timeout)
		}
	}
}
