package nodehealthcheck

import (
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

func TestTheFlagNamesATemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		want  *corev1.ObjectReference // nil if the value is refused
	}{
		"seed 1.2: Poison Pill's": {
			"PoisonPillRemediationTemplate.v1alpha1.poison-pill.medik8s.io/openshift-operators/poison-pill-default-template",
			&corev1.ObjectReference{
				APIVersion: "poison-pill.medik8s.io/v1alpha1", Kind: "PoisonPillRemediationTemplate", Namespace: "openshift-operators", Name: "poison-pill-default-template",
			},
		},
		"seed 1.2: one of ours": {
			"HostRemediationTemplate.v1alpha1.kubemend.io/metal/cycle",
			&corev1.ObjectReference{APIVersion: "kubemend.io/v1alpha1", Kind: "HostRemediationTemplate", Namespace: "metal", Name: "cycle"},
		},
		"one whose kind has no namespace": {
			"RebootTemplate.v1.test.io//a", &corev1.ObjectReference{APIVersion: "test.io/v1", Kind: "RebootTemplate", Name: "a"},
		},
		"a kind that is none of templates": {"Reboot.v1.test.io/default/a", nil},
		"a kind without its version":       {"RebootTemplate/default/a", nil},
		"no name":                          {"RebootTemplate.v1.test.io/default/", nil},
		"no namespace, not even an empty":  {"RebootTemplate.v1.test.io/a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTemplate(tc.value)
			if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.want != nil) {
				t.Errorf("%v, reference (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestTheCheckByDefault(t *testing.T) {
	flag := ptr.To(refTo("Reboot", "reboot"))
	t.Run("seed 1.1: is nhc-worker-default, and has workers remediated with the template of the flag", func(t *testing.T) {
		k := newFixture(t, append(workers("a", "b", "c"), member("m"), template("Reboot", "reboot", false))...)
		for range 2 { // as often as the manager starts
			must.Do(t, CreateDefault(t.Context(), k.client, k.client, flag))
		}
		c := k.check("nhc-worker-default")
		c.Spec.UnhealthyConditions = check("").Spec.UnhealthyConditions // the API server's part
		k.update(c)
		k.turn("m", corev1.ConditionUnknown)
		k.bad("b")
		k.settle(c.Name)
		k.wants("the worker alone", "Reboot/b")
		if got := k.state(c.Name); got != "Remediating 2/3 b:1" {
			t.Errorf("the status is %q", got)
		}
	})
	t.Run("seed 1.1: is not made beside another one", func(t *testing.T) {
		k := newFixture(t, check("mine"))
		must.Do(t, CreateDefault(t.Context(), k.client, k.client, flag))
		list := &nhcv1.NodeHealthCheckList{}
		must.Do(t, k.client.List(t.Context(), list))
		if len(list.Items) != 1 || list.Items[0].Name != "mine" {
			t.Errorf("there are %d checks, want the one that was there", len(list.Items))
		}
	})
}
