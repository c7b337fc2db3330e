package machinehealthcheck

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Between two reconciles nothing is kept but the check as it is stored: each may be that of another process.
func TestAfterAStormAMachineWaitsForTheCooldown(t *testing.T) {
	storm := []target{a("a", health.Unhealthy), a("b", health.Unhealthy), a("c", health.Healthy)}
	straggler := []target{a("a", health.Unhealthy), a("b", health.Healthy), a("c", health.Healthy)}
	rollout := []target{a("a", health.Starting), a("b", health.Pending), a("c", health.Healthy)}
	well := []target{a("a", health.Healthy), a("b", health.Healthy), a("c", health.Healthy)}
	type pass struct {
		after   time.Duration
		seen    []target
		starts  int
		reason  string
		unsure  bool
		recheck time.Duration // from the first reconcile; zero if there is none
	}
	const allowed, tooMany, cooling = clusterv1.MachineHealthCheckRemediationAllowedReason, clusterv1.MachineHealthCheckTooManyUnhealthyReason, mendv1.CoolingDownReason
	for name, tc := range map[string]struct {
		cooldown   string
		reconciles []pass
	}{
		"without a cooldown the straggler is remediated at once": {"", []pass{{0, storm, 0, tooMany, false, 0}, {time.Minute, straggler, 1, allowed, false, 0}}},
		"with one it waits, to the second": {"10m", []pass{{0, storm, 0, tooMany, false, 0}, {time.Minute, straggler, 0, cooling, false, 11 * time.Minute},
			{11*time.Minute - time.Second, straggler, 0, cooling, false, 11 * time.Minute}, {11 * time.Minute, straggler, 1, allowed, false, 0}}},
		"a storm that comes back begins it anew": {"10m", []pass{{0, storm, 0, tooMany, false, 0}, {time.Minute, straggler, 0, cooling, false, 11 * time.Minute},
			{2 * time.Minute, storm, 0, tooMany, false, 0}, {3 * time.Minute, straggler, 0, cooling, false, 13 * time.Minute}}},
		"a rollout is no storm": {"10m", []pass{{0, rollout, 0, tooMany, false, 0}, {time.Minute, straggler, 1, allowed, false, 0}}},
		"a storm after which all are healthy is over after it, too": {"10m", []pass{{0, storm, 0, tooMany, false, 0}, {time.Minute, well, 0, cooling, false, 11 * time.Minute},
			{12 * time.Minute, well, 0, allowed, false, 0}, {13 * time.Minute, straggler, 1, allowed, false, 0}}},
		"a cluster that does not answer neither ends a storm nor begins one": {"10m", []pass{{0, storm, 0, tooMany, false, 0}, {time.Minute, straggler, 0, "", true, 0},
			{2 * time.Minute, straggler, 0, cooling, false, 12 * time.Minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			stored := aCheck().check
			for i, p := range tc.reconciles {
				w := aCheck(p.seen...).limited("1")
				w.now = noon.Add(p.after)
				w.check.Status = stored.Status
				if tc.cooldown != "" {
					w.check.Annotations = map[string]string{mendv1.StormCooldownAnnotation: tc.cooldown}
				}
				if p.unsure {
					w.link.Link = workload.Unsure
				}
				s := decide(w)
				if starts := s.starts(); starts != p.starts {
					t.Errorf("reconcile %d: %d begin, want %d", i, starts, p.starts)
				}
				if at := s.Storm.Recheck; at.IsZero() != (p.recheck == 0) || p.recheck != 0 && !at.Equal(noon.Add(p.recheck)) {
					t.Errorf("reconcile %d: it is looked at again at %s, want %s after noon", i, at, p.recheck)
				}
				stored = statusAfter(w, s, result{})
				if c := conditionOf(stored, clusterv1.MachineHealthCheckRemediationAllowedCondition); p.reason != "" && c.Reason != p.reason {
					t.Errorf("reconcile %d: RemediationAllowed is %s/%s, want %s", i, c.Status, c.Reason, p.reason)
				}
			}
		})
	}
}

func TestTheEndOfTheCooldownIsSaid(t *testing.T) {
	w := aCheck(a("a", health.Unhealthy), a("b", health.Healthy)).limited("1")
	w.check.Annotations = map[string]string{mendv1.StormCooldownAnnotation: "10m"}
	w.check.Status.Conditions = []metav1.Condition{{Type: mendv1.StormCooldown, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(time.Minute))}}
	s := decide(w)
	const until = "2026-01-01T12:09:00Z"
	for _, kind := range []string{mendv1.StormCooldown, clusterv1.MachineHealthCheckRemediationAllowedCondition} {
		if c := conditionOf(statusAfter(w, s, result{}), kind); c == nil || !strings.Contains(c.Message, until) {
			t.Errorf("%s is %+v, want it to say %s", kind, c, until)
		}
	}
	is := seen(w, s, w.targets[0])
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
			w.check.Annotations = map[string]string{tc.annotation: tc.value}
			s := decide(w)
			c := allowed(s)
			if c.Reason != tc.reason || !strings.Contains(c.Message, tc.want) {
				t.Errorf("RemediationAllowed is %s/%s: %s; want %s, %s", c.Status, c.Reason, c.Message, tc.reason, tc.want)
			}
			begins := s.starts() > 0
			if begins != (tc.want == "") {
				t.Errorf("a remediation begins: %t", begins)
			}
			if is := seen(w, s, w.targets[0]); !begins && !is.Next.Manual {
				t.Errorf("no person is asked to do something: %+v", is.Next)
			}
		})
	}
}
