package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// relapses is a node b whose single remediation has succeeded, that was healthy after that, for a minute, and that is bad once more. It is judged in the
// next reconciles.
func relapses(t *testing.T, delay time.Duration, change ...func(*fixture)) *fixture {
	t.Helper()
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
		s.HealthyDelay = &metav1.Duration{Duration: delay}
	}))...)
	for _, f := range change {
		f(k)
	}
	k.bad("b")
	k.looks()
	k.after(2 * time.Minute)
	k.answers("Reboot", nhcv1.SucceededCondition, "True")
	k.after(time.Second)
	k.looks()
	k.turn("b", corev1.ConditionTrue)
	k.looks()
	k.after(time.Minute)
	k.looks()
	k.turn("b", corev1.ConditionUnknown)
	return k
}

func TestASingleRemediationIsRepeatedAlthough(t *testing.T) {
	for name, happens := range map[string]func(*testing.T, time.Duration) *fixture{
		"the remediator's role of before there were ladders does not let us patch": func(t *testing.T, delay time.Duration) *fixture {
			return relapses(t, delay, func(k *fixture) { k.grants(shipped(t, "poison-pill-0.1")) })
		},
		"a later role does neither": func(t *testing.T, delay time.Duration) *fixture {
			return relapses(t, delay, func(k *fixture) { k.grants(shipped(t, "self-node-remediation-0.8")) })
		},
		"a patch after the relapse has failed": func(t *testing.T, delay time.Duration) *fixture {
			k, failed := relapses(t, delay), false
			k.fails = func(verb string, _ client.Object) error {
				if verb != "patch" || failed {
					return nil
				}
				failed = true
				return apierrors.NewTimeoutError("once", 1)
			}
			k.looks()
			return k
		},
		"the manager was started anew after the relapse": func(t *testing.T, delay time.Duration) *fixture {
			k := relapses(t, delay)
			k.looks()
			k.restart()
			return k
		},
		"the manager was started anew before it": func(t *testing.T, delay time.Duration) *fixture {
			k := relapses(t, delay)
			k.restart()
			return k
		},
		"the remediator has taken the annotation off": func(t *testing.T, delay time.Duration) *fixture {
			k := relapses(t, delay)
			k.looks()
			obj := k.objects()[0]
			obj.SetAnnotations(nil)
			k.update(obj)
			return k
		},
		"the remediator's clock is ahead": func(t *testing.T, delay time.Duration) *fixture {
			k := relapses(t, delay)
			k.clock.SetTime(k.clock.Now().Add(-2 * time.Minute))
			return k
		},
	} {
		for wait, delay := range map[string]time.Duration{"an hour": time.Hour, "by hand": -1} {
			t.Run(name+", "+wait, func(t *testing.T) {
				t.Parallel()
				k := happens(t, delay)
				k.looks()
				for _, later := range []time.Duration{10 * time.Minute, time.Hour, 23 * time.Hour} {
					k.after(later)
					k.looks()
				}
				if len(k.made) != 2 {
					t.Errorf("made %v in a day, want 2", k.made)
				}
			})
		}
	}
}
