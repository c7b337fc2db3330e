package simulator

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestAMachineGetsAHostThatItSelects(t *testing.T) {
	hosts := func() []bmov1alpha1.BareMetalHost {
		var all []bmov1alpha1.BareMetalHost
		for name, zone := range map[string]string{"a": "1", "b": "2"} {
			h := bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
			h.Status.Provisioning.State = bmov1alpha1.StateAvailable
			all = append(all, h)
		}
		return all
	}
	in := func(zones ...any) map[string]any {
		return map[string]any{"matchExpressions": []any{map[string]any{"key": "zone", "operator": "In", "values": zones}}}
	}
	for name, tc := range map[string]struct {
		selector any
		want     string
		fails    bool
	}{
		"any, without a selector":          {nil, "a", false},
		"by a label":                       {map[string]any{"matchLabels": map[string]any{"zone": "2"}}, "b", false},
		"by an expression":                 {in("2", "3"), "b", false},
		"none that fits":                   {in("3"), "", false},
		"none by a selector that is wrong": {"zone=2", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			infra := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
			if tc.selector != nil {
				infra.Object["spec"].(map[string]any)["hostSelector"] = tc.selector
			}
			got := ""
			host, err := choose(hosts(), infra)
			if host != nil {
				got = host.Name
			}
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("it gets %q (%v), want %q", got, err, tc.want)
			}
		})
	}
}
