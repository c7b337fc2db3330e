package machinehealthcheck

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestTheEndOfTheCooldownIsSaid(t *testing.T) {
	w := aCheck(a("a", health.Unhealthy), a("b", health.Healthy)).limited("1")
	w.Check.Annotations = map[string]string{mendv1.StormCooldownAnnotation: "10m"}
	w.Check.Status.Conditions = []metav1.Condition{{Type: mendv1.StormCooldown, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(time.Minute))}}
	s := decide(w)
	const until = "2026-01-01T12:09:00Z"
	for _, kind := range []string{mendv1.StormCooldown, clusterv1.MachineHealthCheckRemediationAllowedCondition} {
		if c := ConditionOf(statusAfter(w, s, result{}), kind); c == nil || !strings.Contains(c.Message, until) {
			t.Errorf("%s is %+v, want it to say %s", kind, c, until)
		}
	}
	is := seen(w, s, w.Targets[0])
	if is.StartsNow || len(is.Blockers) == 0 || !is.Blockers[0].Until.Equal(noon.Add(9*time.Minute)) || !is.Next.At.Equal(noon.Add(9*time.Minute)) {
		t.Errorf("explain says %+v, next %+v; want %s", is.Blockers, is.Next, until)
	}
}

func TestWhatCannotBeReadInAnAnnotationBeginsNothingAndIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation, value, reason, want string
	}{
		"a cooldown that is no duration":   {mendv1.StormCooldownAnnotation, "ten", mendv1.InvalidLimitReason, `metadata.annotations[kubemend.io/storm-cooldown]: "ten" is no duration of zero or more, such as 10m`},
		"a cooldown below zero":            {mendv1.StormCooldownAnnotation, "-1m", mendv1.InvalidLimitReason, `metadata.annotations[kubemend.io/storm-cooldown]: "-1m" is no duration`},
		"none in flight is not one":        {mendv1.MaxInFlightAnnotation, "0", mendv1.NoneAtOnceReason, `metadata.annotations[kubemend.io/max-in-flight] is "0": none may be in flight`},
		"nor is no percent":                {mendv1.MaxInFlightAnnotation, "0%", mendv1.NoneAtOnceReason, `metadata.annotations[kubemend.io/max-in-flight] is "0%"`},
		"a limit that is no number":        {mendv1.MaxInFlightAnnotation, "many", mendv1.InvalidLimitReason, "metadata.annotations[kubemend.io/max-in-flight]: "},
		"a small percentage of a few is 1": {mendv1.MaxInFlightAnnotation, "1%", clusterv1.MachineHealthCheckRemediationAllowedReason, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck(a("a", health.Unhealthy))
			w.Check.Annotations = map[string]string{tc.annotation: tc.value}
			s := decide(w)
			c := s.Allowed
			if c.Reason != tc.reason || !strings.Contains(c.Message, tc.want) {
				t.Errorf("RemediationAllowed is %s/%s: %s; want %s, %s", c.Status, c.Reason, c.Message, tc.reason, tc.want)
			}
			begins := starts(s) > 0
			if begins != (tc.want == "") {
				t.Errorf("a remediation begins: %t", begins)
			}
			if is := seen(w, s, w.Targets[0]); !begins && !is.Next.Manual {
				t.Errorf("no person is asked to do something: %+v", is.Next)
			}
		})
	}
}
