package remediation

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

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
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kind := range kinds {
			got = append(got, kind.String())
			if (kind.New == nil) != tc.foreign {
				t.Errorf("%s: more than metadata is known: %t", name, kind.New != nil)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
