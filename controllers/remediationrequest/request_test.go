package remediationrequest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func machine() *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "worker-3", UID: "m-uid"},
		Spec:       clusterv1.MachineSpec{ClusterName: "c1"},
	}
}

func template(embedded map[string]any) *unstructured.Unstructured {
	t := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3RemediationTemplate",
		"metadata": map[string]any{"name": "reboot", "namespace": "metal"}, "spec": map[string]any{},
	}}
	if embedded != nil {
		t.Object["spec"] = map[string]any{"template": embedded}
	}
	return t
}

func TestARequestIsMadeAsClusterAPIMakesIt(t *testing.T) {
	got, err := For(machine(), template(map[string]any{
		"metadata": map[string]any{
			"labels": map[string]any{"keep": "me"}, "annotations": map[string]any{"keep": "me"},
			"uid": "stale", "resourceVersion": "1", "finalizers": []any{"stale"}, "generateName": "x", "name": "other", "namespace": "other",
		},
		"spec": map[string]any{"strategy": map[string]any{"type": "Reboot"}},
	}), Maker{Name: "check", UID: "c-uid"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Remediation",
		"metadata": map[string]any{
			"name": "worker-3", "namespace": "metal",
			"labels": map[string]any{"keep": "me", "cluster.x-k8s.io/cluster-name": "c1", "kubemend.io/made-by-uid": "c-uid"},
			"annotations": map[string]any{
				"keep": "me", "cluster.x-k8s.io/cloned-from-name": "reboot",
				"cluster.x-k8s.io/cloned-from-groupkind": "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io",
				"kubemend.io/made-by":                    "check",
			},
			"ownerReferences": []any{map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "worker-3", "uid": "m-uid"}},
		},
		"spec": map[string]any{"strategy": map[string]any{"type": "Reboot"}},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("For() (-want +got):\n%s", diff)
	}
}

func TestATemplateWithoutContentMakesARequestWithout(t *testing.T) {
	got, err := For(machine(), template(nil), Maker{Name: "check"})
	if err != nil || got.GetKind() != "Metal3Remediation" || got.GetName() != "worker-3" {
		t.Errorf("For() = %v, %v", got, err)
	}
}

func TestAVersionOfItsOwnInTheTemplateIsKept(t *testing.T) {
	const group, kind = "infrastructure.cluster.x-k8s.io", "Metal3Remediation"
	got, err := For(machine(), template(map[string]any{"apiVersion": group + "/v1beta2", "kind": kind}), Maker{Name: "check"})
	if err != nil || got.GroupVersionKind() != (schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind}) {
		t.Errorf("For() = %v, %v", got, err)
	}
}

// A request of a kind that no controller lists would be made again and again.
func TestAnotherKindInTheTemplateIsRefused(t *testing.T) {
	_, err := For(machine(), template(map[string]any{"apiVersion": "other.io/v1", "kind": "Reboot"}), Maker{Name: "check"})
	if err == nil || !strings.Contains(err.Error(), "Reboot.other.io") || !strings.Contains(err.Error(), "Metal3Remediation.infrastructure") {
		t.Errorf("got %v, want an error that names both kinds", err)
	}
}

func TestATemplateThatIsNotOneIsRefused(t *testing.T) {
	broken := template(nil)
	broken.Object["spec"] = map[string]any{"template": "text"}
	if _, err := For(machine(), broken, Maker{}); err == nil {
		t.Error("a template whose spec.template is a string was accepted")
	}
}

func TestOnlyKindsWithATemplateBesideThemAreRequests(t *testing.T) {
	resources := []metav1.APIResource{
		{Name: "metal3remediations", Kind: "Metal3Remediation", Namespaced: true}, {Name: "metal3remediations/status", Kind: "Metal3Remediation", Namespaced: true},
		{Name: "metal3remediationtemplates", Kind: "Metal3RemediationTemplate", Namespaced: true},
		{Name: "lonelies", Kind: "Lonely", Namespaced: true}, {Name: "orphantemplates", Kind: "OrphanTemplate", Namespaced: true},
		{Name: "wides", Kind: "Wide"}, {Name: "widetemplates", Kind: "WideTemplate"},
	}
	for gv, want := range map[string][]string{
		"infrastructure.cluster.x-k8s.io/v1beta2": {"metal3remediations", "wides"}, "example.org/v1": {"metal3remediations", "wides"},
		"v1": nil, "apps/v1": nil, "resource.k8s.io/v1": nil,
	} {
		var got []string
		kinds, err := KindsIn(&metav1.APIResourceList{GroupVersion: gv, APIResources: resources})
		for _, kind := range kinds {
			got = append(got, kind.Name)
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, kinds (-want +got):\n%s", gv, err, diff)
		}
	}
	if _, err := KindsIn(&metav1.APIResourceList{GroupVersion: "a/b/c"}); err == nil {
		t.Error("a group and version of three parts was accepted")
	}
}
