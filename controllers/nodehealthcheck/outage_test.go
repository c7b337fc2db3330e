package nodehealthcheck

import (
	"testing"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// short is two steps, each of that length.
func short(d time.Duration) func(*nhcv1.NodeHealthCheckSpec) {
	return func(s *nhcv1.NodeHealthCheckSpec) {
		ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))(s)
		for i := range s.EscalatingRemediations {
			s.EscalatingRemediations[i].Timeout.Duration = d
		}
	}
}

// A manager loses its own lease in an outage, and the next one starts in it, or when it is over.
func TestAnOutageWithARestartUsesNoneOfAStepUp(t *testing.T) {
	for name, tc := range map[string]struct {
		step, away time.Duration
		known      bool          // the new process has seen the outage's end by its own connection
		first      time.Duration // which was out of reach for so long before that
	}{
		"a step of a minute, and 89 s":                                          {time.Minute, 89 * time.Second, false, 0},
		"a step of a minute, and 89 s, which the new process has seen":          {time.Minute, 89 * time.Second, true, 0},
		"a step of a minute, and 40 s":                                          {time.Minute, 40 * time.Second, false, 0},
		"a step of five minutes, and 200 s":                                     {5 * time.Minute, 200 * time.Second, false, 0},
		"a step of five minutes, and 200 s, which the new process has seen":     {5 * time.Minute, 200 * time.Second, true, 0},
		"a step of five minutes, and 200 s, half of which the process began in": {5 * time.Minute, 100 * time.Second, true, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			k := watching(t, short(tc.step))
			k.bad("b")
			k.settle("nhc")
			k.wants("the first step", "Reboot/b")
			k.after(tc.first)
			if !tc.known {
				k.after(tc.away)
			}
			k.restart()
			k.r.Contact = &Contact{Clock: k.clock}
			if tc.known {
				k.cutOff(tc.away)
			}
			k.settle("nhc")
			for waited := time.Duration(0); waited < tc.step-time.Second; waited += time.Second {
				if all := k.objects(); len(all) > 1 || all[0].GetAnnotations()[nhcv1.TimedOutAnnotation] != "" {
					t.Fatalf("the first step was given up after %s in which its remediator could work; requests %v", waited, k.requests())
				}
				k.after(time.Second)
				k.settle("nhc")
			}
			k.after(2 * restartSlack)
			k.settle("nhc")
			k.wants("its time is over", "Reboot/b", "Replace/b")
		})
	}
}
