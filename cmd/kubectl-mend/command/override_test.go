package command

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/must"
)

func TestOverridesSayWhoAskedWhyAndUntilWhen(t *testing.T) {
	because := func(b *byHand) { b.yes, b.reason = true, "switch swap" }
	two, one := metav1.NewTime(noon.Add(2*time.Hour)), metav1.NewTime(noon.Add(time.Hour))
	for what, want := range map[string]mendv1.RemediationOverrideSpec{
		"hold machine/w1": {
			TargetRef: mendv1.OverrideTarget{Kind: "Machine", Name: "w1"}, Action: mendv1.OverrideHold, Until: two,
		},
		"hold failuredomain/b07": {
			TargetRef: mendv1.OverrideTarget{Kind: "FailureDomain", Name: "b07"}, Action: mendv1.OverrideHold, Until: two,
		},
		"allow mhc/workers": {
			TargetRef: mendv1.OverrideTarget{Kind: "MachineHealthCheck", Name: "workers"}, Action: mendv1.OverrideAllow, Until: one,
			Allow: &mendv1.OverrideAllowance{MaxUnhealthy: intstr.Parse("60%"), MaxInFlight: intstr.FromInt32(2)},
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := aPlace(t)
			verb, object, _ := strings.Cut(what, " ")
			got, code := p.does(verb, object, because)
			overrides := &mendv1.RemediationOverrideList{}
			must.Do(t, p.client.List(t.Context(), overrides))
			if code != Done || len(overrides.Items) != 1 {
				t.Fatalf("code %d, %d overrides, printed\n%s", code, len(overrides.Items), got)
			}
			want.Reason, want.By = "switch swap", "alice"
			spec := overrides.Items[0].Spec
			spec.Until.Time = spec.Until.UTC()
			must.Equal(t, want, spec)
			must.Is(t, "metal", overrides.Items[0].Namespace)
		})
	}
	for says, what := range map[string]string{
		"there is no Machine w9 in namespace metal": "hold machine/w9", "--reason: expected why": "hold machine/w1",
	} {
		edit := because
		if strings.HasPrefix(says, "--reason") {
			edit = confirmed
		}
		verb, object, _ := strings.Cut(what, " ")
		if got, code := aPlace(t).does(verb, object, edit); code == Done || !strings.Contains(got, says) {
			t.Errorf("code %d, printed\n%s", code, got)
		}
	}
}
