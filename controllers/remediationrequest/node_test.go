package remediationrequest

import (
	stdcmp "cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

func nodeTemplate(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "medik8s.io/v1alpha1", "kind": "ProviderXRemediationTemplate",
		"metadata": map[string]any{"name": "group-x", "namespace": "default", "labels": map[string]any{"not": "copied"}}, "spec": spec,
	}}
}

func TestARequestForANodeIsMadeAsMedik8sMakesIt(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "check", UID: "c-uid"}
	ask := Ask{
		Name: "worker-0-21", Node: "worker-0-21", ControlPlane: true, By: Maker{Name: "check", UID: "c-uid"}, Owners: []metav1.OwnerReference{owner},
	}
	got, err := ForNode(ask, nodeTemplate(map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"not": "copied"}}, "spec": map[string]any{"size": int64(42)},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "medik8s.io/v1alpha1", "kind": "ProviderXRemediation",
		"metadata": map[string]any{
			"name": "worker-0-21", "namespace": "default",
			"annotations": map[string]any{
				"remediation.medik8s.io/node-name": "worker-0-21", "remediation.medik8s.io/template-name": "group-x",
				"kubemend.io/made-by-node-health-check": "check",
			},
			"labels": map[string]any{
				"app.kubernetes.io/part-of": "node-healthcheck-controller", "remediation.medik8s.io/isControlPlaneNode": "",
				"kubemend.io/made-by-node-health-check-uid": "c-uid",
			},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "name": "check", "uid": "c-uid",
			}},
		},
		"spec": map[string]any{"size": int64(42)},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("ForNode() (-want +got):\n%s", diff)
	}
	if by := NodeCheckOf(got); by != ask.By {
		t.Errorf("it says that it was made by %v", by)
	}
	if by, marked := MadeBy(got); marked {
		t.Errorf("it was made by MachineHealthCheck %v, who would delete it", by)
	}
}

func TestContentOfATemplate(t *testing.T) {
	const missing = "invalid template default/group-x, didn't find spec.template.spec"
	for name, tc := range map[string]struct {
		spec map[string]any
		want map[string]any
		err  string
	}{
		"seed 0.19: spec.template.spec is the content": {
			spec: map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(42)}, "size": int64(1)}},
			want: map[string]any{"size": int64(42)},
		},
		"seed 0.19, W17: without it, what is in spec.template but metadata": {
			spec: map[string]any{"template": map[string]any{"size": int64(42), "metadata": map[string]any{"labels": map[string]any{}}}},
			want: map[string]any{"size": int64(42)},
		},
		"an empty spec is a spec":             {spec: map[string]any{"template": map[string]any{"spec": map[string]any{}}}, want: map[string]any{}},
		"nothing at all is no spec":           {spec: map[string]any{"template": map[string]any{}}},
		"without spec.template it is invalid": {spec: map[string]any{}, err: missing},
		"a text is no template":               {spec: map[string]any{"template": "reboot"}, err: missing},
		"a text is no spec":                   {spec: map[string]any{"template": map[string]any{"spec": "reboot"}}, err: missing},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Content(nodeTemplate(tc.spec))
			if said := fmt.Sprint(err); said != stdcmp.Or(tc.err, "<nil>") {
				t.Errorf("error %q, want %q", said, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Content() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKindsOfTemplates(t *testing.T) {
	for template, want := range map[string]string{
		"SelfNodeRemediationTemplate": "SelfNodeRemediation",
		"Template":                    "", // W21
		"Pod":                         "",
		"":                            "",
	} {
		got, err := NodeKindOf(schema.GroupVersionKind{Group: "x.example.org", Version: "v1", Kind: template})
		if got.Kind != want || (err == nil) != (want != "") {
			t.Errorf("NodeKindOf(%q) = %q, %v, want %q", template, got.Kind, err, want)
		}
	}
}

func TestUniqueNames(t *testing.T) {
	a, b := UniqueName("worker-0", "check", "ns", "one"), UniqueName("worker-0", "check", "ns", "two")
	if a == b || a != UniqueName("worker-0", "check", "ns", "one") {
		t.Errorf("%s and %s: the same template has to give the same name, another one another", a, b)
	}
	if UniqueName("n", "a", "bc") == UniqueName("n", "ab", "c") {
		t.Error("where one part ends and the next begins makes no difference")
	}
	long := UniqueName(strings.Repeat("n", 253), "check")
	for _, name := range []string{a, b, long} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s is no name: %v", name, problems)
		}
	}
	if !strings.HasPrefix(a, "worker-0-") {
		t.Errorf("%s does not begin with the node's name", a)
	}
}
