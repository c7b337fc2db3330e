package remediation

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
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
	must.Do(t, err)
	must.Equal(t, []string{"Metal3Remediation ns/a", "HostRemediation ns/b"}, names(existing.Of(m)), "of the machine")

	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", Annotations: map[string]string{
		infrav1.PowerOffAnnotationPrefix + "b-before": "", infrav1.PowerOffAnnotationPrefix + "gone": "", mendv1.RebootedForAnnotation: "a-uid/1", "reboot.metal3.io/by-hand": "", infrav1.PowerOffAnnotationPrefix + "d-uid": "",
	}}}
	known, unknown := existing.OnHost(h)
	must.Equal(t, []string{"Metal3Remediation ns/a", "HostRemediation ns/b"}, names(known), "on the host")
	if want := []types.UID{"d-uid", "gone"}; !slices.Equal(unknown, want) {
		t.Errorf("%v act on it and are not known, want %v", unknown, want)
	}
	var none client.Reader = fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	if _, err := List(t.Context(), none, kinds, "ns"); err == nil {
		t.Error("what cannot be listed is no error")
	}
}

func TestTheKindsThatAreInstalledAreKnownAsFarAsTheirVersionIs(t *testing.T) {
	older := infrav1.GroupVersion.Group + "/v1beta1, Kind=Metal3Remediation"
	v1beta1 := schema.GroupVersion{Group: infrav1.GroupVersion.Group, Version: "v1beta1"}.WithKind("Metal3Remediation")
	for name, tc := range map[string]struct {
		served  []schema.GroupVersionKind
		want    []string
		foreign bool
	}{
		"none":                             {},
		"both":                             {served: []schema.GroupVersionKind{Metal3.GroupVersionKind, Own.GroupVersionKind}, want: []string{Metal3.String(), Own.String()}},
		"ours alone":                       {served: []schema.GroupVersionKind{Own.GroupVersionKind}, want: []string{Own.String()}},
		"CAPM3's in a version before ours": {served: []schema.GroupVersionKind{v1beta1}, want: []string{older}, foreign: true},
	} {
		mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{infrav1.GroupVersion, v1beta1.GroupVersion(), mendv1.GroupVersion})
		for _, kind := range tc.served {
			mapper.Add(kind, meta.RESTScopeNamespace)
		}
		kinds, err := InstalledKinds(mapper)
		must.Do(t, err)
		var got []string
		for _, kind := range kinds {
			got = append(got, kind.String())
			if (kind.New == nil) != tc.foreign {
				t.Errorf("%s: more than metadata is known: %t", name, kind.New != nil)
			}
		}
		must.List(t, tc.want, got, "%s:", name)
	}
}

// aRemediation returns a remediation with this record; without one if it is empty.
func aRemediation(uid types.UID, remembers string) Object {
	rem := Own.New()
	rem.SetUID(uid)
	rem.SetName(string(uid))
	if remembers != "" {
		rem.SetAnnotations(map[string]string{mendv1.PowerCycleAnnotation: remembers})
	}
	return rem
}

func TestWhatIsRememberedSurvivesAMove(t *testing.T) {
	rec, err := RecordOf(aRemediation("new", `{"state":"PoweringOff","attempt":2,"uid":"old","host":"h","node":"n"}`))
	must.Do(t, err)
	if by := rec.By(aRemediation("new", "")); by.UID != "new" || by.Before != "old" {
		t.Errorf("it is known as %+v, want new, and old before", by)
	}
	if by := rec.By(aRemediation("old", "")); by.Before != "" {
		t.Errorf("one that was not moved was known as %q before", by.Before)
	}
	if rec.State != powercycle.PoweringOff || rec.Attempt != 2 || rec.Host != "h" || rec.Node != "n" {
		t.Errorf("it remembers %+v", rec)
	}
	if _, err := RecordOf(aRemediation("new", `{"state":7}`)); err == nil {
		t.Error("what cannot be read is no error: it would begin anew")
	}
}

// A user who may write a remediation can write its record. A record that cannot be read must name no host and no node. A record that can be
// read must stay the same when it is written again: else each reconcile would write it.
func FuzzRecord(f *testing.F) {
	for _, value := range []string{
		"", "{}", "null", "[]", `"Ended"`, "{", `{"state":7}`, `{"state":"Ended","uid":"other","host":"h","node":"n","cluster":"c","fencing":true}`,
		`{"state":"PoweringOff","attempt":1,"asked":"2026-01-01T12:00:00Z","deleted":"2026-01-01T12:00:01.5+23:59"}`,
		`{"attempt":99999999999999999999}`, `{"deleted":"0000-00-00T00:00:00Z"}`, "{\"host\":\"\xff\"}", `{"uid":"a","uid":"b","UID":"c"}`,
	} {
		f.Add(value, "uid")
	}
	f.Fuzz(func(t *testing.T, value, uid string) {
		rem := &mendv1.HostRemediation{}
		rem.UID, rem.Annotations = types.UID(uid), map[string]string{mendv1.PowerCycleAnnotation: value}
		r, err := RecordOf(rem)
		if err != nil {
			if r.State != powercycle.Failed || !strings.Contains(r.Cause.Said, mendv1.PowerCycleAnnotation) ||
				r.UID != "" || r.Host != "" || r.HostUID != "" || r.Node != "" || r.Cluster != "" || r.Machine != "" {
				t.Errorf("RecordOf(%q) = %+v, %v; want a failure that names the annotation and nothing else", value, r, err)
			}
			return
		}
		if who := r.By(rem); who.UID != rem.UID || who.Before == rem.UID && rem.UID != "" {
			t.Errorf("of %q it is known as %+v, want as itself, and not a second time", value, who)
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("what was read of %q cannot be written: %v", value, err)
		}
		rem.Annotations[mendv1.PowerCycleAnnotation] = string(written)
		again, err := RecordOf(rem)
		if err != nil {
			t.Fatalf("%s cannot be read: %v", written, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(twice, written) {
			t.Errorf("written again it is %s, %v; want %s", twice, err, written)
		}
	})
}
